r"""Noise-contrastive estimation: learn a normalised model by telling data from noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from argrad._checks import fail
from argrad._errors import InputTypeError
from argrad._numerics import rows_of
from argrad._types import Float, Generator, Int
from argrad.class_noise.base import ClassNoise, Negatives
from argrad.losses._contrast import Scores, check_loss, data_against_noise
from argrad.losses._large_softmax import linear_log_prob, linear_sample
from argrad.losses._sampled import SampledLoss


@dataclass(frozen=True)
class PartitionStats:
    r"""How far a model is from normalised: $\log \sum_i e^{s_i}$ over a batch. 0 everywhere is perfect.

    Examples:
        >>> import torch, argrad as ag
        >>> loss = ag.NCE(8, ag.LogUniform(100), log_z=2.0)
        >>> round(loss.partition(torch.zeros(5, 8)).mean, 4)
        -2.0
    """

    mean: float
    std: float
    low: float
    high: float


class NCE(SampledLoss):
    r"""Noise-contrastive estimation of $p(y \mid h) = e^{s_y(h)}$, with $k$ noise classes for each datum.

    $$ L = -\log \sigma\big(s_y - \log(k q_y)\big)
           - \sum_{j=1}^{k} \log \sigma\big(-(s_{w_j} - \log(k q_{w_j}))\big), \quad w_j \sim q,
       \qquad s_i = w_i \cdot h + b_i - \log Z(h) $$
    At the optimum of an expressive model $e^{s} = p$ with sum 1, for every $k$ and every $q$ that covers
    the data: nothing has to be normalised, neither in training nor afterwards. As $k$ grows the gradient
    tends to that of maximum likelihood. A noise class that equals the target is *kept*: the theory
    counts on it.

    The bias starts at $\log q$, so that the model starts normalised. From 0 it takes very long.

    Args:
        in_features: d, the size of `hidden`.
        noise: $q$; the unigram law (`Unigram(counts, power=1.0)`) is a good choice.
        k: noise classes for each target.
        log_z: $\log Z$, subtracted from every score: a number (0: the model normalises itself), an
            `nn.Parameter` (one learned constant), or a module that maps `hidden` to `(*batch, 1)` (a
            learned one for each context).
        shared: one draw for the whole batch (one matrix product, fast), or one for each item.
        bias: whether classes have one.
        sparse: sparse gradients of `weight`, for `torch.optim.SparseAdam` or `SGD`.
        options: `device`, `dtype`.

    Examples:
        >>> import torch, argrad as ag
        >>> counts = torch.tensor([50.0, 30.0, 15.0, 5.0])
        >>> loss = ag.NCE(8, ag.Unigram(counts, power=1.0), k=5)
        >>> hidden, target = torch.randn(32, 8), torch.randint(4, (32,))
        >>> loss(hidden, target).mean().backward()
        >>> loss.log_prob(hidden, target).shape                   # as trained: no sum over classes
        torch.Size([32])
        >>> bool(loss.partition(torch.zeros(1, 8)).mean < 1e-6)   # normalised from the start
        True

    References: [gutmann2010], [gutmann2012], [mnih2012].
    """

    def __init__(
        self,
        in_features: int,
        noise: ClassNoise,
        k: int = 25,
        *,
        log_z: float | nn.Parameter | nn.Module = 0.0,
        shared: bool = True,
        bias: bool = True,
        sparse: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(in_features, noise, k, shared=shared, bias=bias, sparse=sparse, **options)
        if not isinstance(log_z, (int, float, nn.Parameter, nn.Module)) or isinstance(log_z, bool):
            raise InputTypeError(
                f"`NCE(log_z=...)` must be a number, a parameter or a module; got {type(log_z).__name__}. "
                "0.0 fixes Z = 1, `nn.Parameter(torch.zeros(()))` learns it, `nn.Linear(d, 1)` learns one "
                "for each context."
            )
        if isinstance(log_z, (int, float)) and not math.isfinite(log_z):
            raise fail("NCE", "log_z", "must be finite", log_z, "0.0 fixes Z = 1.")
        self.log_z = log_z

    def _log_z(self, hidden: Tensor) -> Tensor | float:
        """Broadcasts against `(*batch)`."""
        if not isinstance(self.log_z, nn.Module):
            return self.log_z
        value = self.log_z(hidden)
        if value.shape != (*hidden.shape[:-1], 1):
            rule = "must map `hidden` to one number an item, shape (*batch, 1)"
            raise fail(
                "NCE", "log_z", rule, f"shape {tuple(value.shape)}", "As `nn.Linear(d, 1)` does."
            )
        return value[..., 0]

    def _loss(self, scores: Scores, target: Tensor, draw: Negatives, hidden: Tensor) -> Tensor:
        like = scores.target
        log_z = torch.as_tensor(self._log_z(hidden), dtype=like.dtype, device=like.device)
        first = scores.target - log_z - self._log_expected_target(target, draw, scores.target)
        rest = scores.negative - log_z[..., None] - self._log_expected(draw.index, draw, scores.target)
        return data_against_noise(Scores(first, rest), draw.allowed)

    def log_prob(
        self,
        hidden: Float[Tensor, "*batch d"],
        target: Int[Tensor, "*batch"],
        *,
        normalise: bool = False,
    ) -> Float[Tensor, "*batch"]:
        r"""$\log p(y \mid h)$: as trained ($s_y$, constant cost), or divided by the true sum.

        Compare models by the normalised one: the sum of $e^s$ is near 1, not equal to it.
        """
        self._check("NCE.log_prob", hidden, target)
        if normalise:
            log_p = linear_log_prob(hidden, self.weight, self.bias, target)
            return check_loss("NCE.log_prob", log_p, hidden=hidden, weight=self.weight)
        rows = rows_of(self.weight, target)
        score = (hidden * rows).sum(-1)
        if self.bias is not None:
            score = score + rows_of(self.bias, target)
        log_p = score - self._log_z(hidden)
        return check_loss("NCE.log_prob", log_p, hidden=hidden, weight=self.weight)

    def sample(
        self, hidden: Float[Tensor, "*batch d"], *, generator: Generator = None
    ) -> Int[Tensor, "*batch"]:
        """One class for each item from the normalised model, without holding all scores."""
        return linear_sample(hidden, self.weight, self.bias, generator)

    @torch.no_grad()
    def partition(self, hidden: Float[Tensor, "*batch d"]) -> PartitionStats:
        r"""Mean, standard deviation and range of $\log \sum_i e^{s_i}$, $\log Z$ subtracted, over a batch."""
        log_z = (self.log_partition(hidden) - self._log_z(hidden)).double()
        if not log_z.numel():
            raise fail("NCE.partition", "hidden", "must hold at least one item", hidden, "")
        low, high = torch.aminmax(log_z)
        std = log_z.std(correction=0)
        return PartitionStats(float(log_z.mean()), float(std), float(low), float(high))

    def extra_repr(self) -> str:
        """Settings that are not submodules."""
        fixed = "" if isinstance(self.log_z, nn.Module) else f", log_z={_shown(self.log_z)}"
        return super().extra_repr() + fixed


def _shown(log_z: float | nn.Parameter) -> str:
    """For `repr`: a number, or that it is learned."""
    return "learned" if isinstance(log_z, nn.Parameter) else f"{log_z:g}"
