r"""What a calibrated prediction must agree with the labels in, on average.

A constraint is a list of features $\varphi_m(z, k)$ of logits $z$ and a class $k$; it asks that
$\sum_i \sum_k q_{ik} \varphi_m(z_i, k) = \sum_i \varphi_m(z_i, y_i)$. Features of one class each
($\varphi_c = w_{k}\, [k = c]$) are kept as their weights $w$, so that 1000 classes need no 1000 x 1000 table
for each example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_floating, fail


class Constraint(ABC):
    """One line of a `MaxEntCalibrator`.

    Must define: `features`. May define: `per_class`, `unchanged`.

    Examples:
        >>> import argrad as ag
        >>> isinstance(ag.calibration.MeanLogit(), ag.calibration.Constraint)
        True
    """

    per_class: ClassVar[bool] = False
    """Whether the features are $w_k [k = c]$, one for each class c."""

    unchanged: ClassVar[float] = 0.0
    """The parameter that leaves logits as they are; `ridge` pulls towards it."""

    @abstractmethod
    def features(self, logits: Tensor) -> Tensor:
        """`(*batch, n, classes)` weights if `per_class`, else `(*batch, n, classes, m)` features."""


@dataclass(frozen=True)
class MeanLogit(Constraint):
    r"""The mean logit of the true class: $\varphi = z_k$, whose multiplier is $1/T$ (kept at least 0).

    Examples:
        >>> import argrad as ag
        >>> ag.MaxEntCalibrator([ag.calibration.MeanLogit()])  # temperature scaling
        MaxEntCalibrator(constraints=(MeanLogit(),), ridge=0.0)
    """

    unchanged: ClassVar[float] = 1.0

    def features(self, logits: Tensor) -> Tensor:
        """The logits themselves."""
        return logits[..., None]


@dataclass(frozen=True)
class ClassFrequency(Constraint):
    r"""How often each class occurs: $\varphi_c = [k = c]$, whose multipliers are class biases.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.calibration.ClassFrequency().features(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """

    per_class: ClassVar[bool] = True

    def features(self, logits: Tensor) -> Tensor:
        """Ones."""
        return torch.ones_like(logits)


@dataclass(frozen=True)
class ClassLogit(Constraint):
    r"""The mean logit of each class where it is true: $\varphi_c = z_k [k = c]$, vector scaling's weights.

    Unlike the others this one changes when a constant is added to a row of logits, as vector scaling does.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.calibration.ClassLogit().features(torch.tensor([[1.0, 2.0]]))
        tensor([[1., 2.]])
    """

    per_class: ClassVar[bool] = True
    unchanged: ClassVar[float] = 1.0

    def features(self, logits: Tensor) -> Tensor:
        """The logits themselves, each for its own class."""
        return logits


@dataclass(frozen=True)
class Feature(Constraint):
    r"""Features of your own: a function from logits `(*batch, n, classes)` to `(*batch, n, classes, m)`.

    Examples:
        >>> import torch, argrad as ag
        >>> square = ag.calibration.Feature(lambda z: torch.stack([z, z * z], -1))
        >>> square.features(torch.zeros(4, 3)).shape
        torch.Size([4, 3, 2])
    """

    function: Callable[[Tensor], Tensor]

    def features(self, logits: Tensor) -> Tensor:
        """What the function returns."""
        values = self.function(logits)
        check_floating("Feature", "function", values)
        if values.shape[:-1] != logits.shape:
            rule = f"must return the logits' shape {tuple(logits.shape)} and one dimension more"
            raise fail(
                "Feature", "function", rule, f"shape {tuple(values.shape)}", "One column a feature."
            )
        return values
