"""The flags of `argrad reproduce`, the same for all recipes, and those of one recipe."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from argrad.recipes import RECIPES, find

USAGE = "argrad reproduce NAME [--smoke | --full] [--seeds N] [--out DIR] [options of the recipe]"
DESCRIPTION = (
    "Run a published experiment: train the cells of its table, put ours beside the published numbers, write "
    "results.json and report.html. Stopped or killed, the same command goes on. Exit code 1 if a number leaves its "
    "stated band."
)


def main(argv: Sequence[str]) -> int:
    """Run `argrad reproduce ...`; returns the exit code."""
    if not argv or argv[0].startswith("-"):
        return _without_name(argv)
    recipe = find(argv[0])
    parser = argparse.ArgumentParser(
        prog=f"argrad reproduce {recipe.name}",
        description=f"{recipe.title}. {recipe.about}",
        allow_abbrev=False,
    )
    _add_shared(parser)
    from argrad.recipes.bench.options import add_flags, changed
    from argrad.recipes.bench.reproduce import reproduce

    add_flags(parser.add_argument_group("options of this recipe (with their defaults)"), recipe.config)
    given = vars(parser.parse_args(argv[1:]))
    shared = {name: given.pop(name) for name in ("preset", "seeds", "out", "workers", "fresh", "quiet")}
    seeds = range(shared.pop("seeds"))
    config = changed(recipe.preset(shared["preset"]), given)
    try:
        summary = reproduce(recipe, config, seeds=seeds, **shared)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "Finished cells and the last checkpoints are kept; the same command goes on."
        ) from None
    return 0 if summary.passed else 1


def titles() -> dict[str, str]:
    """The first line of each recipe's module, without importing it."""
    found = {}
    for name, module in RECIPES.items():
        spec = importlib.util.find_spec(module)
        text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        found[name] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return found


def _without_name(argv: Sequence[str]) -> int:
    width = max(map(len, RECIPES)) + 2
    names = "\n".join(f"  {name:{width}}{title}" for name, title in sorted(titles().items()))
    parser = argparse.ArgumentParser(
        prog="argrad reproduce",
        usage=USAGE,
        description=DESCRIPTION,
        epilog=f"recipes:\n{names}\n\nargrad reproduce NAME --help shows the options of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="the names, one a line")
    args = parser.parse_args(argv)
    if args.list:
        sys.stdout.write(f"{names}\n")
    else:
        parser.print_help()
    return 0


def _add_shared(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--smoke",
        dest="preset",
        action="store_const",
        const="smoke",
        default="default",
        help="under a minute, data that comes with scikit-learn or is generated: does it run at all",
    )
    size.add_argument(
        "--full",
        dest="preset",
        action="store_const",
        const="full",
        help="the published protocol; hours, meant for a large machine",
    )
    parser.add_argument(
        "--seeds", type=_count, default=1, metavar="N", help="train each cell N times (1)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="results go to DIR/NAME (runs)"
    )
    parser.add_argument(
        "--workers", type=_count, metavar="N", help="cells at a time, one thread each (all cores)"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what these cells have done before")
    parser.add_argument("--quiet", action="store_true", help="print nothing")


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number; got {text!r}") from None
    if not 1 <= value <= 10_000:
        raise argparse.ArgumentTypeError(f"must be from 1 to 10000; got {text!r}")
    return value
