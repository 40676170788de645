r"""Permutation matrices from a score vector: relaxed rankings in closed form.

Row $i$ of each matrix says which item is the $i$-th largest, so `P @ x` lists items in falling order.
Items of score -inf are out: they come last, in rows of their own that share their places equally, and
the other rows are what they would be without them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._checks import check_event, check_floating, check_no_overflow, check_scores, check_tau
from argrad._numerics import widen
from argrad._types import Float, Tau


def sort_permutation(scores: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n n"]:
    r"""The permutation matrix that sorts in falling order.

    $$ P_{ij} = [\,\text{item } j \text{ is the } i\text{-th largest}\,] \tag{1} $$
    Among equal scores the earlier item comes first. No gradient.

    Args:
        scores: $s$, shape `(*batch, n)`.

    Returns:
        A 0/1 matrix a batch item, in the dtype of `scores`.

    Examples:
        >>> import torch
        >>> s = torch.tensor([1.0, 3.0, 2.0])
        >>> sort_permutation(s) @ s
        tensor([3., 2., 1.])
    """
    _check("sort_permutation", scores)
    order = scores.detach().argsort(dim=-1, descending=True, stable=True)
    return torch.nn.functional.one_hot(order, scores.shape[-1]).to(scores.dtype)


def softsort(scores: Float[Tensor, "*batch n"], tau: Tau = 1.0) -> Float[Tensor, "*batch n n"]:
    r"""SoftSort: each row a softmax of the distances to the $i$-th largest score.

    $$ P_{ij} = \frac{\exp(-|s_{[i]} - s_j| / \tau)}{\sum_k \exp(-|s_{[i]} - s_k| / \tau)} \tag{2} $$
    $s_{[i]}$ is the $i$-th largest score. Rows sum to 1, columns in general do not; the row maxima are at
    the true order for every $\tau$.

    Args:
        scores: $s$, shape `(*batch, n)`; -inf removes an item.
        tau: temperature; `sort_permutation` as $\tau \to 0$.

    Returns:
        A row-stochastic matrix a batch item.

    Examples:
        >>> import torch
        >>> softsort(torch.tensor([1.0, 3.0, 2.0]), tau=0.1).round(decimals=2)
        tensor([[0., 1., 0.],
                [0., 0., 1.],
                [1., 0., 0.]])

    References: [prillo2020].
    """
    _check("softsort", scores)
    s, out = _split(widen(scores))
    tau = _over_matrices(check_tau("softsort", tau, scores.shape[:-1]))
    ordered = _sorted(s, out)
    distance = (ordered[..., :, None] - s[..., None, :]).abs()
    return _softmax_rows(-distance, out, tau).to(scores.dtype)


def neuralsort(scores: Float[Tensor, "*batch n"], tau: Tau = 1.0) -> Float[Tensor, "*batch n n"]:
    r"""NeuralSort: each row a softmax whose maximum is at the $i$-th largest score.

    $$ P_{i\cdot} = \mathrm{softmax}\big(((n + 1 - 2i)\, s - A_s 1) / \tau\big), \quad
       (A_s)_{jk} = |s_j - s_k| \tag{3} $$
    Rows sum to 1, columns in general do not. It never sorts: smooth wherever the scores differ.

    Args:
        scores: $s$, shape `(*batch, n)`; -inf removes an item ($n$ counts the others).
        tau: temperature; `sort_permutation` as $\tau \to 0$.

    Returns:
        A row-stochastic matrix a batch item.

    Examples:
        >>> import torch
        >>> neuralsort(torch.tensor([1.0, 3.0, 2.0]), tau=0.1).round(decimals=2)
        tensor([[0., 1., 0.],
                [0., 0., 1.],
                [1., 0., 0.]])

    References: [grover2019].
    """
    _check("neuralsort", scores)
    s, out = _split(widen(scores))
    tau = _over_matrices(check_tau("neuralsort", tau, scores.shape[:-1]))
    gaps = (s[..., :, None] - s[..., None, :]).abs().masked_fill(out[..., None, :], 0.0)
    place = torch.arange(1, s.shape[-1] + 1, device=s.device, dtype=s.dtype)
    count = (~out).sum(-1, keepdim=True).to(s.dtype)
    factor = count + 1 - 2 * place
    values = factor[..., :, None] * s[..., None, :] - gaps.sum(-1)[..., None, :]
    soft = _softmax_rows(values, out, tau)
    check_no_overflow("neuralsort", "scores", scores, soft)
    return soft.to(scores.dtype)


def _check(call: str, scores: object) -> None:
    check_floating(call, "scores", scores)
    assert isinstance(scores, Tensor)
    check_event(call, "scores", scores)
    check_scores(call, "scores", scores)


def _over_matrices(tau: float | Tensor) -> float | Tensor:
    """Ready to broadcast against `(*batch, n, n)` instead of `(*batch, n)`."""
    return tau[..., None] if isinstance(tau, Tensor) and tau.dim() else tau


def _split(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores with 0 in place of -inf (so that no gradient is NaN), and where that was."""
    out = scores == -math.inf
    return scores.masked_fill(out, 0.0), out


def _sorted(s: Tensor, out: Tensor) -> Tensor:
    """The scores in falling order, those that are out last."""
    order = s.detach().masked_fill(out, -math.inf).argsort(dim=-1, descending=True, stable=True)
    return s.gather(-1, order)


def _softmax_rows(values: Tensor, out: Tensor, tau: float | Tensor) -> Tensor:
    """Softmax of the first rows over the items that are in, of the rest over those that are out."""
    count = (~out).sum(-1, keepdim=True)
    last = torch.arange(out.shape[-1], device=out.device) >= count  # rows of the items that are out
    other = last[..., :, None] != out[..., None, :]
    values = torch.where(last[..., :, None], 0.0, values) / tau
    return values.masked_fill(other, -math.inf).softmax(-1)
