"""`waggle bench round`: what a round with a real model costs, beside what its arithmetic must take."""

import argparse
import os
import sys
from typing import Any

from waggledance.cli.verb import add_verb
from waggledance.errors import UsageError

DESCRIPTION = """Times the reference round: eight of the paper's questions, eight completions each of exactly
32 tokens, one GRPO step over all 64. The floor is the round's multiplications, every prompt computed once, at
the rate of a large float32 matrix product, measured in the same run. Progress goes to standard error."""
EXAMPLE = """example:
  waggle bench round
  waggle bench round --model tiny --threads 1 --json
  waggle bench round --curve        # the same over prompts of 50 to 1,000 tokens"""


def add_parser(kinds: Any) -> None:
    parser = add_verb(
        kinds,
        "round",
        "what a round costs, beside its floor",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("--model", default="smollm2", help="as policy.model takes it (default: smollm2)")
    parser.add_argument("--threads", type=int, metavar="N", help="of torch (default: all cores)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds timed (default: 3)")
    parser.add_argument(
        "--memory-mb", type=int, default=None, metavar="M", help="as learner.memory_mb takes it"
    )
    parser.add_argument("--recompute", action="store_true", help="as learner.recompute")
    parser.add_argument("--curve", action="store_true", help="over prompts of 50 to 1,000 tokens, too")


def run(options: argparse.Namespace) -> int:
    threads = len(os.sched_getaffinity(0)) if options.threads is None else options.threads
    if not 1 <= threads <= 1024:
        raise UsageError(f"--threads {threads}: take 1 to 1024")
    if not 1 <= options.repeats <= 1000:
        raise UsageError(f"--repeats {options.repeats}: take 1 to 1000")
    if options.memory_mb is not None and options.memory_mb < 1:
        raise UsageError(f"--memory-mb {options.memory_mb}: take 1 or more")
    import msgspec

    from waggledance.bench.round import Round, measure_round

    found: Round = measure_round(
        options.model,
        threads,
        options.repeats,
        _tell,
        memory_mb=options.memory_mb,
        recompute=options.recompute,
        curve=options.curve,
    )
    print(msgspec.json.encode(found).decode() if options.json else _words(found))
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _words(found: Any) -> str:
    lines = [
        f"{found.model}: {found.seconds:.2f} s a round ({found.generate_s:.2f} to generate, "
        f"{found.learn_s:.2f} to learn)",
        f"{found.times_floor:.2f} times the floor of {found.floor_s:.2f} s at {found.gflops:.0f} GFLOP/s; "
        f"{found.peak_gb:.2f} GB at the peak; {found.threads} threads",
    ]
    lines += [f"prompts of {point.prompt_tokens} tokens: {point.seconds:.2f} s" for point in found.curve]
    return "\n".join(lines)
