"""What starting up costs, each time in a fresh process.

Times are processor seconds of that process, not wall time: importing is work for one processor, and on a
busy machine the wall time of two processes differs by more than the goal (at load 11, one run had ours
0.7 s above `import torch` by the best times and 0.3 s below by the medians). Waiting for a disk is not seen.
"""

from __future__ import annotations

import importlib
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.line import Extra, Line, Step

CHOOSE = "import torch, argrad as ag; ag.gumbel_softmax"
HELP = [str(Path(sys.executable).with_name("argrad")), "--help"]


def _clock() -> float:
    """Processor seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
        unit="cpu s",
        clock=_clock,
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
        unit="cpu s",
        clock=_clock,
    ),
)
