"""`python -m tests.fuzz --calls 1000000 --seed 0`: call everything with hostile input, in processes that may die.

Each call has a number; number and seed decide all of it, so a failure is repeated by the line that reports it. A call
that takes longer than `--timeout` (its process is then killed) is a hang, a process that dies is a crash.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.runner import fuzz


def main() -> int:
    """Exit code 0 if every call was answered."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a call may take")
    parser.add_argument("--traps", action="store_true", help="call what fails, to see that it is found")
    parser.add_argument("--json", type=Path, help="write the result there")
    args = parser.parse_args()
    options = {
        "first": args.first,
        "workers": args.workers,
        "timeout": args.timeout,
        "traps": args.traps,
    }

    def say(text: str) -> None:
        print(text, flush=True)

    result = fuzz(args.calls, args.seed, say=say, **options)
    if args.json:
        from argrad.recipes import machine

        args.json.write_text(json.dumps(result | {"machine": machine.facts()}, indent=1) + "\n")
    say(f"{result['calls']:,} calls in {result['seconds']:g} s: {result['verdicts']}")
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
