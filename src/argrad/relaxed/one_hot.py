"""The Concrete distribution."""

from __future__ import annotations

import math
import weakref

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.constraints import Constraint

from argrad import random
from argrad._checks import can_read, check_floating, check_no_overflow, fail
from argrad._errors import InputError
from argrad._numerics import logsumexp, widen
from argrad._types import Float, Generator, Shape
from argrad.relaxed.base import FromLogits

_Remembered = tuple[weakref.ref[Tensor], int, Tensor]  # a sample, its version, its logarithm


class RelaxedOneHot(FromLogits):
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
        check_no_overflow("RelaxedOneHot.log_prob", "logits", self.logits, result)
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
