"""Metrics and health: a state for machines that watch, in Prometheus's text format and as one JSON object.

States in, bytes out. Names and reasons are the only labels and both are bounded; what a peer wrote is none.
"""

from collections.abc import Callable, Iterator

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from waggledance.rollout import name_of
from waggledance.view import tally
from waggledance.view.curve import smoothing_rounds
from waggledance.view.scene import NODES_LIMIT, Swarms
from waggledance.view.state import NodeState
from waggledance.view.text import plain

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LEAST_SILENCE_S = 120.0
SILENT_ROUNDS = 20.0
"""A node that tells nothing for as long as it takes for so many rounds is stuck."""

Number = Callable[[NodeState], float | None]

GAUGES: dict[str, tuple[str, Number]] = {
    "round": ("the round a node is in", lambda node: node.round),
    "rounds_planned": ("how many it will do", lambda node: node.rounds),
    "own_reward": (
        "of fresh answers, over the newest rounds",
        lambda node: node.own.recent(smoothing_rounds(node.rounds)),
    ),
    "trained_reward": (
        "over the updates' whole batches, over the newest rounds",
        lambda node: node.trained.recent(smoothing_rounds(node.rounds)),
    ),
    "heldout_reward": (
        "on questions nobody trains on, newest",
        lambda node: node.heldout.newest[1] if node.heldout.newest else None,
    ),
    "round_seconds": ("how long a round takes", lambda node: node.round_seconds.recent(10)),
    "gradient_norm": ("of the newest steps", lambda node: node.grad_norm.recent(10)),
    "kl": ("from the start, of the newest steps", lambda node: node.kl.recent(10)),
    "peers": ("who is here", lambda node: node.peers),
    "pool_groups": ("foreign groups at hand", lambda node: node.pool),
    "listening_share": ("of the swarm that is listened to", lambda node: node.listening),
    "memory_bytes": ("held just now", lambda node: node.memory_bytes),
    "memory_peak_bytes": ("most ever held", lambda node: node.peak_bytes),
    "stuck": ("1 where a phase lasts longer than it should", lambda node: float(node.stuck is not None)),
    "unsaved": ("1 where rounds cannot be kept", lambda node: float(node.unsaved is not None)),
    "failed": ("1 where a node failed", lambda node: float(node.error is not None)),
}
COUNTERS: dict[str, tuple[str, Number]] = {
    "tokens_generated": ("written by the node itself", lambda node: node.tokens_generated),
    "tokens_trained": ("learned from", lambda node: node.tokens_trained),
    "groups_shared": ("given to others", lambda node: node.groups_shared),
    "bytes_shared": ("sent to others", lambda node: node.bytes_shared),
    "groups_taken": ("of others, trained on", lambda node: sum(node.taken.values())),
    "groups_heard": ("of others, come in", lambda node: node.heard),
    "groups_dropped": ("pushed out of a full queue", lambda node: node.dropped),
    "cpu_seconds": ("of the processor, since the process started", lambda node: node.cpu_seconds),
    "generating_seconds": ("spent answering", lambda node: node.seconds_generating),
    "learning_seconds": ("spent learning", lambda node: node.seconds_learning),
}
LABELS = ("swarm", "node")


class Health(msgspec.Struct, frozen=True):
    status: str
    """`ok`, `done`, `starting`, `failed`, `stuck` or `silent`."""
    round: int
    rounds: int
    silent_seconds: float

    @property
    def well(self) -> bool:
        return self.status not in ("failed", "stuck", "silent")


def exposition(swarms: Swarms, silent_seconds: float) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(swarms, silent_seconds))
    return generate_latest(registry)


def health(swarms: Swarms, silent_seconds: float) -> Health:
    now = tally.progress(swarms.values())
    nodes = [node for swarm in swarms.values() for node in swarm.nodes.values()]
    slowest = max((node.round_seconds.recent(10) or 0.0 for node in nodes), default=0.0)
    if any(node.error is not None for node in nodes):
        status = "failed"
    elif now.ended:
        status = "done"
    elif not nodes:
        status = "starting"
    elif any(node.stuck is not None for node in nodes):
        status = "stuck"
    elif silent_seconds > max(LEAST_SILENCE_S, SILENT_ROUNDS * slowest):
        status = "silent"
    else:
        status = "ok"
    return Health(status, now.round, now.rounds, round(silent_seconds, 1))


class _Collected(Collector):
    """The one class of another's that is taken over: the library asks for it."""

    def __init__(self, swarms: Swarms, silent_seconds: float) -> None:
        self._nodes = [
            ((plain(label, 64), plain(name_of(node.author), 64)), node)
            for label, swarm in swarms.items()
            for node in swarm.in_order
        ][:NODES_LIMIT]
        self._silent_seconds = silent_seconds

    def collect(self) -> Iterator[Metric]:
        for name, (words, number) in GAUGES.items():
            yield self._filled(GaugeMetricFamily(f"waggle_{name}", words, labels=LABELS), number)
        for name, (words, number) in COUNTERS.items():
            yield self._filled(CounterMetricFamily(f"waggle_{name}", words, labels=LABELS), number)
        refused = CounterMetricFamily(
            "waggle_refused", "messages and groups that were not let in", labels=(*LABELS, "reason")
        )
        for labels, node in self._nodes:
            for reason, count in node.refused.items():
                refused.add_metric((*labels, plain(reason, 32)), count)
        yield refused
        yield GaugeMetricFamily(
            "waggle_silent_seconds", "since any node told anything", value=self._silent_seconds
        )

    def _filled(
        self, family: "GaugeMetricFamily | CounterMetricFamily", number: Number
    ) -> "GaugeMetricFamily | CounterMetricFamily":
        for labels, node in self._nodes:
            value = number(node)
            if value is not None:
                family.add_metric(labels, value)
        return family
