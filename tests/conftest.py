"""What all tests share: one thread, a fixed seed, and compiled kernels that are up to date."""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

KERNELS = Path(__file__).resolve().parents[1] / "src" / "argrad" / "_kernels"


def _kernels_that(path: Path) -> set[Path]:
    """`path` and every kernel file that it imports, directly or not."""
    found, todo = set(), [path]
    while todo:
        file = todo.pop()
        if file in found or not file.exists():
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("argrad._kernels."):
                todo.append(KERNELS / f"{str(node.module).rpartition('.')[2]}.py")
    return found


def remove_stale_kernels() -> None:
    """Numba's cache notices a change in a kernel's own file, but not in a file that it imports."""
    for path in KERNELS.glob("*.py"):
        newest = max(file.stat().st_mtime for file in _kernels_that(path))
        for index in (KERNELS / "__pycache__").glob(f"{path.stem}.*.nbi"):
            if index.stat().st_mtime < newest:
                index.unlink(missing_ok=True)


def pytest_configure(config: pytest.Config) -> None:
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # a shell's background job; its children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # once, before pytest-xdist starts its workers
        remove_stale_kernels()
    torch.set_num_threads(1)  # small tensors; tests of threads ask for more


@pytest.fixture(autouse=True)
def own_seed() -> Iterator[None]:
    """Each test starts from the same global generator, whatever ran before it."""
    torch.manual_seed(0)
    yield


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Forget compiled graphs, so that one test's recompilations do not count for the next."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def threads():
    """`with threads(4): ...`"""
    return _threads
