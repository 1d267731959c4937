"""Coverage-guided fuzzing of every door (tests/doors.py): `make fuzz`. Ends after RUNS messages, or at once
with the message that got through.

    python tests/fuzz.py -runs=1000000 -max_len=2048        # libFuzzer's flags
"""

import random
import sys
import tempfile
from pathlib import Path

import atheris  # pyright: ignore

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

with atheris.instrument_imports(include=["waggledance", "doors"]):  # pyright: ignore
    import doors


def main() -> None:
    with tempfile.TemporaryDirectory() as corpus:
        for number, message in enumerate(doors.seeds(random.Random(1))):
            (Path(corpus) / f"{number:03}").write_bytes(message)
        atheris.Setup([*sys.argv, corpus], doors.feed)  # pyright: ignore
        atheris.Fuzz()  # pyright: ignore


if __name__ == "__main__":
    main()
