"""The flags of `argrad reproduce`, the same for all recipes, and those of one recipe.

Not in `bench`, which loads torch: the list and the help are quick.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from argrad.recipes import RECIPES, find

USAGE = "argrad reproduce NAME [--smoke | --full] [--seeds N] [--out DIR] [options of the recipe]"
DESCRIPTION = (
    "Run a published experiment: train the cells of its table, put ours beside the published numbers, write "
    "results.json and report.html. Stopped or killed, the same command goes on. Exit code 1 if a number leaves its "
    "stated band. NAME may also be a Python file of your own with a RECIPE."
)


def main(argv: Sequence[str]) -> int:
    """Run `argrad reproduce ...`; returns the exit code."""
    name = _name_among(argv)
    if name is None:
        return _without_name(argv)
    recipe = find(name)
    at = argv.index(name)
    rest = [*argv[:at], *argv[at + 1 :]]
    from argrad.recipes.bench.options import add_flags, changed
    from argrad.recipes.bench.reproduce import reproduce

    parser = argparse.ArgumentParser(
        prog=f"argrad reproduce {name}",
        usage=f"argrad reproduce {name} [--smoke | --full] [options]",
        description=f"{recipe.title}. {recipe.about}",
        allow_abbrev=False,
    )
    _add_shared(parser)
    add_flags(parser.add_argument_group("options of this recipe (with their defaults)"), recipe.config)
    given = vars(parser.parse_args(rest))
    shared = {name: given.pop(name) for name in ("preset", "out", "workers", "fresh", "quiet")}
    first = given.pop("first_seed")
    seeds = range(first, first + given.pop("seeds"))
    config = changed(recipe.preset(shared["preset"]), given)
    try:
        summary = reproduce(recipe, config, seeds=seeds, **shared)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "Finished cells and the last checkpoints are kept; the same command goes on."
        ) from None
    return 0 if summary.passed else 1


SWEEP = (
    "argrad sweep NAME [--OPTION A,B,...] [--seeds N] [--ray auto|local] [--smoke | --full] [--out DIR]"
)


def main_sweep(argv: Sequence[str]) -> int:
    """Run `argrad sweep ...`; returns the exit code."""
    name = _name_among(argv)
    parser = argparse.ArgumentParser(
        prog=f"argrad sweep {name or ''}".rstrip(),
        usage=SWEEP,
        allow_abbrev=False,
        description=(
            "Train a recipe for every combination of the given values of its options (commas between them) and every "
            "seed, in processes of this machine or as Ray tasks, and merge all into sweep.json and sweep.html with "
            "confidence intervals. Stopped or killed, the same command goes on; what is done is not run again."
        ),
    )
    _add_shared(parser)
    text = "run as Ray tasks: on the cluster that is there (auto), or on a Ray of this machine (local)"
    parser.add_argument("--ray", choices=("auto", "local"), help=text)
    if name is None:
        parser.parse_args(argv)
        parser.error(f"which recipe? There are {', '.join(RECIPES)}")
    recipe = find(name)
    from argrad.recipes.bench.options import add_grid_flags, split_grid
    from argrad.recipes.bench.sweep import sweep

    add_grid_flags(
        parser.add_argument_group("options of this recipe, one value or several"), recipe.config
    )
    at = argv.index(name)
    given = vars(parser.parse_args([*argv[:at], *argv[at + 1 :]]))
    first, count = given.pop("first_seed"), given.pop("seeds")
    if given.pop("fresh"):
        parser.error("--fresh would forget finished trials; choose another --out instead")
    shared = {key: given.pop(key) for key in ("preset", "out", "workers", "quiet", "ray")}
    fixed, grid = split_grid(recipe.config, given)
    from argrad.recipes.bench.options import changed

    command = shlex.join(["argrad", "sweep", *argv])
    base = changed(recipe.preset(shared["preset"]), fixed)
    sweep(recipe, base, grid, seeds=range(first, first + count), command=command, **shared)
    return 0


def titles() -> dict[str, str]:
    """The first line of each recipe's module, without importing it."""
    found = {}
    for name, module in RECIPES.items():
        spec = importlib.util.find_spec(module)
        text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        found[name] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return found


def _name_among(argv: Sequence[str]) -> str | None:
    """The first word, or a recipe's name behind flags; None if there are only flags."""
    if argv and not argv[0].startswith("-"):
        return argv[0]
    return next((word for word in argv if word in RECIPES), None)


def _without_name(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="argrad reproduce",
        usage=USAGE,
        description=textwrap.fill(DESCRIPTION, min(_columns(), 100)),
        epilog=f"recipes:\n{_listed()}\n\nargrad reproduce NAME --help shows the options of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--list", action="store_true", help="the names of the recipes, with their titles"
    )
    args, others = parser.parse_known_args(argv)
    if others:
        parser.error(
            f"which recipe? {' '.join(others)} needs a name before it, one of {', '.join(RECIPES)}"
        )
    if args.list:
        sys.stdout.write(f"{_listed()}\n")
    else:
        parser.print_help()
    return 0


def _listed() -> str:
    """A line a recipe for a program, wrapped for a person."""
    width = max(map(len, RECIPES)) + 4
    rows = []
    for name, title in sorted(titles().items()):
        start = f"  {name}".ljust(width)
        rows.append(
            textwrap.fill(title, _columns(), initial_indent=start, subsequent_indent=" " * width)
            if sys.stdout.isatty()
            else start + title
        )
    return "\n".join(rows)


def _columns() -> int:
    return max(shutil.get_terminal_size((100, 24)).columns, 60)


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
        "--first-seed", type=_seed, default=0, metavar="N", help="seed of the first of these (0)"
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
    return _whole(text, 1, 10_000)


def _seed(text: str) -> int:
    return _whole(text, 0, 1_000_000_000)  # streams are a million apart, and a generator takes 64 bits


def _whole(text: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number; got {text!r}") from None
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"must be from {low} to {high}; got {text!r}")
    return value
