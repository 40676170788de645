r"""Regularizers: the strongly convex $f$ that turns an arg max into a soft, differentiable point.

$$ z_\tau = \arg\max_{z \in \mathrm{conv}(Z)} \langle w, z \rangle - \tau f(z) $$
A regularizer is only a name for $f$; each structure knows how to solve the problem for those it
accepts, and refuses the others by name (`Structure.relax`).
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

from torch import Tensor

from argrad._checks import fail
from argrad._errors import UnsupportedError
from argrad._numerics import xlogy


class Regularizer(ABC):  # noqa: B024  (what can be solved is decided by the structure)
    """A convex function on the hull of a structure.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.tensor([2.0, 1.0, 0.0, -1.0])
        >>> for f in (ag.Euclidean(), ag.BinaryEntropy(), ag.ExponentialFamily()):
        ...     print([round(x, 2) for x in ag.Subset(2).relax(scores, regularizer=f).tolist()])
        [1.0, 1.0, 0.0, 0.0]
        [0.82, 0.62, 0.38, 0.18]
        [0.88, 0.69, 0.31, 0.12]
    """

    def value(self, z: Tensor) -> Tensor:
        r"""The terms of $f(z)$, elementwise; they are to be summed over an event."""
        raise UnsupportedError(f"`{self!r}` is not a sum of terms, one a part.")


@dataclass(frozen=True)
class Entropy(Regularizer):
    r"""$f(z) = \sum_i z_i \log z_i$: softmax, Sinkhorn, "categorical entropy" top-k.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.OneHot().relax(torch.tensor([0.0, 1.0]), regularizer=ag.Entropy())
        tensor([0.2689, 0.7311])

    References: [paulus2020], [mena2018].
    """

    def value(self, z: Tensor) -> Tensor:
        r"""$z \log z$."""
        return xlogy(z, z)


@dataclass(frozen=True)
class Euclidean(Regularizer):
    r"""$f(z) = \frac12 \|z\|^2$: sparsemax, projection. Soft points have exact zeros and ones.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.OneHot().relax(torch.tensor([0.0, 0.5]), regularizer=ag.Euclidean())
        tensor([0.2500, 0.7500])

    References: [martins2016], [paulus2020].
    """

    def value(self, z: Tensor) -> Tensor:
        r"""$\frac12 z^2$."""
        return 0.5 * z**2


@dataclass(frozen=True)
class BinaryEntropy(Regularizer):
    r"""$f(z) = \sum_i z_i \log z_i + (1 - z_i) \log(1 - z_i)$: a sigmoid with one shared threshold.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.Bits().relax(torch.tensor([0.0, 1.0]), regularizer=ag.BinaryEntropy())
        tensor([0.5000, 0.7311])

    References: [paulus2020].
    """

    def value(self, z: Tensor) -> Tensor:
        r"""$z \log z + (1 - z) \log(1 - z)$."""
        return xlogy(z, z) + xlogy(1 - z, 1 - z)


@dataclass(frozen=True)
class ExponentialFamily(Regularizer):
    r"""$f = A^*$, the conjugate of the log-partition: the soft point is the vector of marginals.

    $$ z_\tau = \nabla A(w/\tau) = \mathbb{E}_{z \sim \exp\langle w/\tau, z\rangle}[z] $$

    Examples:
        >>> import torch, argrad as ag
        >>> ag.SpanningTree().relax(torch.zeros(3, 3), regularizer=ag.ExponentialFamily())[0]
        tensor([0.0000, 0.6667, 0.6667])

    References: [paulus2020].
    """


@dataclass(frozen=True)
class Tsallis(Regularizer):
    r"""$f(z) = \frac{1}{\alpha(\alpha - 1)} \sum_i (z_i^\alpha - z_i)$: entmax, from softmax to sparsemax.

    Args:
        alpha: 1 is `Entropy`, 2 is `Euclidean` (up to a constant); larger is sparser.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.OneHot().relax(torch.tensor([0.0, 4.0]), regularizer=ag.Tsallis(1.5))
        tensor([0., 1.])

    References: [peters2019].
    """

    alpha: float = 1.5

    def __post_init__(self) -> None:
        if not self.alpha >= 1:
            raise fail(
                "Tsallis", "alpha", "must be at least 1", self.alpha, "1 is softmax, 2 is sparsemax."
            )

    def value(self, z: Tensor) -> Tensor:
        r"""$(z^\alpha - z) / (\alpha(\alpha - 1))$."""
        if self.alpha == 1:
            return xlogy(z, z)
        return (z**self.alpha - z) / (self.alpha * (self.alpha - 1))


@dataclass(frozen=True)
class SuccessiveSoftmax(Regularizer):
    r"""Not an $f$ but a procedure for k-subsets: $k$ softmaxes, each damping what was taken before.

    $$ a^{1} = w, \quad p^{j} = \mathrm{softmax}(a^{j}/\tau), \quad a^{j+1} = a^{j} + \log(1 - p^{j}),
       \quad z_\tau = \sum_{j=1}^{k} p^{j} $$
    The relaxation of Xie & Ermon ("SoftSub"), kept for comparison; its points need not lie in the hull.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.Subset(2).relax(torch.zeros(4), regularizer=ag.SuccessiveSoftmax())
        tensor([0.5000, 0.5000, 0.5000, 0.5000])

    References: [xie2019].
    """
