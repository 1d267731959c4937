"""The reference round, ours beside TRL's and gensyn-genrl's: the same model, prompts, tokens and threads.

Builds an environment for each of the others in the user's cache, then lets the programs take turns: each turn
is a process of its own that warms up on one short question and plays a round. One JSON object a line per
program on standard output, progress and a table on standard error. Run: `make bench-peers`.
"""

# pyright: standard

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from turn import COMPLETIONS, QUESTIONS, TOKENS

from waggledance.bench.round import reference_tasks
from waggledance.model import SYSTEM_PROMPT

HERE = Path(__file__).resolve().parent
OURS = "waggledance"
PEERS = {"trl": "trl==1.16.0", "genrl": "gensyn-genrl==0.3.0"}
SCRIPTS = {OURS: "ours_round.py", "trl": "trl_round.py", "genrl": "genrl_round.py"}
BUILD_LIMIT_S, TURN_LIMIT_S = 1800, 1800


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", nargs="+", choices=SCRIPTS, default=list(SCRIPTS))
    parser.add_argument(
        "--model", default="smollm2", help="as policy.model takes it: smollm2, tiny, a folder"
    )
    parser.add_argument("--turns", type=int, default=3, help="of each program; the median is told")
    parser.add_argument("--rounds", type=int, default=1, help="timed in a turn")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    pythons = {name: python_of(name) for name in asked.programs}
    with TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.json"
        prompts.write_text(json.dumps(chats()))
        words = ["--model", str(folder_of(asked.model)), "--prompts", str(prompts)]
        words += ["--rounds", str(asked.rounds), "--threads", str(asked.threads)]
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in asked.programs}
        for turn in range(asked.turns):
            for name, python in pythons.items():
                told = play([python, HERE / SCRIPTS[name], *words], asked.threads)
                found[name].append(told)
                say(f"turn {turn + 1}: {name} {told['seconds']} s, {told['peak_gb']} GB")
    results = [summary(turns) for turns in found.values()]
    same = {(one["prompt_tokens"], one["completion_tokens"]) for one in results}
    if len(same) > 1:
        sys.exit(f"the programs did not do the same work: prompt and completion tokens {sorted(same)}")
    for result in results:
        print(json.dumps(result))
    say(table(results, asked))


def chats() -> list[list[dict[str, str]]]:
    """The questions of `waggle bench round`."""
    return [
        [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": task.question}]
        for task in reference_tasks()
    ]


def folder_of(model: str) -> Path:
    """The model's files, so that all programs read the same ones."""
    from waggledance.model import TINY, TINY_FOLDER
    from waggledance.smollm2 import SMOLLM2, smollm2_folder

    return {TINY: TINY_FOLDER}.get(model) or (smollm2_folder() if model == SMOLLM2 else Path(model))


def python_of(program: str) -> str:
    """The interpreter that has the program, in an environment that is built when it is first wanted."""
    if program == OURS:
        return sys.executable
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "waggledance" / "bench"
    folder, wanted = cache / program, requirements(program)
    python, made = folder / "bin" / "python", folder / "made.txt"
    if not made.exists() or made.read_text() != wanted:
        say(f"building {folder} with {wanted} …")
        build([sys.executable, "-m", "venv", "--clear", str(folder)])
        build([str(python), "-m", "pip", "install", "--quiet", *wanted.split()])
        made.write_text(wanted)
    return str(python)


def requirements(program: str) -> str:
    """The peer, over the very torch and transformers that ours runs on."""
    below = [f"{name}=={version(name).partition('+')[0]}" for name in ("torch", "transformers")]
    return " ".join([*below, PEERS[program]])


def build(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")


def play(command: list[Any], threads: int) -> dict[str, Any]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=TURN_LIMIT_S,
        check=False,
        env=environment,
    )
    if done.returncode:
        sys.exit(f"{command[1]} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = [turn["seconds"] for turn in turns]
    return {
        **turns[0],
        "seconds": statistics.median(seconds),
        "cpu_s": statistics.median(turn["cpu_s"] for turn in turns),
        "lowest": min(seconds),
        "highest": max(seconds),
        "peak_gb": max(turn["peak_gb"] for turn in turns),
        "turns": len(turns),
    }


def table(results: list[dict[str, Any]], asked: argparse.Namespace) -> str:
    ours = next((one for one in results if one["program"] == OURS), None)
    lines = [
        f"{QUESTIONS} questions ({results[0]['prompt_tokens']} tokens) × {COMPLETIONS} completions "
        f"of {TOKENS} tokens, then one update; {asked.model}, float32, {asked.threads} threads, "
        f"medians of {asked.turns} turns; {platform.machine()}, Python {platform.python_version()}",
        "",
        "| program | seconds | lowest, highest | CPU seconds | peak memory | times ours |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        times = f"{one['seconds'] / ours['seconds']:.2f}" if ours else "–"
        versions = ", ".join(f"{name} {number}" for name, number in one["versions"].items())
        lines.append(
            f"| {one['program']} ({versions}) | {one['seconds']:.1f} "
            f"| {one['lowest']:.1f}, {one['highest']:.1f} | {one['cpu_s']:.1f} "
            f"| {one['peak_gb']:.2f} GB | {times} |"
        )
    return "\n".join(lines)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
