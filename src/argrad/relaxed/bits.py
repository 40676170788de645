"""The binary Concrete distribution."""

from __future__ import annotations

import math
import weakref

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.constraints import Constraint
from torch.nn.functional import logsigmoid

from argrad import random
from argrad._checks import can_read, check_floating, check_no_overflow, check_scores, fail
from argrad._errors import InputError
from argrad._numerics import widen
from argrad._types import Float, Generator, Shape
from argrad.relaxed.base import FromLogits

_Remembered = tuple[weakref.ref[Tensor], int, Tensor]  # a sample, its version, its logarithm


class RelaxedBits(FromLogits):
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
        check_no_overflow("RelaxedBits.log_prob", "logits", self.logits, total)
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
