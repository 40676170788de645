"""`python -m argrad` is the `argrad` command."""

import sys

from argrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
