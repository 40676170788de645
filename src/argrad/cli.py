"""The command line: `argrad demo`, `play`, `reproduce`, `sweep`, `diagnose`, `list`, `cite`.

Help, list and cite never load torch; a command that needs it imports it when it runs. Whatever a user
can get wrong is answered by one sentence on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from argrad import __version__, _catalogue
from argrad._errors import ArgradError, InputError

_N = TypeVar("_N", int, float)
_DESCRIPTION = "Discrete and structured random choices, trained by gradient."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 done, 1 a number outside its band, 2 bad input, 130 interrupted)."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    code = 0
    try:
        code = _COMMANDS[args.command](args) or 0
        sys.stdout.flush()
    except ArgradError as error:
        print(f"argrad {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"\nargrad: stopped. {str(stop) or 'No file was written.'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


# ---- arguments -----------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="argrad", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"argrad {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_demo(commands)
    _add_play(commands)
    _add_reproduce(commands)
    _add_sweep(commands)
    _add_diagnose(commands)
    _add_list(commands)
    _add_cite(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction) -> None:
    text = (
        "Train a small categorical VAE on the 8x8 digits of scikit-learn, once with each way of getting a "
        "gradient through its discrete choices, and write one self-contained HTML report."
    )
    p = commands.add_parser("demo", help="train, compare, and write report.html", description=text)
    p.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="the report (report.html)"
    )
    p.add_argument("--seconds", type=_seconds, default=60.0, metavar="S", help="time to spend (60)")
    p.add_argument(
        "--steps",
        type=_steps,
        metavar="N",
        help="training steps instead of a time; the numbers then repeat exactly",
    )
    p.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="seed of data order and noise (0)"
    )
    p.add_argument("--quiet", action="store_true", help="print nothing")


def _add_play(commands: argparse._SubParsersAction) -> None:
    text = (
        "Open the playground in the browser: temperature on the simplex, the Gumbel-max race, gradient estimators, "
        "structures, stochastic beam search. Nobody but this machine can reach it, unless --host says so."
    )
    p = commands.add_parser("play", help="open the playground in the browser", description=text)
    p.add_argument("--port", type=_port, default=8765, metavar="N", help="0 takes a free one (8765)")
    p.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (127.0.0.1)"
    )
    p.add_argument("--no-browser", action="store_true", help="only say where it is")
    p.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write the page as one HTML file that works from disk, instead",
    )


def _add_reproduce(commands: argparse._SubParsersAction) -> None:
    # its flags depend on the recipe, so a parser of its own reads them
    p = commands.add_parser(
        "reproduce",
        help="run a published experiment, ours beside its numbers",
        add_help=False,
        prefix_chars="\0",
    )
    p.add_argument("words", nargs="*")


def _add_sweep(commands: argparse._SubParsersAction) -> None:
    p = commands.add_parser(
        "sweep",
        help="run an experiment over a grid of options, on this machine or on Ray",
        add_help=False,
        prefix_chars="\0",
    )
    p.add_argument("words", nargs="*")


def _add_diagnose(commands: argparse._SubParsersAction) -> None:
    text = (
        "Measure the bias, variance and time of gradient estimators on a small random problem, against the exact "
        "gradient. On your own cost: argrad.diagnose(f, q, estimators)."
    )
    p = commands.add_parser(
        "diagnose", help="bias and variance of gradient estimators", description=text
    )
    p.add_argument(
        "--structure",
        default="onehot",
        metavar="NAME",
        help="onehot, bits, subset, spanningtree, ... (onehot)",
    )
    p.add_argument("--n", type=_steps, default=5, metavar="N", help="items, nodes or places (5)")
    p.add_argument(
        "--k", type=_steps, default=2, metavar="K", help="subset size, or tags of a chain (2)"
    )
    p.add_argument(
        "--perturbed", action="store_true", help="perturb-and-argmax instead of the Gibbs law"
    )
    p.add_argument(
        "--cost", default="tanh", metavar="NAME", help="linear, quadratic, product or tanh (tanh)"
    )
    p.add_argument(
        "--estimators", default="all", metavar="A,B", help="class names, or all that work here (all)"
    )
    p.add_argument(
        "--replicates", type=_steps, default=5000, metavar="N", help="estimates of each (5000)"
    )
    p.add_argument("--race", action="store_true", help="also rank them by error at equal time")
    p.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of problem and noise (0)")
    p.add_argument("--json", action="store_true", help="as JSON")
    p.add_argument("--plot", type=Path, metavar="FILE", help="save a chart of bias against deviation")


def _add_list(commands: argparse._SubParsersAction) -> None:
    p = commands.add_parser(
        "list", help="what argrad offers", description="The public parts of argrad, by kind."
    )
    p.add_argument(
        "kind", nargs="?", metavar="KIND", help="only this kind, e.g. gumbel, noise, structures"
    )
    p.add_argument("--json", action="store_true", help="as JSON")


def _add_cite(commands: argparse._SubParsersAction) -> None:
    text = "BibTeX of everything that the named parts of argrad cite."
    p = commands.add_parser("cite", help="BibTeX of the papers behind a part", description=text)
    p.add_argument(
        "names", nargs="*", metavar="NAME", help="e.g. gumbel_softmax, schedules.Exponential, or a key"
    )
    p.add_argument("--all", action="store_true", help="the whole bibliography")


def _seconds(text: str) -> float:
    value = _number(float, text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds; got {text!r}")
    return value


def _steps(text: str) -> int:
    value = _number(int, text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {text!r}")
    return value


def _seed(text: str) -> int:
    value = _number(int, text)
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to 2**63 - 1; got {text!r}")
    return value


def _port(text: str) -> int:
    value = _number(int, text)
    if not 0 <= value < 2**16:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to 65535; got {text!r}")
    return value


def _number(kind: type[_N], text: str) -> _N:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number; got {text!r}") from None


# ---- commands ------------------------------------------------------------------------------------


def _demo(args: argparse.Namespace) -> None:
    from argrad.recipes.files import check_writable

    started = time.perf_counter()  # loading torch is part of the time
    out = check_writable("--out", args.out)  # before a minute of work, and before torch is loaded
    _require("sklearn", "scikit-learn")
    from argrad.recipes import demo

    config = demo.Config(seed=args.seed, seconds=args.seconds, steps=args.steps)
    demo.main(config, out, quiet=args.quiet, started=started)


def _play(args: argparse.Namespace) -> None:
    from argrad.recipes.files import check_writable

    if args.write is not None:
        out = check_writable("--write", args.write)
        from argrad.play import page

        out.write_text(page.build(measured=page.measure()), encoding="utf-8")
        print(f"{out}: open it in a browser; it needs neither a server nor the network.")
        return
    import webbrowser

    from argrad.play.server import Playground

    with Playground(args.host, args.port) as server:
        reach = "this machine only" if server.is_local else "whoever can reach this address"
        print(f"argrad playground: {server.address} ({reach}). Ctrl-C stops it.", flush=True)
        if not args.no_browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nargrad: the playground has stopped.")


def _diagnose(args: argparse.Namespace) -> None:
    from argrad.recipes.files import check_writable

    plot = None if args.plot is None else check_writable("--plot", args.plot)
    import torch

    import argrad as ag
    from argrad import _problems

    torch.manual_seed(args.seed)  # networks of control variates
    q = _problems.make_law(args.structure, args.n, args.k, perturbed=args.perturbed, seed=args.seed)
    cost = _problems.make_cost(args.cost, q, args.seed)
    chosen = _problems.make_estimators(args.estimators, q)
    options = {
        "replicates": max(args.replicates, 2),
        "generator": torch.Generator().manual_seed(args.seed),
    }
    outcome = ag.race(cost, q, chosen, **options) if args.race else None
    report = ag.diagnose(cost, q, chosen, **options) if outcome is None else outcome.report
    if plot is not None:
        report.plot().figure.savefig(plot)
    print(report.to_json() if args.json else report.table())
    if outcome is not None and not args.json:
        print(f"\n{outcome.table()}")


def _list(args: argparse.Namespace) -> None:
    chosen = _chosen_kinds(args.kind)
    rows = [part for kind in chosen for part in _catalogue.parts().values() if part.kind == kind]
    if args.json:
        print(json.dumps([asdict(part) for part in rows], indent=2))
        return
    width = max(len(part.name) for part in rows) + 2
    for i, kind in enumerate(chosen):
        print(("\n" if i else "") + _catalogue.title(kind))
        for part in rows:
            if part.kind == kind:
                print(_row(part, width))


def _cite(args: argparse.Namespace) -> None:
    from argrad.cite import bibliography, cite, references

    if args.all == bool(args.names):
        raise InputError("give names (`argrad cite gumbel_softmax`) or --all, one of the two.")
    if args.all:
        print("\n\n".join(bibliography().values()))
        return
    text = cite(*args.names)
    for name in args.names:
        if not references(name):
            print(f"% {name} cites nothing.")
    print(text, end="")


def _reproduce(args: argparse.Namespace) -> int:
    from argrad.recipes.commands import main

    return main(args.words)


def _sweep(args: argparse.Namespace) -> int:
    from argrad.recipes.commands import main_sweep

    return main_sweep(args.words)


_COMMANDS = {
    "reproduce": _reproduce,
    "sweep": _sweep,
    "demo": _demo,
    "play": _play,
    "diagnose": _diagnose,
    "list": _list,
    "cite": _cite,
}


# ---- shared parts --------------------------------------------------------------------------------


def _chosen_kinds(kind: str | None) -> list[str]:
    kinds = _catalogue.kinds()
    if kind is None:
        return kinds
    chosen = [k for k in kinds if k.startswith(kind.lower())]
    if not chosen:
        raise InputError(f"there is no kind {kind!r}; the kinds are {', '.join(kinds)}.")
    return chosen


def _row(part: _catalogue.Part, width: int) -> str:
    """Name, flags, summary and references; wrapped for a person, one line for a program."""
    text = f"({', '.join(part.flags)}) " if part.flags else ""
    text += part.summary + (f"  [{', '.join(part.references)}]" if part.references else "")
    name = f"  {part.name:{width}}"
    if not sys.stdout.isatty():
        return name + text
    columns = max(shutil.get_terminal_size((100, 24)).columns, width + 40)
    return textwrap.fill(text, columns, initial_indent=name, subsequent_indent=" " * len(name))


def _require(module: str, package: str) -> None:
    try:
        __import__(module)
    except ImportError:
        raise ArgradError(
            f'this needs {package}, which is not installed. Run: pip install "argrad[recipes]"'
        ) from None
