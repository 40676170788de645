"""A hard one-hot with the gradient of a relaxed one."""

from __future__ import annotations

import math
import weakref

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.constraints import Constraint
from torch.distributions.kl import register_kl

from argrad._checks import (
    can_read,
    check_shape,
    fail,
)
from argrad._numerics import one_hot, widen
from argrad._types import Float, Generator, Shape
from argrad.gumbel import gumbel_max, gumbel_softmax
from argrad.relaxed.base import FromLogits

_Remembered = tuple[weakref.ref[Tensor], int, Tensor]  # a sample, its version, its logarithm


class GumbelSoftmax(FromLogits):
    r"""A one-hot categorical whose samples are hard and whose gradient is relaxed (straight-through).

    `sample` and `rsample` return exact one-hot vectors with the law $\mathrm{softmax}(\theta)$; the
    gradient of `rsample` is that of the Gumbel-softmax at temperature $\tau$. `log_prob`, `entropy` and
    `mean` are those of the categorical, which is the law of the samples; the density of the relaxed
    point is `RelaxedOneHot`'s.

    Args:
        tau: temperature of the gradient; a float or a tensor that broadcasts over the batch.
        logits: $\theta$, shape `(*batch, n)`; `-inf` is never chosen.
        probs: instead of `logits`; need not sum to 1.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.GumbelSoftmax(0.5, logits=torch.tensor([1.0, 2.0, 0.0]))
        >>> q.mode, q.convert_to_one_hot(torch.tensor([0.2, 0.3, 0.5]))
        (tensor([0., 1., 0.]), tensor([0., 0., 1.]))
        >>> q.rsample().sum().item()
        1.0

    References: [jang2017].
    """

    has_enumerate_support = True

    @property
    def support(self) -> Constraint:
        """One-hot vectors."""
        return constraints.one_hot

    @property
    def probs(self) -> Float[Tensor, "*batch n"]:
        r"""$\mathrm{softmax}(\theta)$."""
        return widen(self.logits).softmax(-1).to(self.logits.dtype)

    @property
    def mean(self) -> Float[Tensor, "*batch n"]:
        """The expected one-hot: `probs`."""
        return self.probs

    @property
    def variance(self) -> Float[Tensor, "*batch n"]:
        """The variance of each coordinate."""
        return self.probs * (1 - self.probs)

    @property
    def mode(self) -> Float[Tensor, "*batch n"]:
        """The most probable one-hot."""
        return self.convert_to_one_hot(self.logits)

    @staticmethod
    def convert_to_one_hot(values: Float[Tensor, "*shape n"]) -> Float[Tensor, "*shape n"]:
        """The one-hot of the largest coordinate (the first, if several are)."""
        return one_hot(values.argmax(-1, keepdim=True), values)

    def sample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """One-hot samples, no gradient."""
        scores = self._expanded_logits(sample_shape).detach()
        index = gumbel_max(scores, generator=generator)
        return one_hot(index[..., None], scores).to(self.logits.dtype)

    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """One-hot samples with the gradient of the relaxed ones."""
        shape = check_shape("GumbelSoftmax.rsample", "sample_shape", sample_shape)
        scores = self.logits.expand(shape + self.logits.shape)
        return gumbel_softmax(scores, self.tau, hard=True, generator=generator)

    def log_prob(self, value: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log \mathrm{softmax}(\theta)_i$ of the one-hot `value` of item $i$."""
        self._check_value(value)
        if self._validate_args and can_read(value) and value.numel():
            vertex = ((value == 0) | (value == 1)).all() & (value.sum(-1) == 1).all()
            if not bool(vertex):
                raise fail(
                    "GumbelSoftmax.log_prob",
                    "value",
                    "must be one-hot",
                    value,
                    "For relaxed points use `RelaxedOneHot(tau, logits=...).log_prob`.",
                )
        log_p = torch.log_softmax(widen(self.logits), -1)
        return torch.where(value == 1, log_p, 0.0).sum(-1).to(self.logits.dtype)

    def entropy(self) -> Float[Tensor, "*batch"]:
        r"""$-\sum_i p_i \log p_i$."""
        log_p = torch.log_softmax(widen(self.logits), -1)
        closed = log_p == -math.inf
        return -(log_p.exp() * log_p.masked_fill(closed, 0.0)).sum(-1).to(self.logits.dtype)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All one-hot vectors, shape `(n, *batch, n)`."""
        n = self.event_shape[0]
        eye = torch.eye(n, dtype=self.logits.dtype, device=self.logits.device)
        eye = eye.view(n, *(1,) * len(self.batch_shape), n)
        return eye.expand(n, *self.batch_shape, n) if expand else eye


@register_kl(GumbelSoftmax, GumbelSoftmax)
def _kl_gumbel_softmax(p: GumbelSoftmax, q: GumbelSoftmax) -> Tensor:
    log_p, log_q = (torch.log_softmax(widen(d.logits), -1) for d in (p, q))
    closed = log_p == -math.inf
    gap = log_p.masked_fill(closed, 0.0) - log_q.masked_fill(closed, 0.0)
    return (log_p.exp() * gap).sum(-1).to(p.logits.dtype)
