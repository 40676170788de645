r"""How well outlier scores (larger = stranger) tell known inputs from unknown ones.

Known inputs are the positives, as in Lee et al. (2018) and Hendrycks and Gimpel (2017): the true positive rate is
the share of known inputs that are accepted. Ties are counted exactly. Leading dimensions are separate problems.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._checks import can_read, check_floating, fail
from argrad._types import Float


def _check(call: str, known: Tensor, unknown: Tensor) -> tuple[Tensor, Tensor]:
    for name, value in (("known", known), ("unknown", unknown)):
        check_floating(call, name, value)
        if value.dim() < 1 or value.shape[-1] == 0:
            rule = "must hold at least one score"
            raise fail(
                call,
                name,
                rule,
                f"shape {tuple(value.shape)}",
                "Both kinds are needed to compare them.",
            )
        if can_read(value) and bool(value.isnan().any()):
            raise fail(call, name, "must not hold NaN", value, "Such a score can be in no order.")
    batch = torch.broadcast_shapes(known.shape[:-1], unknown.shape[:-1])
    return known.expand(*batch, -1).double(), unknown.expand(*batch, -1).double()


def _at_most(sorted_scores: Tensor, values: Tensor) -> Tensor:
    """How many of the first are at most each of the second."""
    return torch.searchsorted(sorted_scores, values.contiguous(), right=True).double()


def auroc(
    known: Float[Tensor, "*batch n"], unknown: Float[Tensor, "*batch m"]
) -> Float[Tensor, "*batch"]:
    r"""Area under the ROC curve: the probability that an unknown input scores higher than a known one.

    $$ P(s_\text{unknown} > s_\text{known}) + \tfrac12 P(s_\text{unknown} = s_\text{known}) $$

    Args:
        known: outlier scores of inputs from the training distribution.
        unknown: outlier scores of others.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.openset.auroc(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.25, 0.3, 0.4]))
        tensor(0.8333)

    References: [fawcett2006].
    """
    a, b = _check("auroc", known, unknown)
    a = a.sort(-1).values
    below = torch.searchsorted(a, b.contiguous()).double()  # strictly
    wins = 0.5 * (below + _at_most(a, b))
    return (wins.mean(-1) / a.shape[-1]).to(known.dtype)


def aupr(
    known: Float[Tensor, "*batch n"], unknown: Float[Tensor, "*batch m"], *, positive: str = "known"
) -> Float[Tensor, "*batch"]:
    r"""Area under the precision-recall curve (average precision), which depends on how common each kind is.

    Args:
        known: outlier scores of inputs from the training distribution.
        unknown: outlier scores of others.
        positive: whose precision: `"known"` ("AUPR in") or `"unknown"` ("AUPR out").

    Examples:
        >>> import torch, argrad as ag
        >>> known, unknown = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.25, 0.4])
        >>> ag.openset.aupr(known, unknown), ag.openset.aupr(known, unknown, positive="unknown")
        (tensor(0.9167), tensor(0.8333))

    References: [fawcett2006].
    """
    if positive not in ("known", "unknown"):
        raise fail("aupr", "positive", 'must be "known" or "unknown"', positive, "")
    a, b = _check("aupr", known, unknown)
    right, wrong = (a, b) if positive == "known" else (-b, -a)
    right = right.sort(-1).values
    hits = _at_most(right, right)  # accepted at each positive's own score, ties included
    precision = hits / (hits + _at_most(wrong.sort(-1).values, right))
    return precision.mean(-1).to(known.dtype)


def fpr_at_tpr(
    known: Float[Tensor, "*batch n"], unknown: Float[Tensor, "*batch m"], *, tpr: float = 0.95
) -> Float[Tensor, "*batch"]:
    r"""The share of unknown inputs accepted by a threshold that accepts a share `tpr` of the known ones.

    Its complement is the "TNR at TPR 95 %" of Lee et al.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.openset.fpr_at_tpr(torch.arange(100.0), torch.tensor([0.0, 94.0, 95.0, 200.0]))
        tensor(0.5000)

    References: [hendrycks2017], [lee2018].
    """
    if not 0 < tpr <= 1:
        raise fail("fpr_at_tpr", "tpr", "must be above 0 and at most 1", tpr, "0.95 is usual.")
    a, b = _check("fpr_at_tpr", known, unknown)
    n = a.shape[-1]
    enough = min(max(math.ceil(tpr * n - 1e-9), 1), n)  # 0.95 * 100 is 95, whatever rounding says
    threshold = a.sort(-1).values[..., enough - 1 : enough]
    return (b <= threshold).double().mean(-1).to(known.dtype)
