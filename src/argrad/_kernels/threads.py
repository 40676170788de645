"""Run a row kernel on `torch.get_num_threads()` threads.

Where torch is not loaded, on `OMP_NUM_THREADS`, or all cores that the process may use.

Numba's own thread pools abort after `fork` (OpenMP) or when two threads enter (workqueue), and
ignore `torch.set_num_threads`. The kernels release the GIL, so a plain thread pool serves; it is made
on first use and forgotten in a forked child.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# Handing rows to another thread costs about 30 us; below this many numbers it does not pay.
MIN_WORK_PER_THREAD = 65_536

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    global _pool  # the pool is this module's one piece of state
    _pool = None


os.register_at_fork(after_in_child=_forget_pool)


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="argrad")
    return _pool


def _threads() -> int:
    torch = sys.modules.get("torch")  # a process that only streams does without it
    if hasattr(torch, "get_num_threads"):
        return torch.get_num_threads()  # type: ignore[union-attr]
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() else _cores()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_rows(kernel: Callable[..., int], rows: int, work: int, *args: object) -> int:
    """Call `kernel(start, stop, *args)` over `range(rows)`; the results (status bits) are or-ed.

    Args:
        kernel: a nogil function that handles rows `start` to `stop` and touches no others.
        rows: number of independent rows.
        work: numbers touched in all, which decides how many threads are worth waking.
        args: handed to the kernel.
    """
    threads = min(_threads(), rows, work // MIN_WORK_PER_THREAD)
    if threads <= 1:
        return kernel(0, rows, *args)
    cuts = [rows * i // threads for i in range(threads + 1)]
    pool = _get_pool()
    others = [pool.submit(kernel, a, b, *args) for a, b in itertools.pairwise(cuts[1:])]
    status = kernel(cuts[0], cuts[1], *args)
    for other in others:
        status |= other.result()
    return status
