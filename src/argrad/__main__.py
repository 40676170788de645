"""`python -m argrad` is the `argrad` command."""

import sys

from argrad.cli import main

sys.exit(main())
