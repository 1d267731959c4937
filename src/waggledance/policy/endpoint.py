"""Policy `endpoint`: whatever answers at an OpenAI-compatible address. It gives and does not learn here.

Tasks come in, rollouts go out, a request each, several at once. What fails for a moment is asked again; what
goes on failing is one clear error. It must not know rewards or peers, and what comes is strangers' text.
"""

import http.client
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import msgspec

from waggledance.errors import MissingError, UsageError
from waggledance.rollout import Rollout
from waggledance.seed import derive
from waggledance.task import Task

REPLY_LIMIT_BYTES = 8 << 20
CHUNK_BYTES = 1 << 16
PAUSE_S = 0.5
"""Before the first repetition; twice as long before each further one."""
MOMENTARY = {408, 409, 425, 429, 500, 502, 503, 504}
SEEDS = 2**31
UNKNOWN_LOGPROB = 0.0
"""Of an answer whose server tells none: as if it had been certain, so that nobody gives it more weight."""


class _Chance(msgspec.Struct, frozen=True):
    logprob: float


class _Chances(msgspec.Struct, frozen=True):
    content: tuple[_Chance, ...] | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Chances | None = None


class _Usage(msgspec.Struct, frozen=True):
    completion_tokens: int = 0


class _Reply(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]
    usage: _Usage = _Usage()


class _Momentary(Exception):  # noqa: N818 - not an error yet: it is asked again
    """Why this attempt came to nothing."""


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    address: str
    """Up to and with /v1."""
    model: str
    system_prompt: str
    temperature: float
    max_tokens: int
    at_once: int
    timeout_s: float
    """For a whole answer, however slowly it drips."""
    retries: int
    key: str = ""
    sleep: Callable[[float], None] = time.sleep

    def generate(self, tasks: Sequence[Task], completions: int, seed: int) -> list[tuple[Rollout, ...]]:
        asked = [
            (task, derive(seed, place, k)) for place, task in enumerate(tasks) for k in range(completions)
        ]
        with ThreadPoolExecutor(self.at_once) as pool:
            rollouts = list(pool.map(self._answer, *zip(*asked, strict=True))) if asked else []
        return [tuple(rollouts[k : k + completions]) for k in range(0, len(rollouts), completions)]

    def _answer(self, task: Task, seed: int) -> Rollout:
        why = ""
        for attempt in range(self.retries + 1):
            if attempt:
                self.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                return _rollout(self._asked(task, seed))
            except _Momentary as momentary:
                why = str(momentary)
        raise MissingError(
            f"endpoint {self.address} gave no answer in {self.retries + 1} attempts: {why}; "
            "start it, or raise policy.timeout_s or policy.retries"
        )

    def _asked(self, task: Task, seed: int) -> _Reply:
        status, body = self._exchanged(self._request(task, seed))
        if status in MOMENTARY:
            raise _Momentary(f"status {status}")
        if status != http.client.OK:
            raise MissingError(f"endpoint {self.address} refuses: status {status}, {_start(body)}")
        try:
            reply = msgspec.json.decode(body, type=_Reply)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _Momentary(f"no chat completion but {_start(body)} ({error})") from error
        if not reply.choices:
            raise _Momentary("no choices")
        return reply

    def _request(self, task: Task, seed: int) -> bytes:
        system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        return msgspec.json.encode(
            {
                "model": self.model,
                "messages": [*system, {"role": "user", "content": task.question}],
                "temperature": self.temperature,
                "max_tokens": self.max_tokens,
                "seed": seed % SEEDS,
                "logprobs": True,
            }
        )

    def _exchanged(self, request: bytes) -> tuple[int, bytes]:
        place = parsed(self.address)
        deadline = time.monotonic() + self.timeout_s
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        connection = _connection(place, self.timeout_s)
        try:
            connection.request("POST", f"{place.path.rstrip('/')}/chat/completions", request, headers)
            response = connection.getresponse()
            return response.status, _read(response, deadline)
        except TimeoutError as error:
            raise _Momentary(f"nothing within {self.timeout_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise _Momentary(f"{type(error).__name__}: {' '.join(str(error).split())[:100]}") from error
        finally:
            connection.close()


def parsed(address: str) -> SplitResult:
    try:
        place = urlsplit(address)
        sound = place.scheme in ("http", "https") and place.hostname and place.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise UsageError(f"policy.endpoint = {address!r}: write it like http://localhost:8080/v1")
    return urlsplit(address)


def _connection(place: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    return kind(place.hostname or "", place.port, timeout=timeout_s)


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    body = b""
    while part := response.read1(CHUNK_BYTES):
        body += part
        if len(body) > REPLY_LIMIT_BYTES:
            raise _Momentary(f"more than {REPLY_LIMIT_BYTES >> 20} MB")
        if time.monotonic() > deadline:
            raise TimeoutError
    return body


def _start(body: bytes) -> str:
    return repr(body[:80].decode("utf-8", "replace"))


def _rollout(reply: _Reply) -> Rollout:
    choice = reply.choices[0]
    chances = choice.logprobs.content if choice.logprobs and choice.logprobs.content else ()
    known = [min(0.0, chance.logprob) for chance in chances]
    return Rollout(
        text=choice.message.content or "",
        finished=choice.finish_reason == "stop",
        tokens=max(1, reply.usage.completion_tokens or len(known)),
        mean_logprob=sum(known) / len(known) if known else UNKNOWN_LOGPROB,
    )
