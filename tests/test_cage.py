"""The cage: right rewards, nothing but rewards, and no more time than the limit."""

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli_run import wait_until
from misjudge import DEEDS
from swarm_run import make_node
from waggledance.events import Sampled, Verified
from waggledance.node import CAGE
from waggledance.policy.scripted import ScriptedPolicy
from waggledance.rollout import Author, Group, Rollout
from waggledance.seams import Failure, Pair, Verdict, Verifier
from waggledance.swarm.memory import MemoryHub
from waggledance.task import SourceName, Task
from waggledance.tasks import Arithmetic
from waggledance.verify import RULES, Uncaged, right_answer
from waggledance.verify.cage import Cage, Terms
from waggledance.verify.frames import answer, job, read_answer, read_job

LIMIT_S = 0.25
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the fence's second half is Linux's")


@pytest.fixture(scope="module")
def cage() -> Generator[Cage]:
    opened = Cage(Terms(limit_s=5.0))  # a busy machine is no reason to fail
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def misjudging() -> Generator[Cage]:
    opened = Cage(Terms(limit_s=LIMIT_S, memory_bytes=256 << 20), program="misjudge")
    yield opened
    opened.close()


def doing(*deeds: str) -> Pair:
    task = Task(SourceName("test"), 0, "?", "text", "")
    return task, [f"<answer>{deed}</answer>" for deed in deeds]


RIGHT = doing("right", "wrong")


def sums(count: int) -> list[Pair]:
    source = Arithmetic()
    tasks = [source.task(index) for index in range(count)]
    return [
        (task, [f"<answer>{said}</answer>" for said in (task.truth, "no", "7", task.truth)]) for task in tasks
    ]


# ── rewards ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_cage_pays_what_the_rules_pay(cage: Cage) -> None:
    pairs = sums(40)
    assert cage.verify(pairs) == Uncaged().verify(pairs)
    assert cage.verify([]) == []


TRUTHS = {"number": "-12.5", "logic": "(P → Q)\nP", "matrix": "1 2\n3 4", "text": "hello", "word": "Monday"}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(TRUTHS)), st.lists(st.text(max_size=80), max_size=4)), max_size=6
    )
)
def test_whatever_is_answered_the_cage_pays_what_the_rules_pay(
    cage: Cage, answered: list[tuple[str, list[str]]]
) -> None:
    pairs = [
        (
            Task(SourceName("test"), 0, "?", rule, TRUTHS[rule]),
            [f"<answer>{text}</answer>" for text in [*texts, right_answer(rule, TRUTHS[rule])]],
        )
        for rule, texts in answered
    ]
    assert cage.verify(pairs) == Uncaged().verify(pairs)


def test_half_a_surrogate_pair_crosses(cage: Cage) -> None:
    task = Task(SourceName("test"), 0, "?", "text", "\ud800")
    assert cage.verify([(task, ["<answer>\ud800</answer>", "\udfff"])]) == [(1.0, 0.0)]


def test_sixty_four_answers_cost_less_than_five_milliseconds_beyond_the_rule(
    cage: Cage, record_property: Callable[[str, object], None]
) -> None:
    """The best of many: what else this machine does is not the cage's."""
    pairs = [(task, [*texts, *texts]) for task, texts in sums(8)]
    cage.verify(pairs)
    caged_ms, bare_ms = (min(_took_ms(verifier, pairs) for _ in range(30)) for verifier in (cage, Uncaged()))
    record_property("64 answers in the cage, ms beyond the rule", round(caged_ms - bare_ms, 2))
    assert caged_ms - bare_ms < 5.0


def _took_ms(verifier: Verifier, pairs: Sequence[Pair]) -> float:
    start = time.perf_counter()
    verifier.verify(pairs)
    return 1000 * (time.perf_counter() - start)


def test_a_large_group_crosses(cage: Cage) -> None:
    task = Task(SourceName("test"), 0, "?", "text", "right")
    texts = ["x" * 65_000 + "<answer>right</answer>"] * 64
    assert cage.verify([(task, texts)] * 3) == [(1.0,) * 64] * 3


# ── nothing but rewards ───────────────────────────────────────────────────────────────────────────────

REFUSED = (
    *("write_file", "read_file", "make_folder", "remove_file", "rename_file", "open_up_file", "link_file"),
    *("dial", "dial_by_file", "listen", "start_program", "become_program", "fork", "start_thread"),
    *("signal_another", "raise_limits", "trace_another", "read_environment"),
)


@LINUX
def test_an_answer_that_could_run_code_does_nothing_outside(misjudging: Cage, tmp_path: Path) -> None:
    """Files, folders, sockets, programs, threads, signals, limits: each refused by the system, none done."""
    assert misjudging.fence.network or misjudging.fence.calls
    if not misjudging.fence.calls:
        pytest.skip("this system has no filter of system calls")
    there, victim = tmp_path / "there", subprocess.Popen(["sleep", "60"])
    there.write_text("as it was", encoding="utf-8")
    before = there.stat()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as filed:
        filed.bind(str(tmp_path / "socket"))
        filed.listen()
        server.setblocking(False)
        places = {
            **dict.fromkeys(REFUSED, str(there)),
            "make_folder": str(tmp_path / "folder"),
            "dial": f"127.0.0.1:{server.getsockname()[1]}",
            "dial_by_file": str(tmp_path / "socket"),
            "signal_another": str(victim.pid),
            "trace_another": str(victim.pid),
        }
        deeds = [f"{deed} {places[deed]}" for deed in REFUSED]
        try:
            verdicts = misjudging.verify([doing(*deeds), RIGHT])
            assert victim.poll() is None
        finally:
            victim.kill()
            victim.wait()
        with pytest.raises(BlockingIOError):
            server.accept()
    assert verdicts == [(0.0,) * len(deeds), (1.0, 0.0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["socket", "there"]
    assert there.read_text(encoding="utf-8") == "as it was"
    assert there.stat().st_mode == before.st_mode


FATAL = {
    "loop": {Failure.TIMED_OUT},
    "sleep": {Failure.TIMED_OUT},
    "count_far": {Failure.TIMED_OUT, Failure.RAISED},
    "eat_memory": {Failure.RAISED},
    "break_stack": {Failure.KILLED},
    "leave": {Failure.RAISED},
    "leave_at_once": {Failure.KILLED},
    "lie_in_shape": {Failure.RAISED},
    "pay_too_much": {Failure.RAISED},
    "pay_nan": {Failure.RAISED},
}


def test_every_deed_is_tried() -> None:
    assert {*REFUSED, *FATAL, "nest_deep"} == DEEDS.keys()


@pytest.mark.parametrize("deed", FATAL)
def test_what_breaks_its_judge_costs_its_own_group_and_the_limit(misjudging: Cage, deed: str) -> None:
    misjudging.verify([RIGHT])  # one is there
    start = time.monotonic()
    before, failed, after = misjudging.verify([RIGHT, doing("right", deed), RIGHT])
    took_s = time.monotonic() - start
    if failed is Failure.TIMED_OUT:
        assert after is Failure.UNTRIED  # the time that failures may cost in one call is used up
    else:
        assert after == (1.0, 0.0)
    assert before == (1.0, 0.0)
    assert failed in FATAL[deed]
    assert took_s < 2.0
    assert misjudging.verify([RIGHT]) == [(1.0, 0.0)]


def test_an_answer_that_nests_too_deep_is_not_paid(misjudging: Cage) -> None:
    assert misjudging.verify([doing("nest_deep", "right")]) == [(0.0, 1.0)]


def test_a_worker_that_died_between_two_calls_is_replaced(misjudging: Cage) -> None:
    for _ in range(5):
        misjudging.verify([doing("leave_at_once")])
        assert misjudging.verify([RIGHT]) == [(1.0, 0.0)]


def test_a_worker_that_has_worked_long_retires_within_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit of processor time is for its whole life: no honest group may meet it."""
    cage = Cage(Terms(limit_s=5.0))
    try:
        monkeypatch.setattr("waggledance.verify.cage.RETIRE_S", 0.0)
        pairs = sums(6)
        assert cage.verify(pairs) == Uncaged().verify(pairs)
        assert cage._worker is None  # pyright: ignore[reportPrivateUsage]
    finally:
        cage.close()


# ── offspring ─────────────────────────────────────────────────────────────────────────────────────────


def offspring(pid: int) -> set[int]:
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == pid and words[0] != "Z":
            found |= {int(stat.parent.name)} | offspring(int(stat.parent.name))
    return found


def alive(pids: set[int]) -> bool:
    return any(Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z" for pid in pids)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@LINUX
def test_a_cage_leaves_nothing_behind() -> None:
    before = offspring(os.getpid())
    closed, forgotten = Cage(), Cage()
    for opened in (closed, forgotten):
        opened.verify(sums(1))
    pids = offspring(os.getpid()) - before
    assert len(pids) >= 4  # two wardens, a worker each, and perhaps a spare
    closed.close()
    del forgotten, opened
    gc.collect()
    wait_until(lambda: not alive(pids), "wardens and workers end")


@LINUX
@pytest.mark.parametrize("who", ["node", "warden"])
def test_workers_end_with_whoever_they_belong_to(who: str) -> None:
    program = (
        "import sys; from waggledance.verify.cage import Cage; from waggledance.tasks import Arithmetic; "
        "task = Arithmetic().task(0); cage = Cage(); cage.verify([(task, ['x'])]); print('up', flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as node:
        assert node.stdout is not None
        assert node.stdout.readline() == b"up\n"
        pids = offspring(node.pid)
        [warden] = [pid for pid in pids if offspring(pid)]
        os.kill(node.pid if who == "node" else warden, signal.SIGKILL)
        wait_until(lambda: not alive(pids), "all of them end")
        node.kill()


def test_a_warden_that_died_is_replaced() -> None:
    cage = Cage()
    try:
        assert cage.verify(sums(2)) == Uncaged().verify(sums(2))
        warden = cage._warden  # pyright: ignore[reportPrivateUsage]
        assert warden is not None
        warden._running.kill()  # pyright: ignore[reportPrivateUsage]
        warden._running.wait()  # pyright: ignore[reportPrivateUsage]
        cage.verify(sums(1))  # its worker died with it
        assert cage.verify(sums(2)) == Uncaged().verify(sums(2))
    finally:
        cage.close()


# ── what is said ──────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 8))
def test_no_bytes_of_a_worker_are_more_than_rewards(content: bytes, texts: int) -> None:
    verdict = read_answer(content, texts)
    assert verdict is Failure.RAISED or (
        not isinstance(verdict, Failure)
        and len(verdict) == texts
        and all(0.0 <= reward <= 1.0 for reward in verdict)
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(max_size=9), st.integers(0, 2**62), st.text(max_size=9), st.lists(st.text(max_size=9))
        ),
        max_size=4,
    )
)
def test_a_job_is_read_as_it_was_written(groups: Sequence[tuple[str, int, str, list[str]]]) -> None:
    pairs = [
        (Task(SourceName(source), index, "", "text", truth, partial=True), tuple(texts))
        for source, index, truth, texts in groups
    ]
    assert read_job(job(pairs)[4:]) == pairs


@given(st.lists(st.floats(0, 1), max_size=8))
def test_an_answer_is_read_as_it_was_written(rewards: list[float]) -> None:
    assert read_answer(answer(tuple(rewards))[4:], len(rewards)) == tuple(rewards)


# ── the round ─────────────────────────────────────────────────────────────────────────────────────────


class Doomed:
    """Stands where a verifier does and fails at what says so."""

    def verify(self, pairs: Sequence[Pair]) -> list[Verdict]:
        verdicts = Uncaged().verify(pairs)
        return [
            Failure.TIMED_OUT if "hang" in texts[0] else verdict
            for (_, texts), verdict in zip(pairs, verdicts, strict=True)
        ]

    def close(self) -> None: ...


def hanging(author: str, round_number: int) -> Group:
    source = Arithmetic()
    rollouts = (Rollout("hang", True, 3, -1.0), Rollout("<answer>1</answer>", True, 3, -1.0))
    return Group(Author(author), round_number, source.name, source.digest, 7, rollouts)


def test_a_group_that_breaks_its_judge_is_counted_under_its_author() -> None:
    hub = MemoryHub()
    node, stranger = make_node("n0", hub, verifier=Doomed()), hub.join(Author("stranger"))
    stranger.publish(hanging("stranger", 1))
    node.round()
    [sampled] = [entry.event for entry in node.journal.entries if isinstance(entry.event, Sampled)]
    assert sampled.refused_of == {"stranger": {CAGE: 1}}
    assert sampled.foreign == 0


def test_own_groups_that_break_the_judge_earn_nothing_and_the_round_goes_on() -> None:
    node = make_node("n0", MemoryHub(), verifier=Doomed(), policy=ScriptedPolicy(lambda _: "hang", 1.0))
    node.round()
    [verified] = [entry.event for entry in node.journal.entries if isinstance(entry.event, Verified)]
    assert (verified.reward, verified.informative) == (0.0, 0)


def test_no_round_is_held_up_by_hostile_groups(
    misjudging: Cage, record_property: Callable[[str, object], None]
) -> None:
    """Fifty groups that never end: the round goes on after the limit, and so do the next ones."""
    hub = MemoryHub()
    node, stranger = make_node("n0", hub, verifier=misjudging), hub.join(Author("stranger"))
    node._stopwatch = time.monotonic  # pyright: ignore[reportPrivateUsage]
    task = Arithmetic().task(7)
    slowest_s = 0.0
    for number in (1, 2):
        for k in range(50):
            rollouts = (Rollout("<answer>loop</answer>", True, k + 1, -1.0),) * 2
            stranger.publish(Group(Author("stranger"), number, task.source, Arithmetic().digest, 7, rollouts))
        start = time.monotonic()
        node.round()
        slowest_s = max(slowest_s, time.monotonic() - start)
    record_property("slowest round with fifty groups that never end, s", round(slowest_s, 2))
    assert slowest_s < 2.0


def test_all_rules_are_known_to_the_workers(cage: Cage) -> None:
    tasks = [Task(SourceName("test"), 0, "?", rule, "1") for rule in RULES]
    assert not any(isinstance(verdict, Failure) for verdict in cage.verify([(task, ["x"]) for task in tasks]))
