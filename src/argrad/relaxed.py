r"""Distributions behind Gumbel-softmax: the Concrete densities, and the hard sample with relaxed gradient.

A relaxed sample at $\tau = 0.05$ has coordinates like $e^{-400}$, which float32 cannot hold; so samples
are drawn, and densities computed, in logarithms (`rsample_log`, `log_prob_log`). `log_prob(rsample())`
is exact all the same: a distribution remembers the logarithm of the last sample it returned.
"""

from __future__ import annotations

import math
import weakref
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint
from torch.distributions.kl import register_kl
from torch.nn.functional import logsigmoid

from argrad import random
from argrad._checks import (
    can_read,
    check_any_allowed,
    check_event,
    check_floating,
    check_scores,
    check_tau,
    fail,
    is_transformed,
)
from argrad._errors import InputError
from argrad._numerics import logsumexp, widen
from argrad._types import Float, Generator, Shape, Tau
from argrad.gumbel import gumbel_max, gumbel_softmax

_Remembered = tuple[weakref.ref[Tensor], int, Tensor]  # a sample, its version, its logarithm


def _version(x: Tensor) -> int:
    """Counts changes in place, where torch does."""
    return 0 if is_transformed() or x.is_inference() else x._version


def _copy(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_(x.requires_grad)


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
        self._check_logits(call, name)
        self._tau = check_tau(call, tau, given.shape[:-1])
        self._last: _Remembered | None = None
        super().__init__(given.shape[:-1], given.shape[-1:], validate_args=False)
        # torch's own validation would read all arguments again; `_check_value` uses the flag
        self._validate_args = Distribution._validate_args if validate_args is None else validate_args

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

    @abstractmethod
    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """A differentiable sample."""

    def sample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """A sample without gradient, shape `sample_shape + batch_shape + event_shape`."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator=generator)

    def _check_logits(self, call: str, name: str) -> None:
        check_scores(call, name, self.logits)
        check_any_allowed(call, self.logits)

    def _check_value(self, value: Tensor) -> None:
        """A tensor of this event's shape, without NaN."""
        call = f"{type(self).__name__}.log_prob"
        if not isinstance(value, Tensor):
            check_floating(call, "value", value)
        shape = self.batch_shape + self.event_shape
        try:
            fits = torch.broadcast_shapes(value.shape, shape)[-1:] == value.shape[-1:]
        except RuntimeError:
            fits = False
        if not fits:
            rule = f"must have the shape of a sample, {(..., *shape)}".replace("Ellipsis", "...")
            raise fail(
                call, "value", rule, f"shape {tuple(value.shape)}", "Sample dimensions come first."
            )
        if self._validate_args and can_read(value) and bool(torch.isnan(value).any()):
            raise fail(call, "value", "must not hold NaN", value, "Look for 0/0 upstream.")

    def _remember(self, value: Tensor, log_value: Tensor) -> Tensor:
        self._last = weakref.ref(value), _version(value), log_value
        return value

    def _recall(self, value: Tensor) -> Tensor | None:
        if self._last is None or self._last[0]() is not value or self._last[1] != _version(value):
            return None
        return self._last[2]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": None}

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        new = self.expand(self.batch_shape)
        new.logits = _copy(self.logits)
        new._tau = _copy(self._tau) if isinstance(self._tau, Tensor) else self._tau
        return new

    def __repr__(self) -> str:
        return f"{type(self).__name__}(tau={self.tau}, logits: {tuple(self.logits.shape)})"

    @staticmethod
    def _logits_of(call: str, probs: Tensor) -> Tensor:
        if can_read(probs) and probs.numel() and not bool((probs >= 0).all()):
            raise fail(
                call, "probs", "must not be negative", probs, "Pass unnormalised scores as `logits`."
            )
        zero = probs == 0  # a probability of 0 has gradient 0, not 0 * inf
        return torch.log(probs.masked_fill(zero, 1.0)).masked_fill(zero, -math.inf)

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
        return self._log_sample(sample_shape, generator).to(self.logits.dtype)

    def _log_sample(self, sample_shape: Shape, generator: Generator) -> Tensor:
        """In at least float32: half precision has no -10^5."""
        scores = self._expanded_logits(sample_shape)
        noise = random.gumbel(
            scores.shape, dtype=scores.dtype, device=scores.device, generator=generator
        )
        closed = scores == -math.inf
        peak = scores.detach().amax(
            -1, keepdim=True
        )  # subtracted first, so that noise keeps its digits
        x = (scores.masked_fill(closed, 0.0) - peak + noise) / self._tau
        return x.masked_fill(closed, -math.inf).log_softmax(-1).to(scores.dtype)

    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """A relaxed one-hot, differentiable; shape `sample_shape + batch_shape + (n,)`."""
        log_value = self._log_sample(sample_shape, generator)
        return self._remember(torch.exp(log_value).to(self.logits.dtype), log_value)

    def log_prob_log(self, log_value: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(y)$ of Eq. (1), given $\log y$."""
        logits, x, tau = widen(self.logits), widen(log_value), self._tau
        open_ = (logits > -math.inf).expand(torch.broadcast_shapes(logits.shape, x.shape))
        outside = (~open_ & (x > -math.inf)).any(-1)  # a forbidden item has the coordinate 0
        n = open_.sum(-1)
        x = torch.where(open_, x, 0.0)
        terms = torch.where(open_, logits.masked_fill(logits == -math.inf, 0.0) - tau * x, -math.inf)
        first = torch.where(open_, terms - x, 0.0).sum(-1)
        log_tau = torch.log(torch.as_tensor(self.tau, dtype=x.dtype, device=x.device))
        result = torch.lgamma(n.to(x.dtype)) + (n - 1) * log_tau + first - n * logsumexp(terms)
        return result.masked_fill(outside, -math.inf).to(self.logits.dtype)

    def log_prob(self, value: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(y)$ of Eq. (1)."""
        log_value = self._recall(value)
        if log_value is None:
            self._check_value(value)
            log_value = torch.log(widen(value))
        return self.log_prob_log(log_value)

    def _check_value(self, value: Tensor) -> None:
        check_floating(f"{type(self).__name__}.log_prob", "value", value)
        super()._check_value(value)
        if not self._validate_args or not can_read(value, self.logits):
            return
        call = "RelaxedOneHot.log_prob"
        # sums of n rounded numbers: samples of 50000 items in float32 are off by 2e-5
        slack = max(1e-3, 8 * torch.finfo(value.dtype).eps)
        if bool((value < 0).any()) or bool(((widen(value).sum(-1) - 1).abs() > slack).any()):
            raise fail(
                call, "value", "must be on the simplex", value, "Each row is >= 0 and sums to 1."
            )
        if bool(((value == 0) & (self.logits > -math.inf)).any()):
            raise InputError(
                f"`{call}(value=...)` must be positive where the logits allow an item; got exact zeros, "
                "which float rounding makes of values like exp(-400). Draw with `rsample_log` and score "
                "with `log_prob_log`."
            )


class RelaxedBits(_FromLogits):
    r"""Independent binary Concrete variables, $y_i = \sigma((\theta_i + L_i)/\tau)$, $L_i$ logistic.

    $$ \log p(y) = \sum_i \log\tau - z_i - 2 \log(1 + e^{-z_i}) - \log y_i - \log(1 - y_i),
       \quad z_i = \tau\, \mathrm{logit}(y_i) - \theta_i \tag{1} $$

    Args:
        tau: temperature; a float or a tensor that broadcasts over the batch.
        logits: log-odds $\theta$, shape `(*batch, n)`; the bits of one event are the last dimension.
            `-inf` makes a bit 0 for certain.
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
        return self._logit_sample(sample_shape, generator).to(self.logits.dtype)

    def _check_logits(self, call: str, name: str) -> None:
        check_scores(call, name, self.logits)  # all of them may be -inf: bits do not compete

    def _logit_sample(self, sample_shape: Shape, generator: Generator) -> Tensor:
        scores = self._expanded_logits(sample_shape)
        noise = random.logistic(
            scores.shape, dtype=scores.dtype, device=scores.device, generator=generator
        )
        closed = scores == -math.inf
        x = (scores.masked_fill(closed, 0.0) + noise) / self._tau
        return x.masked_fill(closed, -math.inf).to(scores.dtype)

    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """Relaxed bits, differentiable; shape `sample_shape + batch_shape + (n,)`."""
        logit = self._logit_sample(sample_shape, generator)
        return self._remember(torch.sigmoid(logit).to(self.logits.dtype), logit)

    def log_prob_logit(self, logit: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(y)$ of Eq. (1), given $\mathrm{logit}(y)$."""
        x, logits = widen(logit), widen(self.logits)
        closed = (logits == -math.inf).expand(torch.broadcast_shapes(logits.shape, x.shape))
        outside = (closed & (x > -math.inf)).any(-1)  # such a bit is 0 for certain
        x = torch.where(closed, 0.0, x)
        z = self._tau * x - logits.masked_fill(logits == -math.inf, 0.0)
        log_tau = torch.log(torch.as_tensor(self._tau, dtype=x.dtype, device=x.device))
        # log y + log(1 - y) = logsigmoid(x) + logsigmoid(-x); -log(1 + e^-z) = logsigmoid(z)
        terms = log_tau - z + 2 * logsigmoid(z) - logsigmoid(x) - logsigmoid(-x)
        total = torch.where(closed, 0.0, terms).sum(-1)
        return total.masked_fill(outside, -math.inf).to(self.logits.dtype)

    def log_prob(self, value: Float[Tensor, "*shape"]) -> Float[Tensor, "*batch"]:
        r"""$\log p(y)$ of Eq. (1)."""
        logit = self._recall(value)
        if logit is None:
            self._check_value(value)
            y = widen(value)
            logit = torch.log(y) - torch.log1p(-y)
        return self.log_prob_logit(logit)

    def _check_value(self, value: Tensor) -> None:
        check_floating(f"{type(self).__name__}.log_prob", "value", value)
        super()._check_value(value)
        if not self._validate_args or not can_read(value, self.logits):
            return
        edge = ((value <= 0) & (self.logits > -math.inf)) | (value < 0) | (value >= 1)
        if bool(edge.any()):
            raise InputError(
                "`RelaxedBits.log_prob(value=...)` must be strictly between 0 and 1; got values outside or "
                "at the ends, where float rounding puts them. Draw with `rsample_logit` and score with "
                "`log_prob_logit`."
            )


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
