r"""Fenchel-Young losses: how far scores are from preferring an observed object."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from argrad._checks import check_count, check_finite, check_possible, check_tau, fail
from argrad._types import Bool, Float, Generator
from argrad.noise import Noise
from argrad.perturbed import Perturbed
from argrad.regularizers import ExponentialFamily, Regularizer
from argrad.structures.base import Structure


@dataclass(frozen=True)
class FenchelYoung:
    r"""The Fenchel-Young loss of a relaxation, a generalised cross-entropy.

    $$ L(\theta; y) = \max_{z \in \mathrm{conv} Z} \big[\langle\theta, z\rangle - \tau f(z)\big]
       + \tau f(y) - \langle\theta, y\rangle $$
    Convex in $\theta$, at least 0, and 0 exactly when the relaxed choice is $y$; its gradient is
    $z_\tau(\theta) - y$. With `Entropy` on `OneHot` it is the cross-entropy, with `ExponentialFamily` the
    negative log-likelihood of the Gibbs law.

    Args:
        structure: the set Z.
        regularizer: $f$; None is the structure's default.
        tau: temperature.

    Examples:
        >>> import torch, argrad as ag
        >>> loss = ag.FenchelYoung(ag.OneHot())
        >>> scores, y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 0.0, 1.0])
        >>> torch.allclose(loss(scores, y), torch.nn.functional.cross_entropy(scores, y))
        True

    References: [blondel2020].
    """

    structure: Structure
    regularizer: Regularizer | None = None
    tau: float = 1.0

    def __post_init__(self) -> None:
        check_tau("FenchelYoung", self.tau, ())  # type: ignore[arg-type]

    def __call__(
        self,
        scores: Float[Tensor, "..."],
        target: Float[Tensor, "..."],
        *,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch"]:
        """The loss of each item; `target` is a vertex or any point of the hull."""
        if target.shape != scores.shape:
            rule = f"must have the scores' shape {tuple(scores.shape)}"
            raise fail("FenchelYoung", "target", rule, f"shape {tuple(target.shape)}", "")
        structure = self.structure
        f = structure.default_regularizer if self.regularizer is None else self.regularizer
        clean = structure._clean("FenchelYoung", scores, mask)
        y = target.to(clean.dtype)
        if isinstance(f, ExponentialFamily):  # tau A(theta / tau); f(y) = 0 at a vertex
            log_z = structure._log_partition(clean / self.tau)
            check_possible("FenchelYoung", log_z)
            best = self.tau * log_z
            check_finite("FenchelYoung", "scores", best)  # sums of very large ones overflow
            return (best - structure._inner(clean, y)).to(scores.dtype)
        soft = structure.relax(clean, self.tau, regularizer=f)
        gap = self._value(f, clean.detach(), soft.detach()) - self._value(f, clean.detach(), y)
        # value 0, gradient soft - y (envelope theorem), kept differentiable so that Hessians are right
        moving = clean.masked_fill(clean == -math.inf, 0.0)
        change = structure._inner(moving - moving.detach(), soft - y)
        return (gap + change).to(scores.dtype)

    def _value(self, f: Regularizer, scores: Tensor, z: Tensor) -> Tensor:
        return self.structure._inner(scores, z) - self.tau * self.structure._regularizer_value(f, z)


@dataclass(frozen=True)
class PerturbedFenchelYoung:
    r"""The Fenchel-Young loss of perturb-and-argmax, for any structure that can be maximised.

    $$ L(\theta; y) = \mathbb{E}\Big[\max_{z \in Z} \langle\theta + \sigma\varepsilon, z\rangle\Big]
       - \langle\theta, y\rangle + \text{const}, \quad
       \nabla L = \mathbb{E}[z(\theta + \sigma\varepsilon)] - y $$
    The expectation is a mean over `num_samples` draws: value and gradient are unbiased.

    Args:
        structure: the set Z; an `Oracle` will do.
        noise: None is the structure's natural noise.
        noise_scale: $\sigma$.
        num_samples: draws a call.

    Examples:
        >>> import torch, argrad as ag
        >>> loss = ag.PerturbedFenchelYoung(ag.Permutation(), num_samples=8)
        >>> scores = torch.zeros(3, 3, requires_grad=True)
        >>> loss(scores, torch.eye(3)).backward()
        >>> scores.grad.sum(-1)
        tensor([0., 0., 0.])

    References: [berthet2020], [blondel2020].
    """

    structure: Structure
    noise: Noise | None = None
    noise_scale: float = 1.0
    num_samples: int = 1

    def __post_init__(self) -> None:
        check_count("PerturbedFenchelYoung", "num_samples", self.num_samples, 1, None, "1 is unbiased.")

    def __call__(
        self,
        scores: Float[Tensor, "..."],
        target: Float[Tensor, "..."],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        generator: Generator = None,
    ) -> Float[Tensor, "*batch"]:
        """The loss of each item."""
        q = Perturbed(self.structure, scores, noise=self.noise, noise_scale=self.noise_scale, mask=mask)
        draw = q.draw((self.num_samples,), generator=generator)
        best = self.structure._inner(draw.perturbed, draw.hard).mean(0)  # gradient: the mean vertex
        return best - self.structure._inner(scores, target)
