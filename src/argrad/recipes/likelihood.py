r"""The negative log-likelihood of binary pixels, which every VAE recipe trains on.

$$ -\log p(x|z) = \sum_j \mathrm{softplus}(\ell_j) - x_j \ell_j, \qquad
   \frac{\partial}{\partial \ell_j} = \mathrm{sigmoid}(\ell_j) - x_j $$
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


def bernoulli_nll(logits: Tensor, x: Tensor) -> Tensor:
    """Nats of each row of `logits`, `(*samples, batch, pixels)`, for images `x`, `(batch, pixels)`."""
    return binary_cross_entropy_with_logits(logits, x.expand_as(logits), reduction="none").sum(-1)
