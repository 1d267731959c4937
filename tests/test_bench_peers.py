"""The comparison with other programs: its own side of it, run whole; the others' need their environments."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "benchmarks" / "peers" / "run.py"


def run(*words: str, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUN, *words], capture_output=True, text=True, timeout=seconds)


def test_an_unknown_program_is_refused() -> None:
    done = run("--programs", "nobody")
    assert done.returncode == 2
    assert "nobody" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_our_own_turns_end_in_one_line_and_a_table() -> None:
    done = run("--programs", "waggledance", "--model", "tiny", "--turns", "2", "--threads", "1")
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    told = json.loads(line)
    assert told["program"] == "waggledance"
    assert told["completion_tokens"] == 8 * 8 * 32
    assert told["turns"] == 2
    assert 0 < told["lowest"] <= told["seconds"] <= told["highest"]
    assert 0.1 < told["peak_gb"] < 4
    assert "| waggledance (torch" in done.stderr
    assert done.stderr.rstrip().endswith("| 1.00 |")
