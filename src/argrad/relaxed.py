r"""Distributions behind Gumbel-softmax: the Concrete densities, and the hard sample with relaxed gradient.

A relaxed sample at $\tau = 0.05$ has coordinates like $e^{-400}$, which float32 cannot hold; so samples
are drawn, and densities computed, in logarithms (`rsample_log`, `log_prob_log`). `log_prob(rsample())`
is exact all the same: a distribution remembers the logarithm of the last sample it returned.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint
from torch.distributions.kl import register_kl
from torch.nn.functional import logsigmoid

from argrad import random
from argrad._checks import can_read, check_event, check_floating, check_scores, check_tau, fail
from argrad._errors import InputError
from argrad._numerics import logsumexp, widen
from argrad._types import Float, Generator, Shape, Tau
from argrad.gumbel import gumbel_max, gumbel_softmax


class _FromLogits(Distribution):
    """What the three share: `logits` or `probs`, a temperature, `expand`, `generator=`."""

    has_rsample = True

    def __init__(
        self,
        tau: Tau,
        *,
        logits: Float[Tensor, "*batch n"] | None = None,
        probs: Float[Tensor, "*batch n"] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        call = type(self).__name__
        if (logits is None) == (probs is None):
            raise InputError(f"`{call}(...)` takes exactly one of `logits` and `probs`.")
        name = "logits" if probs is None else "probs"
        given = logits if probs is None else probs
        check_floating(call, name, given)
        assert given is not None
        check_event(call, name, given)
        self.logits = given if probs is None else self._logits_of(call, given)
        check_scores(call, "logits", self.logits)
        self._tau = check_tau(call, tau, given.shape[:-1])
        self._last: tuple[weakref.ref[Tensor], Tensor] | None = None
        super().__init__(given.shape[:-1], given.shape[-1:], validate_args=False)
        if validate_args is not None:
            self._validate_args = validate_args

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """As in torch.distributions; the constructor has checked it."""
        return {"logits": constraints.real_vector}

    @property
    def tau(self) -> Tau:
        """The temperature: a float, or a tensor of the batch's shape."""
        return self._tau.squeeze(-1) if isinstance(self._tau, Tensor) and self._tau.dim() else self._tau

    def expand(self, batch_shape: Shape, _instance: object = None) -> Any:
        new = type(self).__new__(type(self))
        batch = torch.Size(batch_shape)
        new.logits = self.logits.expand(batch + self.event_shape)
        new._tau = self._tau
        new._last = None
        Distribution.__init__(new, batch, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """A differentiable sample."""
        raise NotImplementedError  # each law defines its own

    def sample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """A sample without gradient, shape `sample_shape + batch_shape + event_shape`."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator=generator)

    def _remember(self, value: Tensor, log_value: Tensor) -> Tensor:
        self._last = (weakref.ref(value), log_value)
        return value

    def _recall(self, value: Tensor) -> Tensor | None:
        return self._last[1] if self._last is not None and self._last[0]() is value else None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": None}

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        new = self.expand(self.batch_shape)
        new.logits = self.logits.detach().clone().requires_grad_(self.logits.requires_grad)
        return new

    def __repr__(self) -> str:
        return f"{type(self).__name__}(tau={self.tau}, logits: {tuple(self.logits.shape)})"

    @staticmethod
    def _logits_of(call: str, probs: Tensor) -> Tensor:
        if can_read(probs) and probs.numel() and not bool((probs >= 0).all()):
            raise fail(
                call, "probs", "must not be negative", probs, "Pass unnormalised scores as `logits`."
            )
        return torch.log(probs)

    def _expanded_logits(self, sample_shape: Shape) -> Tensor:
        return widen(self.logits).expand(torch.Size(sample_shape) + self.logits.shape)


class RelaxedOneHot(_FromLogits):
    r"""The Concrete (Gumbel-softmax) distribution on the simplex, with its density.

    $$ p(y) = \Gamma(n)\, \tau^{n-1} \prod_i \frac{e^{\theta_i}}{y_i^{\tau + 1}}
       \Big(\sum_i \frac{e^{\theta_i}}{y_i^{\tau}}\Big)^{-n} \tag{1} $$

    Args:
        tau: temperature; a float or a tensor that broadcasts over the batch.
        logits: $\theta$, shape `(*batch, n)`; `-inf` removes an item (its coordinate is 0).
        probs: instead of `logits`; need not sum to 1.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.RelaxedOneHot(0.05, logits=torch.zeros(3))
        >>> y = q.rsample((2,), generator=torch.Generator().manual_seed(0))
        >>> y.shape, bool(q.log_prob(y).isfinite().all())
        (torch.Size([2, 3]), True)

    References: [maddison2017], [jang2017].
    """

    @property
    def support(self) -> Constraint:
        """The simplex."""
        return constraints.simplex

    def rsample_log(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        r"""$\log y$ of a sample, exact however small $y$ is; differentiable."""
        scores = self._expanded_logits(sample_shape)
        noise = random.gumbel(
            scores.shape, dtype=scores.dtype, device=scores.device, generator=generator
        )
        closed = scores == -math.inf
        x = ((scores.masked_fill(closed, 0.0) + noise) / self._tau).masked_fill(closed, -math.inf)
        return (x - logsumexp(x, keepdim=True)).to(self.logits.dtype)

    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """A relaxed one-hot, differentiable; shape `sample_shape + batch_shape + (n,)`."""
        log_value = self.rsample_log(sample_shape, generator=generator)
        return self._remember(torch.exp(log_value), log_value)

    def log_prob_log(self, log_value: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(y)$ of Eq. (1), given $\log y$."""
        logits, x, tau = widen(self.logits), widen(log_value), self._tau
        open_ = (logits > -math.inf).expand(torch.broadcast_shapes(logits.shape, x.shape))
        n = open_.sum(-1)
        terms = torch.where(open_, logits.masked_fill(logits == -math.inf, 0.0) - tau * x, -math.inf)
        first = torch.where(open_, terms - x, 0.0).sum(-1)
        log_tau = torch.log(torch.as_tensor(self.tau, dtype=x.dtype, device=x.device))
        result = torch.lgamma(n.to(x.dtype)) + (n - 1) * log_tau + first - n * logsumexp(terms)
        return result.to(log_value.dtype)

    def log_prob(self, value: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(y)$ of Eq. (1)."""
        log_value = self._recall(value)
        if log_value is None:
            zero = (value == 0) & (self.logits > -math.inf)
            if can_read(zero) and bool(zero.any()):
                raise InputError(
                    "`RelaxedOneHot.log_prob(value=...)` must be positive where the logits allow an item; "
                    "got exact zeros, which float rounding makes of values like exp(-400). Draw with "
                    "`rsample_log` and score with `log_prob_log`."
                )
            log_value = torch.log(value)
        return self.log_prob_log(log_value)


class RelaxedBits(_FromLogits):
    r"""Independent binary Concrete variables, $y_i = \sigma((\theta_i + L_i)/\tau)$, $L_i$ logistic.

    $$ \log p(y) = \sum_i \log\tau - z_i - 2 \log(1 + e^{-z_i}) - \log y_i - \log(1 - y_i),
       \quad z_i = \tau\, \mathrm{logit}(y_i) - \theta_i \tag{1} $$

    Args:
        tau: temperature; a float or a tensor that broadcasts over the batch.
        logits: log-odds $\theta$, shape `(*batch, n)`; the bits of one event are the last dimension.
        probs: probabilities of 1, instead of `logits`.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.RelaxedBits(0.1, logits=torch.tensor([0.0, 2.0]))
        >>> q.event_shape, bool(q.log_prob(q.rsample()).isfinite())
        (torch.Size([2]), True)

    References: [maddison2017].
    """

    @property
    def support(self) -> Constraint:
        """The unit cube."""
        return constraints.independent(constraints.unit_interval, 1)

    @staticmethod
    def _logits_of(call: str, probs: Tensor) -> Tensor:
        if can_read(probs) and probs.numel() and not bool(((probs > 0) & (probs < 1)).all()):
            raise fail(
                call, "probs", "must be strictly between 0 and 1", probs, "Pass `logits` instead."
            )
        return torch.log(probs) - torch.log1p(-probs)

    def rsample_logit(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        r"""$\mathrm{logit}(y)$ of a sample; differentiable."""
        scores = self._expanded_logits(sample_shape)
        noise = random.logistic(
            scores.shape, dtype=scores.dtype, device=scores.device, generator=generator
        )
        return ((scores + noise) / self._tau).to(self.logits.dtype)

    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """Relaxed bits, differentiable; shape `sample_shape + batch_shape + (n,)`."""
        logit = self.rsample_logit(sample_shape, generator=generator)
        return self._remember(torch.sigmoid(logit), logit)

    def log_prob_logit(self, logit: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(y)$ of Eq. (1), given $\mathrm{logit}(y)$."""
        x = widen(logit)
        z = self._tau * x - widen(self.logits)
        log_tau = torch.log(torch.as_tensor(self._tau, dtype=x.dtype, device=x.device))
        # log y + log(1 - y) = logsigmoid(x) + logsigmoid(-x); -log(1 + e^-z) = logsigmoid(z)
        terms = log_tau - z + 2 * logsigmoid(z) - logsigmoid(x) - logsigmoid(-x)
        return terms.sum(-1).to(logit.dtype)

    def log_prob(self, value: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(y)$ of Eq. (1)."""
        logit = self._recall(value)
        if logit is None:
            edge = (value <= 0) | (value >= 1)
            if can_read(edge) and bool(edge.any()):
                raise InputError(
                    "`RelaxedBits.log_prob(value=...)` must be strictly between 0 and 1; got values at the "
                    "ends, where float rounding puts them. Draw with `rsample_logit` and score with "
                    "`log_prob_logit`."
                )
            logit = torch.log(value) - torch.log1p(-value)
        return self.log_prob_logit(logit)


class GumbelSoftmax(_FromLogits):
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
        return torch.zeros_like(values).scatter_(-1, values.argmax(-1, keepdim=True), 1.0)

    def sample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """One-hot samples, no gradient."""
        scores = self._expanded_logits(sample_shape).detach()
        index = gumbel_max(scores, generator=generator)
        return torch.zeros_like(scores, dtype=self.logits.dtype).scatter_(-1, index[..., None], 1.0)

    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """One-hot samples with the gradient of the relaxed ones."""
        scores = self.logits.expand(torch.Size(sample_shape) + self.logits.shape)
        return gumbel_softmax(scores, self._tau, hard=True, generator=generator)

    def log_prob(self, value: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log \mathrm{softmax}(\theta)_i$ of the one-hot `value` of item $i$."""
        if can_read(value) and value.numel():
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
