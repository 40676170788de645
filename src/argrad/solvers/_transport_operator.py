r"""The transport solver as a custom operator, and what is said when it fails.

Opaque to `torch.compile`, with a `vmap` rule; the compiled kernel on the CPU, its torch twin elsewhere. As
values can be read in here, NaN scores, impossible masks and missed tolerances are told even from
compiled code.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from argrad._checks import bad_values
from argrad._errors import ConvergenceError, ConvergenceWarning, InputError


@torch.library.custom_op("argrad::transport", mutates_args=())
def solve(
    scores: Tensor,
    rows: Tensor,
    columns: Tensor,
    rows_at_most: bool,
    columns_at_most: bool,
    euclidean: bool,
    tolerance: float,
    max_iterations: int,
    on_failure: str,
    call: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    n, m = scores.shape[-2:]
    batch = scores.shape[:-2]
    w = scores.detach().reshape(-1, n, m).double()
    if w.numel() and not w.amax() < math.inf:
        raise bad_values(call, "scores", scores)
    if (rows_at_most or columns_at_most) and not euclidean:
        w = w - 1.0  # the kernel's regulariser is P log P - P, which has no 1 in its derivative
    r, c = rows.detach().reshape(-1, n).double(), columns.detach().reshape(-1, m).double()
    if not (rows_at_most or columns_at_most):
        c = c * (r.sum(-1, keepdim=True) / c.sum(-1, keepdim=True))  # equal totals to the last bit
    w = w.masked_fill((r == 0)[:, :, None] | (c == 0)[:, None, :], -math.inf)
    problem = (w, r, c, rows_at_most, columns_at_most)
    if m > n:  # the kernel's linear systems have the size of its columns
        problem = (w.mT, c, r, columns_at_most, rows_at_most)
    plan, alpha, beta, residual, iterations = _run(problem, euclidean, tolerance, max_iterations)
    if m > n:
        plan, alpha, beta = plan.mT, beta, alpha
    if on_failure != "ignore" and not bool((residual <= tolerance).all()):
        _report(call, scores.reshape(-1, n, m), problem, residual, tolerance, iterations, on_failure)
    dtype = scores.dtype
    return (
        plan.to(dtype).reshape(scores.shape).contiguous(),
        alpha.to(dtype).reshape(*batch, n),
        beta.to(dtype).reshape(*batch, m),
        residual.reshape(batch),
        iterations.reshape(batch),
    )


def _run(problem: tuple[Any, ...], euclidean: bool, tolerance: float, limit: int) -> tuple[Tensor, ...]:
    """The compiled kernel on the CPU, its torch twin elsewhere."""
    w, r, c, rows_at_most, columns_at_most = problem
    if w.device.type != "cpu":
        from argrad.solvers._transport_torch import solve_batch

        return solve_batch(w, r, c, rows_at_most, columns_at_most, euclidean, tolerance, limit)
    from argrad._kernels.threads import run_rows
    from argrad._kernels.transport import transport as kernel

    w = w.contiguous()
    plan, alpha, beta = torch.empty_like(w), torch.empty_like(r), torch.empty_like(c)
    residual = w.new_empty(len(w))
    iterations = torch.empty(len(w), dtype=torch.int64, device="cpu")
    arrays = (t.contiguous().numpy() for t in (w, r, c))
    results = (t.numpy() for t in (plan, alpha, beta, residual, iterations))
    options = (rows_at_most, columns_at_most, euclidean, tolerance, limit)
    run_rows(kernel, len(w), 64 * w.numel(), *arrays, *options, *results)
    return plan, alpha, beta, residual, iterations


@solve.register_fake
def _(scores: Tensor, rows: Tensor, columns: Tensor, *_: Any) -> tuple[Tensor, ...]:
    batch = scores.shape[:-2]
    return (
        torch.empty_like(scores, memory_format=torch.contiguous_format),
        scores.new_empty(rows.shape),
        scores.new_empty(columns.shape),
        scores.new_empty(batch, dtype=torch.float64),
        scores.new_empty(batch, dtype=torch.int64),
    )


@solve.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    moved = [
        x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)
        for x, d in zip(args[:3], in_dims[:3], strict=True)
    ]
    return solve(*moved, *args[3:]), (0, 0, 0, 0, 0)


def _report(
    call: str,
    scores: Tensor,
    problem: tuple[Any, ...],
    residual: Tensor,
    tolerance: float,
    iterations: Tensor,
    on_failure: str,
) -> None:
    """An `InputError` if the forbidden pairs are the reason, else a warning or `ConvergenceError`."""
    missed = ~(residual <= tolerance)
    count, first = int(missed.sum()), int(missed.nonzero()[0])
    where = f"{count} of {len(scores)} matrices (first: {first})" if len(scores) > 1 else "the matrix"
    if bool((scores[missed] == -math.inf).any()) and not _is_feasible(problem, missed):
        raise InputError(
            f"`{call}(scores=...)` must leave a way to fill every row and column; the -inf pairs "
            f"(or `mask`) leave none in {where}. Allow more pairs, or let some stay unmatched."
        )
    finite = scores[missed][scores[missed] > -math.inf]
    message = (
        f"`{call}` stopped after {int(iterations[missed].max())} iterations with a row or column sum off "
        f"by {float(residual[missed].max()):.1e} (tolerance {tolerance:.1e}) in {where}, whose scores "
        f"range over {float(finite.max() - finite.min()):.3g}. Raise `max_iterations` or `tolerance`, or "
        "divide the scores by a larger tau."
    )
    if on_failure == "raise":
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=2)


def _is_feasible(problem: tuple[Any, ...], missed: Tensor) -> bool:
    """Whether some matrix has these sums on these pairs: a linear program, run only after a failure."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, vstack

    w, r, c = (x.cpu().numpy() for x in problem[:3])
    rows_at_most = problem[3]
    for b in missed.nonzero()[:, 0].tolist():
        i, j = (w[b] > -math.inf).nonzero()
        if len(i) == 0:
            return False
        k, one = np.arange(len(i)), np.ones(len(i))
        by_row = coo_array((one, (i, k)), shape=(w.shape[1], len(i))).tocsr()
        by_column = coo_array((one, (j, k)), shape=(w.shape[2], len(i))).tocsr()
        sums, limits = vstack([by_row, by_column]), np.concatenate([r[b], c[b]])
        if rows_at_most:
            most = -linprog(-one, A_ub=sums, b_ub=limits).fun
            feasible = most >= c[b].sum() * (1 - 1e-9)
        else:
            feasible = linprog(0 * one, A_eq=sums, b_eq=limits).status != 2
        if not feasible:
            return False
    return True
