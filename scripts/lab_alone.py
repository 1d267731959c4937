"""`waggle lab` where little more than torch and transformers is installed: a rented machine, say.

Needs msgspec and the tasks in a file (`waggle lab FILE --prepare OUT`), no Zenoh, no ReasoningGYM, no
matplotlib. At home `waggle lab FILE --dir FOLDER` then makes the table and the figure of what it brings:
PYTHONPATH=src python scripts/lab_alone.py FILE --prepared OUT --dir FOLDER --device cuda --jobs 8
"""

import argparse
import sys

from waggledance.cli import lab
from waggledance.errors import WaggleError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    lab.add_parser(parser.add_subparsers(dest="verb", required=True))
    options = parser.parse_args(["lab", *sys.argv[1:], "--no-report"])
    try:
        return lab.run(options)
    except WaggleError as error:
        print(f"waggle: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
