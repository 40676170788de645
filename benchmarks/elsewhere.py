"""A step that runs in a process of its own, so that what it imports changes nothing in ours.

    Elsewhere("benchmarks.lines.three_bits:storchastic", "loo")

makes a python process that calls the named function with the argument, keeps the step it returns, and runs and times it
when asked to. It talks by lines of JSON.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from typing import Any

import torch


class Elsewhere:
    """A step in another process, on as many torch threads as this one has now."""

    def __init__(self, function: str, argument: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.elsewhere", function, argument]
        self._process = subprocess.Popen(
            [*command, str(torch.get_num_threads())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        missing = self._read()
        if missing:
            raise ImportError(missing)

    def __call__(self) -> Any:
        """Run the step once; its result as a tensor."""
        return torch.tensor(self._ask(0))

    def seconds(self, loops: int) -> float:
        """Run the step `loops` times; the time it took there."""
        return self._ask(loops)

    def _ask(self, loops: int) -> Any:
        assert self._process.stdin is not None
        print(loops, file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the other process ended with code {self._process.wait()}")
        return json.loads(line)

    def __del__(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()  # it ends at the end of its input
        self._process.wait()


def main(function: str, argument: str, threads: str) -> None:
    """The other side."""
    torch.set_num_threads(int(threads))
    out, sys.stdout = sys.stdout, sys.stderr  # what the peer prints is not an answer
    module, name = function.split(":")
    try:
        step = getattr(importlib.import_module(module), name)(argument)
    except ImportError as error:
        print(json.dumps(str(error)), file=out, flush=True)
        return
    print(json.dumps(""), file=out, flush=True)
    for line in sys.stdin:
        loops = int(line)
        start = time.perf_counter()
        for _ in range(loops):
            step()
        answer = time.perf_counter() - start if loops else step().tolist()
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
