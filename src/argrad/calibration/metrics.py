r"""How well calibrated predictions are: expected and adaptive calibration error, likelihood, Brier score.

All take logits, because that is what models and calibrators return; for probabilities pass `probs.log()`,
which gives the same numbers (`-inf` is legal). Leading dimensions are separate problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from argrad._checks import check_count
from argrad._numerics import widen
from argrad._types import Float, Int
from argrad.calibration.targets import check_targets, label_values


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy by bin of confidence: a reliability diagram in numbers.

    Attributes:
        edges: of the bins, `(*batch, bins + 1)`.
        count: examples in each, `(*batch, bins)`.
        confidence: mean confidence in each; NaN if it is empty.
        accuracy: share of right predictions in each; NaN if it is empty.

    Examples:
        >>> import torch, argrad as ag
        >>> table = ag.calibration.reliability(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]), bins=2)
        >>> table.count, table.confidence, table.accuracy
        (tensor([4., 0.]), tensor([0.5000,    nan]), tensor([0.7500,    nan]))
    """

    edges: Float[Tensor, "*batch bins_and_one"]
    count: Float[Tensor, "*batch bins"]
    confidence: Float[Tensor, "*batch bins"]
    accuracy: Float[Tensor, "*batch bins"]


def reliability(
    logits: Float[Tensor, "*batch n classes"],
    labels: Int[Tensor, "*batch n"],
    *,
    bins: int = 15,
    equal_mass: bool = False,
) -> Reliability:
    """Sort predictions into bins of confidence, `(0, 1/bins], (1/bins, 2/bins], ...` or with equal counts.

    Examples:
        >>> import torch, argrad as ag
        >>> logits = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        >>> ag.calibration.reliability(logits, logits.argmax(-1), equal_mass=True, bins=4).count
        tensor([250., 250., 250., 250.])

    References: [niculescumizil2005].
    """
    check_targets("reliability", logits, labels)
    check_count("reliability", "bins", bins, 1, None, "15 is usual.")
    confidence, choice = widen(logits).softmax(-1).max(-1)
    return _binned(confidence, (choice == labels).to(confidence), bins, equal_mass)


def _binned(confidence: Tensor, right: Tensor, bins: int, equal_mass: bool) -> Reliability:
    """Sums over bins of the last dimension."""
    n = confidence.shape[-1]
    edges = torch.linspace(0, 1, bins + 1, dtype=confidence.dtype, device=confidence.device)
    if equal_mass:  # bin b holds the places [b n / bins, (b + 1) n / bins) of the sorted confidences
        order = confidence.argsort(dim=-1, stable=True)
        place = order.argsort(-1)
        index = ((2 * place + 1) * bins).div(2 * n, rounding_mode="floor")
        quantiles = (edges * (n - 1)).round().long().expand(*confidence.shape[:-1], -1)
        edges = confidence.gather(-1, order).gather(-1, quantiles)
    else:
        index = (torch.bucketize(confidence, edges) - 1).clamp(0, bins - 1)
        edges = edges.expand(*confidence.shape[:-1], -1)
    zero = confidence.new_zeros(*confidence.shape[:-1], bins)
    count = zero.scatter_add(-1, index, torch.ones_like(confidence))
    return Reliability(
        edges,
        count,
        zero.scatter_add(-1, index, confidence) / count,  # 0/0 is NaN: there is nothing to say
        zero.scatter_add(-1, index, right) / count,
    )


def ece(
    logits: Float[Tensor, "*batch n classes"], labels: Int[Tensor, "*batch n"], *, bins: int = 15
) -> Float[Tensor, "*batch"]:
    r"""Expected calibration error: the gap between confidence and accuracy, averaged over bins by size.

    $$ \mathrm{ECE} = \sum_b \frac{n_b}{n} \big|\mathrm{acc}_b - \mathrm{conf}_b\big| $$
    Of the predicted class alone, in bins of equal width. Biased upwards on small samples.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.calibration.ece(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]))  # says 0.5, is right at 0.75
        tensor(0.2500)

    References: [naeini2015], [guo2017].
    """
    table = reliability(logits, labels, bins=bins)
    gap = (table.accuracy - table.confidence).abs().nan_to_num(0.0)
    return (table.count * gap).sum(-1) / labels.shape[-1]


def ace(
    logits: Float[Tensor, "*batch n classes"], labels: Int[Tensor, "*batch n"], *, bins: int = 15
) -> Float[Tensor, "*batch"]:
    r"""Adaptive calibration error: the gap for every class, over bins that hold equally many examples.

    $$ \mathrm{ACE} = \frac{1}{K B} \sum_{k=1}^{K} \sum_{b=1}^{B} \big|\mathrm{acc}_{bk} - \mathrm{conf}_{bk}\big| $$
    Looks at all probabilities, not the largest only. (netcal calls the unweighted mean over equal-width bins "ACE";
    that is another number.)

    Examples:
        >>> import torch, argrad as ag
        >>> ag.calibration.ace(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]), bins=1)
        tensor(0.2500)

    References: [nixon2019].
    """
    check_targets("ace", logits, labels)
    bins = check_count("ace", "bins", bins, 1, None, "15 is usual.")
    q = widen(logits).softmax(-1).mT  # (*batch, classes, n)
    right = labels[..., None, :] == torch.arange(q.shape[-2], device=q.device)[:, None]
    table = _binned(q, right.to(q), min(bins, labels.shape[-1]), True)
    return (table.accuracy - table.confidence).abs().mean((-1, -2))


def nll(
    logits: Float[Tensor, "*batch n classes"], labels: Int[Tensor, "*batch n"]
) -> Float[Tensor, "*batch"]:
    r"""Mean negative log-likelihood, $-\frac{1}{n}\sum_i \log q_{i y_i}$: a proper score.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.calibration.nll(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]))
        tensor(0.6931)

    References: [good1952].
    """
    check_targets("nll", logits, labels)
    return -label_values(widen(logits).log_softmax(-1), labels).mean(-1)


def brier(
    logits: Float[Tensor, "*batch n classes"], labels: Int[Tensor, "*batch n"]
) -> Float[Tensor, "*batch"]:
    r"""The Brier score, $\frac{1}{n}\sum_i \sum_k (q_{ik} - [k = y_i])^2$: square loss on a softmax, a proper score.

    From 0 to 2; a bounded loss, so that one impossible label does not decide everything.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.calibration.brier(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]))
        tensor(0.5000)

    References: [brier1950].
    """
    check_targets("brier", logits, labels)
    q = widen(logits).softmax(-1)
    return ((q * q).sum(-1) - 2 * label_values(q, labels) + 1).mean(-1)
