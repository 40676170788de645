"""What starting up costs, each time in a fresh process."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.line import Extra, Line, Step

CHOOSE = "import torch, argrad as ag; ag.gumbel_softmax"
HELP = [str(Path(sys.executable).with_name("argrad")), "--help"]


def _process(*command: str, needs: str | None = None) -> Callable[[], Step]:
    def factory() -> Step:
        if needs is not None:
            importlib.import_module(needs)
        return lambda: subprocess.run(command, capture_output=True, text=True, check=True)

    return factory


def _succeed(ours: subprocess.CompletedProcess[str], peer: subprocess.CompletedProcess[str]) -> None:
    assert ours.returncode == 0 == peer.returncode
    assert not ours.stderr, ours.stderr


def _help_is_shown(
    ours: subprocess.CompletedProcess[str], peer: subprocess.CompletedProcess[str]
) -> None:
    _succeed(ours, peer)
    assert "usage" in ours.stdout.lower()


LINES = (
    Line(
        name="import argrad, gumbel_softmax found",
        ours=_process(sys.executable, "-c", CHOOSE),
        peer=_process(sys.executable, "-c", "import torch"),
        peer_name="import torch",
        package="torch",
        check=_succeed,
        goals={1: Extra(0.2)},
        threads=(1,),
        unit="s",
    ),
    Line(
        name="argrad --help",
        ours=_process(*HELP, needs="argrad.cli"),
        peer=_process(sys.executable, "-c", "pass"),
        peer_name="python -c pass",
        package=None,
        check=_help_is_shown,
        # Importing torch by accident costs a second or more, so this bound shows it.
        goals={1: Extra(0.2)},
        threads=(1,),
        unit="s",
    ),
)
