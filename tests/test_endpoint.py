"""Policy `endpoint`, against servers that answer well, late, badly or never; and against llama.cpp's."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli_run import entries, error_line, waggle
from waggledance.errors import MissingError, UsageError
from waggledance.events import Generated, Learned
from waggledance.policy.endpoint import EndpointPolicy
from waggledance.task import SourceName, Task

TASKS = [Task(SourceName("arithmetic"), k, f"{k} + 1?", "number", str(k + 1)) for k in range(3)]
Answer = Callable[[dict[str, Any], int], "tuple[int, bytes]"]


def chat(text: str, finish: str = "stop", logprobs: tuple[float, ...] = (-0.5, -1.5)) -> bytes:
    content = [{"token": "x", "logprob": value, "bytes": [1]} for value in logprobs]
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return json.dumps(
        {
            "id": "1",
            "choices": [{**choice, "logprobs": {"content": content} if logprobs else None}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        }
    ).encode()


class Stand:
    """An endpoint: `answer` gets each request and its number. Keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.together = self.most_together = 0
        lock, stand = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    stand.asked.append(request | {"path": self.path})
                    stand.keys.append(self.headers.get("Authorization"))
                    number = len(stand.asked)
                    stand.together += 1
                    stand.most_together = max(stand.most_together, stand.together)
                status, body = answer(request, number)
                with lock:
                    stand.together -= 1
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    return  # whoever asked did not wait

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its caller's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def stands() -> Iterator[Callable[[Answer], Stand]]:
    opened: list[Stand] = []

    def stand(answer: Answer) -> Stand:
        opened.append(Stand(answer))
        return opened[-1]

    yield stand
    for each in opened:
        each.close()


def at_once(_seconds: float) -> None:
    """No pause."""


def policy(address: str, **changes: Any) -> EndpointPolicy:
    settings: dict[str, Any] = {
        "model": "m",
        "system_prompt": "Be brief.",
        "temperature": 0.7,
        "max_tokens": 5,
        "at_once": 4,
        "timeout_s": 5.0,
        "retries": 2,
        "sleep": at_once,
    }
    return EndpointPolicy(address, **{**settings, **changes})


def test_every_completion_is_asked_for_and_stands_in_its_place(stands: Callable[[Answer], Stand]) -> None:
    stand = stands(lambda request, _number: (200, chat(request["messages"][-1]["content"])))
    groups = policy(stand.address, key="sk-1").generate(TASKS, 4, seed=7)
    assert [[rollout.text for rollout in group] for group in groups] == [
        [task.question] * 4 for task in TASKS
    ]
    rollout = groups[0][0]
    assert (rollout.finished, rollout.tokens, rollout.mean_logprob, rollout.token_ids) == (True, 2, -1.0, ())
    assert len({request["seed"] for request in stand.asked}) == 12
    request = stand.asked[0]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (request["path"], request["temperature"], request["max_tokens"]) == (
        "/v1/chat/completions",
        0.7,
        5,
    )
    assert set(stand.keys) == {"Bearer sk-1"}
    again = stands(lambda request, _number: (200, chat(str(request["seed"]))))
    assert policy(again.address).generate(TASKS, 2, 7) == policy(again.address).generate(TASKS, 2, 7)


def test_several_are_asked_at_once_and_no_more(stands: Callable[[Answer], Stand]) -> None:
    meet = threading.Barrier(4)

    def answer(_request: dict[str, Any], _number: int) -> tuple[int, bytes]:
        meet.wait(20)  # four are here together, or this breaks
        return 200, chat("x")

    stand = stands(answer)
    policy(stand.address, timeout_s=30).generate(TASKS[:2], 4, seed=1)
    assert stand.most_together == 4


@pytest.mark.parametrize(
    "first",
    [
        (503, b""),
        (429, b"slow down"),
        (200, b"<html>"),
        (200, b'{"choices":[]}'),
        (200, b"\xff\xfe"),
        (200, b""),
    ],
    ids=["503", "429", "html", "empty", "bytes", "nothing"],
)
def test_what_fails_for_a_moment_is_asked_again(
    first: tuple[int, bytes], stands: Callable[[Answer], Stand]
) -> None:
    stand = stands(lambda _request, number: first if number < 3 else (200, chat("yes", "length", ())))
    [[rollout]] = policy(stand.address).generate(TASKS[:1], 1, seed=1)
    assert (rollout.text, rollout.finished, rollout.mean_logprob) == ("yes", False, 0.0)
    assert len(stand.asked) == 3


@pytest.mark.parametrize(
    ("reply", "said", "times"),
    [
        ((500, b""), "gave no answer in 3 attempts: status 500; start it", 3),
        ((200, b"{}"), "gave no answer in 3 attempts: no chat completion but '{}'", 3),
        ((401, b"who are you?"), "refuses: status 401, 'who are you?'", 1),
        ((404, b""), "refuses: status 404", 1),
    ],
)
def test_what_goes_on_failing_is_one_line(
    reply: tuple[int, bytes], said: str, times: int, stands: Callable[[Answer], Stand]
) -> None:
    stand = stands(lambda _request, _number: reply)
    with pytest.raises(MissingError, match=r"^endpoint http://127[.]0") as caught:
        policy(stand.address, key="sk-1").generate(TASKS[:1], 1, seed=1)
    assert said in str(caught.value)
    assert "sk-1" not in str(caught.value)
    assert len(stand.asked) == times


def test_one_that_never_answers_costs_its_time_out_and_no_more(stands: Callable[[Answer], Stand]) -> None:
    over = threading.Event()

    def never(_request: dict[str, Any], _number: int) -> tuple[int, bytes]:
        over.wait(60)
        return 200, chat("late")

    stand, begun = stands(never), time.monotonic()
    with pytest.raises(MissingError, match=r"in 2 attempts: nothing within 0\.2 s; start it, or raise"):
        policy(stand.address, timeout_s=0.2, retries=1).generate(TASKS[:1], 1, seed=1)
    assert time.monotonic() - begun < 5
    over.set()


def test_nobody_there_is_one_line_with_its_exit_code(tmp_path: Path) -> None:
    command = (
        "up",
        "--policy.kind",
        "endpoint",
        "--learner.kind",
        "none",
        "--swarm.kind",
        "none",
        "--dir",
        "run",
    )
    nobody = ("--policy.endpoint", "http://127.0.0.1:9/v1", "--policy.retries", "0", "--tasks", "arithmetic")
    done = waggle(tmp_path, *command, *nobody)
    assert (done.returncode, done.stdout) == (3, "")
    assert error_line(done.stderr).startswith(
        "endpoint http://127.0.0.1:9/v1 gave no answer in 1 attempts: Conn"
    )


@pytest.mark.parametrize(
    "address", ["localhost:8080", "ftp://x/v1", "http://", "http://x:0/v1", "http://[x/v1", ""]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="write it like http://localhost:8080/v1"):
        policy(address).generate(TASKS[:1], 1, seed=1)


def test_an_endpoint_is_a_member_like_any_other(tmp_path: Path, stands: Callable[[Answer], Stand]) -> None:
    """Its answers are verified here: it says what it likes."""

    def answer(request: dict[str, Any], number: int) -> tuple[int, bytes]:
        return 200, chat("<answer>0</answer>" if number % 2 else "<answer>1</answer>")

    stand = stands(answer)
    command = (
        "up",
        "--policy.kind",
        "endpoint",
        "--learner.kind",
        "none",
        "--swarm.kind",
        "none",
        "--dir",
        "run",
    )
    done = waggle(
        tmp_path,
        *command,
        "--policy.endpoint",
        stand.address,
        "--tasks",
        "arithmetic",
        "--rounds",
        "2",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    journal = entries(tmp_path / "run" / "journal.jsonl")
    generated = [entry.event for entry in journal if isinstance(entry.event, Generated)]
    assert [event.tokens for event in generated] == [2 * event.rollouts for event in generated]
    assert sum(isinstance(entry.event, Learned) for entry in journal) == 2


def _smollm2_file(folder: Path) -> Path:
    from waggledance import smollm2  # with torch: only where it is wanted

    try:
        return smollm2._fetched(folder)  # pyright: ignore[reportPrivateUsage]
    except MissingError as error:
        pytest.skip(str(error))


LLAMA = """
import sys, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path = sys.argv[1]
settings.n_ctx, settings.n_parallel, settings.port, settings.cpuparams.n_threads = 2048, 2, 0, 2
server = xllamacpp.Server(settings)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_llama_cpp_answers(tmp_path: Path) -> None:
    """The server that a wheel carries, with SmolLM2's file, or another named in WAGGLE_TEST_GGUF."""
    pytest.importorskip("xllamacpp", reason="no wheel of xllamacpp for this machine")
    file = os.environ.get("WAGGLE_TEST_GGUF") or str(_smollm2_file(tmp_path))
    command = [sys.executable, "-c", LLAMA, file]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = next(line.strip() for line in server.stdout if line.startswith("http"))
            groups = policy(f"{address}/v1", timeout_s=300, max_tokens=12).generate(TASKS[:2], 2, seed=3)
        finally:
            server.kill()
    rollouts = [rollout for group in groups for rollout in group]
    assert all(rollout.text and 1 <= rollout.tokens <= 12 for rollout in rollouts)
    assert all(-20 < rollout.mean_logprob < 0 for rollout in rollouts)
