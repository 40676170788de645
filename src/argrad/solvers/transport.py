r"""The problem behind every relaxed matching, as one differentiable function.

$$ P^\star(w) = \arg\max_{P \ge 0}\ \langle w, P\rangle - \Omega(P) \quad\text{s.t.}\quad
   P 1 = r \text{ (or } \le r), \quad P^\top 1 = c \text{ (or } \le c) $$

`_kernels/transport.py` has the algorithm and `_transport_torch.py` its twin for other devices. Here are
the torch face (a custom operator, opaque to `torch.compile`, with a `vmap` rule), the implicit
derivative, and what is said when the tolerance is not met.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from argrad._checks import bad_values, check_count, check_event, check_floating, fail
from argrad._errors import ConvergenceError, ConvergenceWarning, InputError
from argrad._numerics import widen
from argrad._types import Float, Int
from argrad.solvers.tangent import potentials, tangent


class Transport(NamedTuple):
    """A solution, and how good it is."""

    plan: Float[Tensor, "*batch n m"]  # P, differentiable in scores and marginals
    row_potentials: Float[Tensor, "*batch n"]  # alpha
    column_potentials: Float[Tensor, "*batch m"]  # beta
    residual: Float[Tensor, "*batch"]  # largest error of a row or column sum
    iterations: Int[Tensor, "*batch"]


def transport(
    call: str,
    scores: Float[Tensor, "*batch n m"],
    row_marginals: Float[Tensor, "*batch n"],
    column_marginals: Float[Tensor, "*batch m"],
    *,
    rows_at_most: bool = False,
    columns_at_most: bool = False,
    euclidean: bool = False,
    tolerance: float | None = None,
    max_iterations: int = 500,
    on_failure: str = "warn",
) -> Transport:
    r"""Solve the problem above; $\Omega = \sum P \log P$, or $\tfrac12 \|P\|^2$ if `euclidean`.

    The derivative is implicit: its time and memory do not depend on the iterations.

    Args:
        call: the name of the public function, for messages.
        scores: $w$; -inf forbids a pair.
        row_marginals: $r \ge 0$.
        column_marginals: $c \ge 0$.
        rows_at_most: row sums may fall below $r$.
        columns_at_most: column sums may fall below $c$.
        euclidean: the regulariser.
        tolerance: largest error of a row or column sum; None means 1e-10 in float64, else 1e-6.
        max_iterations: of the dual method; usually 10 to 50 are needed.
        on_failure: `"warn"`, `"raise"` or `"ignore"`, when the tolerance is not met.

    Returns:
        A `Transport`; `plan` has the dtype of `scores`. $P = (w - \alpha - \beta)_+$ if `euclidean`, else
        $\exp(w - \alpha - \beta)$ with equal sums and $\exp(w - 1 - \alpha - \beta)$ with inequalities,
        whose multipliers are not negative.
    """
    if tolerance is None:
        tolerance = 1e-10 if scores.dtype == torch.float64 else 1e-6
    check_options(call, tolerance, max_iterations, on_failure)
    w = widen(scores)
    batch = scores.shape[:-2]
    rows = row_marginals.to(w.dtype).expand(*batch, scores.shape[-2])
    columns = column_marginals.to(w.dtype).expand(*batch, scores.shape[-1])
    found = _Transport.apply(
        w, rows, columns, rows_at_most, columns_at_most, euclidean,
        float(tolerance), max_iterations, on_failure, call,
    )  # fmt: skip
    return Transport(found[0].to(scores.dtype), *found[1:])


def check_matrix(call: str, scores: object) -> None:
    """A floating tensor of at least two dimensions, not empty in the last two."""
    check_floating(call, "scores", scores)
    assert isinstance(scores, Tensor)
    check_event(call, "scores", scores, 2)


def check_options(call: str, tolerance: float, max_iterations: int, on_failure: str) -> None:
    """The solver's own options."""
    if not 0 < tolerance < math.inf:
        raise fail(call, "tolerance", "must be positive", tolerance, "1e-6 suits float32.")
    check_count(call, "max_iterations", max_iterations, 1, None, "10 to 50 are usually needed.")
    if on_failure not in ("warn", "raise", "ignore"):
        rule = 'must be "warn", "raise" or "ignore"'
        raise fail(call, "on_failure", rule, on_failure, "It says what happens short of the tolerance.")


# ---- derivative ----------------------------------------------------------------------------------


class _Transport(torch.autograd.Function):
    """The operator below with its implicit derivative (`tangent.py`)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return _solve(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        plan, alpha, beta, residual, iterations = output
        ctx.mark_non_differentiable(alpha, beta, residual, iterations)
        ctx.save_for_backward(plan, alpha, beta)
        ctx.save_for_forward(plan, alpha, beta)
        ctx.flags = inputs[3:6]

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        weights, free = _weights(ctx)
        of_rows = of_columns = None
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            mass = weights.double() * grad.double()
            pair = potentials(weights.double(), mass.sum(-1), mass.sum(-2), *free)
            of_rows, of_columns = (x.to(grad.dtype) for x in pair)
        return tangent(weights, grad, *free), of_rows, of_columns, *[None] * 7

    @staticmethod
    def jvp(ctx: Any, of_scores: Any, of_rows: Any, of_columns: Any, *_: Any) -> tuple[Any, ...]:
        weights, free = _weights(ctx)
        change = torch.zeros_like(weights)
        if of_scores is not None:
            change = change + tangent(weights, of_scores, *free)
        if of_rows is not None or of_columns is not None:
            r, c = (torch.zeros_like(weights.sum(d)) if t is None else t
                    for d, t in ((-1, of_rows), (-2, of_columns)))  # fmt: skip
            x, y = potentials(weights.double(), r.double(), c.double(), *free)
            change = change + weights * (x[..., :, None] + y[..., None, :]).to(weights.dtype)
        return change, None, None, None, None


def _weights(ctx: Any) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
    """The weights of the tangent map, and which multipliers are free (None: all)."""
    plan, alpha, beta = ctx.saved_tensors
    rows_at_most, columns_at_most, euclidean = ctx.flags
    weights = (plan.detach() > 0).to(plan.dtype) if euclidean else plan
    free_rows = (alpha > 0).double() if rows_at_most else None
    free_columns = (beta > 0).double() if columns_at_most else None
    return weights, (free_rows, free_columns)


# ---- operator ------------------------------------------------------------------------------------


@torch.library.custom_op("argrad::transport", mutates_args=())
def _solve(
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
        from argrad.solvers._transport_torch import solve

        return solve(w, r, c, rows_at_most, columns_at_most, euclidean, tolerance, limit)
    from argrad._kernels.threads import run_rows
    from argrad._kernels.transport import transport as kernel

    w = w.contiguous()
    plan, alpha, beta = torch.empty_like(w), torch.empty_like(r), torch.empty_like(c)
    residual = w.new_empty(len(w))
    iterations = torch.empty(len(w), dtype=torch.int64)
    arrays = (t.contiguous().numpy() for t in (w, r, c))
    results = (t.numpy() for t in (plan, alpha, beta, residual, iterations))
    options = (rows_at_most, columns_at_most, euclidean, tolerance, limit)
    run_rows(kernel, len(w), 64 * w.numel(), *arrays, *options, *results)
    return plan, alpha, beta, residual, iterations


@_solve.register_fake
def _(scores: Tensor, rows: Tensor, columns: Tensor, *_: Any) -> tuple[Tensor, ...]:
    batch = scores.shape[:-2]
    return (
        torch.empty_like(scores, memory_format=torch.contiguous_format),
        scores.new_empty(rows.shape),
        scores.new_empty(columns.shape),
        scores.new_empty(batch, dtype=torch.float64),
        scores.new_empty(batch, dtype=torch.int64),
    )


@_solve.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    moved = [
        x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)
        for x, d in zip(args[:3], in_dims[:3], strict=True)
    ]
    return _solve(*moved, *args[3:]), (0, 0, 0, 0, 0)


# ---- what is said when it fails ------------------------------------------------------------------


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
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, vstack

    w, r, c, rows_at_most, _ = (x.cpu() if isinstance(x, Tensor) else x for x in problem)
    for b in missed.nonzero()[:, 0].tolist():
        i, j = (w[b] > -math.inf).nonzero(as_tuple=True)
        if len(i) == 0:
            return False
        k, one = torch.arange(len(i)), torch.ones(len(i))
        by_row = coo_array((one, (i, k)), shape=(w.shape[1], len(i))).tocsr()
        by_column = coo_array((one, (j, k)), shape=(w.shape[2], len(i))).tocsr()
        if rows_at_most:
            found = linprog(-one, A_ub=vstack([by_row, by_column]), b_ub=torch.cat([r[b], c[b]]))
            feasible = -found.fun >= float(c[b].sum()) * (1 - 1e-9)
        else:
            equal = vstack([by_row, by_column])
            feasible = linprog(0 * one, A_eq=equal, b_eq=torch.cat([r[b], c[b]])).status != 2
        if not feasible:
            return False
    return True
