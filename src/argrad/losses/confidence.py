r"""Losses for classifiers that should be unsure where there was no data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from argrad._checks import (
    check_any_allowed,
    check_event,
    check_floating,
    check_labels,
    check_scores,
    fail,
)
from argrad._numerics import logsumexp, widen
from argrad._types import Float, Int

MODES = ("kl", "reject", "energy")


@dataclass(frozen=True)
class ConfidenceLoss:
    r"""Cross-entropy on known inputs, and a term that takes the confidence away from outliers.

    $$ \frac{1}{n} \sum_i -\log p_\theta(y_i | x_i) + \beta\, \frac{1}{m} \sum_j o(x'_j) $$

    | mode | outlier term $o$ | score to use |
    |---|---|---|
    | `"kl"` | $\mathrm{KL}(U \,\Vert\, p_\theta) = \log\sum_k e^{f_k} - \bar f - \log K$ | `max_softmax`, `entropy` |
    | `"reject"` | $-\log p_\theta(K + 1 \mid x')$: one logit more, "none of these" | `reject` |
    | `"energy"` | $\max(0, m_\text{out} - E(x'))^2$, and $\max(0, E(x) - m_\text{in})^2$ for known inputs | `energy` |

    `"kl"` is the loss of Lee et al.; it leaves a network free to be confident far away from all outliers it was shown.
    `"reject"` and `"energy"` have an own direction for "unknown".

    Args:
        mode: see the table; `"reject"` expects logits for K + 1 classes, the last of them "none of these".
        beta: $\beta$. Liu et al. use 0.1 with their margins.
        margins: $(m_\text{in}, m_\text{out})$ for `"energy"`: energies below the first for known inputs, above the
            second for outliers. The defaults suit a few classes; Liu et al. use (-25, -7) for ten.

    Examples:
        >>> import torch, argrad as ag
        >>> loss = ag.ConfidenceLoss("kl", beta=1.0)
        >>> logits, labels = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
        >>> loss(logits, labels, torch.zeros(5, 2))  # outliers are uniform already: cross-entropy alone
        tensor(0.1269)
        >>> loss.outlier(torch.tensor([[0.0, 0.0], [4.0, 0.0]]))
        tensor([0.0000, 1.3250])

    References: [lee2018], [vernekar2019], [liu2020].
    """

    mode: str = "kl"
    beta: float = 1.0
    margins: tuple[float, float] = (-6.0, -2.0)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            names = ", ".join(f'"{m}"' for m in MODES)
            raise fail("ConfidenceLoss", "mode", f"must be one of {names}", self.mode, "")
        if not isinstance(self.beta, (int, float)) or not 0 <= self.beta < math.inf:
            raise fail("ConfidenceLoss", "beta", "must be finite and at least 0", self.beta, "")
        if not self.margins[0] <= self.margins[1]:
            advice = "Known inputs have the lower energy."
            raise fail("ConfidenceLoss", "margins", "must rise", self.margins, advice)

    def __call__(
        self,
        logits: Float[Tensor, "n classes"],
        labels: Int[Tensor, " n"],
        outliers: Float[Tensor, "m classes"],
    ) -> Float[Tensor, ""]:
        """The loss of a batch of known inputs and a batch of outliers, which may differ in size."""
        self._check("logits", logits)
        self._check("outliers", outliers)
        known = (
            logits[..., :-1] if self.mode == "reject" else logits
        )  # no input is labelled "none of these"
        check_labels("ConfidenceLoss", "labels", labels, known)
        if logits.shape[-1] != outliers.shape[-1]:
            rule = f"must have as many classes as the logits, {logits.shape[-1]}"
            raise fail("ConfidenceLoss", "outliers", rule, f"shape {tuple(outliers.shape)}", "")
        total = self.inlier(logits, labels).mean() + self.beta * self.outlier(outliers).mean()
        return total.to(logits.dtype)

    def _check(self, name: str, logits: Tensor) -> None:
        check_floating("ConfidenceLoss", name, logits)
        check_event("ConfidenceLoss", name, logits)
        check_scores("ConfidenceLoss", name, logits)
        check_any_allowed("ConfidenceLoss", logits)

    def inlier(
        self, logits: Float[Tensor, "*batch classes"], labels: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """The terms of known inputs."""
        self._check("logits", logits)
        check_labels("ConfidenceLoss", "labels", labels, logits)
        f = widen(logits)
        value = logsumexp(f) - f.gather(-1, labels.long()[..., None])[..., 0]
        if self.mode == "energy":
            value = value + self.beta * (-logsumexp(f) - self.margins[0]).clamp(min=0) ** 2
        return value

    def outlier(self, logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
        """The terms of outliers, $o$, at least 0."""
        self._check("logits", logits)
        f = widen(logits)
        if self.mode == "kl":
            f = f - f.detach().amax(-1, keepdim=True)  # so that large logits do not cancel
            return (logsumexp(f) - f.mean(-1) - math.log(f.shape[-1])).clamp(min=0)
        total = logsumexp(f)
        if self.mode == "reject":
            return total - f[..., -1]
        return (self.margins[1] + total).clamp(min=0) ** 2
