r"""n independent bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from argrad import random
from argrad._checks import is_transformed
from argrad._kernels.threads import run_rows
from argrad._types import Generator, Shape, Tau
from argrad.noise import Logistic, Noise
from argrad.regularizers import BinaryEntropy, Euclidean, ExponentialFamily, Regularizer
from argrad.structures.base import Relaxations, Solver, Solvers, Structure, divided, is_binary


@dataclass(frozen=True)
class Bits(Structure):
    r"""n independent choices of 0 or 1: $Z = \{0, 1\}^n$; the arg max is $\theta_i > 0$.

    | regularizer | soft point | cost |
    |---|---|---|
    | `BinaryEntropy` (default), `ExponentialFamily` | $\sigma(\theta/\tau)$ | O(n) |
    | `Euclidean`, here $\frac12\|z - \frac12\|^2$ | $\theta/\tau + \frac12$ cut to [0, 1] | O(n) |

    The natural noise is logistic: $\theta_i + L_i > 0$ with probability $\sigma(\theta_i)$. A forbidden
    bit (mask or `-inf`) is 0.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.Bits().argmax(torch.tensor([0.3, -0.1, 2.0]))
        tensor([1., 0., 1.])
        >>> ag.Bits().marginals(torch.zeros(2))
        tensor([0.5000, 0.5000])

    References: [maddison2017].
    """

    event_dims: ClassVar[int] = 1
    natural_noise: ClassVar[Noise] = Logistic()
    default_regularizer: ClassVar[Regularizer] = BinaryEntropy()

    def _argmax(self, scores: Tensor) -> Tensor:
        return (scores > 0).to(scores.dtype)

    def contains(self, z: Tensor) -> Tensor:
        """Zeros and ones."""
        self._check_dims("contains", z)
        return is_binary(z, 1)

    def count(self, event_shape: Shape) -> int:
        """2^n."""
        return 2 ** event_shape[-1]

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        n = event_shape[-1]
        return (
            (torch.arange(2**n, device="cpu")[:, None] >> torch.arange(n - 1, -1, -1, device="cpu")) & 1
        ).float()

    def _relaxations(self, tau: Tau) -> Relaxations:
        def both(solve: Solver) -> Callable[[Regularizer], Solvers]:
            return lambda _: (divided(solve, tau), divided(solve, tau))

        return {
            BinaryEntropy: both(torch.sigmoid),
            ExponentialFamily: both(torch.sigmoid),
            Euclidean: both(lambda x: (x + 0.5).clamp(0.0, 1.0)),
        }

    def _regularizer_value(self, regularizer: Regularizer, z: Tensor) -> Tensor:
        centred = z - 0.5 if isinstance(regularizer, Euclidean) else z
        return regularizer.value(centred).sum(-1)

    def _log_partition(self, scores: Tensor) -> Tensor:
        return -logsigmoid(-scores).sum(-1)  # log(1 + e^theta), accurate in float64 too

    def _log_prob(self, z: Tensor, scores: Tensor) -> Tensor:
        # bit by bit, as the sum of all scores may overflow where no difference does
        return (torch.where(z == 0, 0.0, scores) * z + logsigmoid(-scores)).sum(-1)

    def _entropy(self, scores: Tensor) -> Tensor:
        closed = scores == -math.inf
        x = scores.masked_fill(closed, 0.0)
        parts = -logsigmoid(-x) - x * torch.sigmoid(x)  # bit by bit, likewise
        return parts.masked_fill(closed, 0.0).clamp(min=0).sum(-1)

    def _marginals(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(scores)

    def _sample(self, scores: Tensor, sample_shape: torch.Size, generator: Generator) -> Tensor:
        shape = sample_shape + scores.shape
        if scores.is_cpu and scores.dtype in (torch.float32, torch.float64) and not is_transformed():
            return _sample_kernel(scores, shape, generator)
        noise = random.logistic(shape, dtype=scores.dtype, device=scores.device, generator=generator)
        return (scores + noise > 0).to(scores.dtype)


def _sample_kernel(scores: Tensor, shape: torch.Size, generator: Generator) -> Tensor:
    """The same bits without the noise in memory."""
    from argrad._kernels.fill import bits_of

    out = torch.empty(shape, dtype=scores.dtype, device="cpu")
    if out.numel():
        flat, rows = (x.reshape(-1, shape[-1]).numpy() for x in (out, scores.contiguous()))
        run_rows(bits_of, len(flat), flat.size, rows, flat, *random.words(generator))
    return out
