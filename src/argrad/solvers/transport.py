r"""The problem behind every relaxed matching, as one differentiable function.

$$ P^\star(w) = \arg\max_{P \ge 0}\ \langle w, P\rangle - \Omega(P) \quad\text{s.t.}\quad
   P 1 = r \text{ (or } \le r), \quad P^\top 1 = c \text{ (or } \le c) $$

`_kernels/transport.py` has the algorithm, `_transport_torch.py` its twin for other devices, and
`_transport_operator.py` makes an operator of them. Here it gets its implicit derivative.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from argrad._checks import check_count, check_event, check_floating, fail
from argrad._numerics import widen
from argrad._types import Float, Int
from argrad.solvers._transport_operator import solve
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
    function = _Transport if torch.compiler.is_compiling() else _TransportBothModes
    found = function.apply(
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
    """The operator with its implicit derivative (`tangent.py`)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return solve(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        plan, alpha, beta, residual, iterations = output
        ctx.mark_non_differentiable(alpha, beta, residual, iterations)
        ctx.save_for_backward(plan, alpha, beta)
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


class _TransportBothModes(_Transport):
    """With forward mode as well, which `torch.compile` cannot trace."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _Transport.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*output[:3])

    @staticmethod
    def jvp(ctx: Any, of_scores: Any, of_rows: Any, of_columns: Any, *_: Any) -> Any:  # type: ignore[override]
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
