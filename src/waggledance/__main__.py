"""`python -m waggledance` is `waggle`."""

import sys

from waggledance.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
