r"""The Gaussian VAE of the recipe `gaussian-vae`, and its ways of getting a gradient through the sample.

A way takes the cost `f` of samples `(S, batch, latent)` and the law $q$; its value estimates $\mathbb{E} f$, shape
`(batch,)`, and its backward pass the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import kl_divergence

from argrad.recipes.likelihood import bernoulli_nll
from argrad.reparam import Normal


class Vae(nn.Module):
    """784-200-200-50-200-200-784; the output's bias begins at the log-odds of the pixels' mean."""

    def __init__(self, pixels: int, hidden: Sequence[int], latent: int, mean: Tensor) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(
            *_tanh(pixels, *hidden), nn.Linear([pixels, *hidden][-1], 2 * latent)
        )
        last = nn.Linear([*hidden, latent][0], pixels)
        with torch.no_grad():
            last.bias.copy_(mean.clamp(0.01, 0.99).logit())
        self.decoder = nn.Sequential(*_tanh(latent, *reversed(hidden)), last)

    def encode(self, x: Tensor) -> Normal:
        r"""$q(z|x) = N(\mu(x), \sigma^2(x))$, batch shape `(batch, latent)`."""
        return self.law(self.encoder(x))

    @staticmethod
    def law(encoded: Tensor) -> Normal:
        r"""$q$ from $\mu$ and $\log \sigma$ side by side."""
        mu, log_sigma = encoded.chunk(2, -1)
        # unchecked: a sigma that REINFORCE drives to 0 or infinity is a result, not a mistake in the call
        return Normal(mu, log_sigma.exp(), validate_args=False)

    def cost(self, z: Tensor, x: Tensor) -> Tensor:
        r"""$-\log p(x|z)$ of samples `(S, batch, latent)`, shape `(S, batch)`."""
        return bernoulli_nll(self.decoder(z), x)


def _tanh(*sizes: int) -> list[nn.Module]:
    return [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]


def kl(q: Normal) -> Tensor:
    r"""$\mathrm{KL}(q \| N(0, I)) = \frac12 \sum_k (\sigma_k^2 + \mu_k^2 - 1 - \log \sigma_k^2)$, shape `(batch,)`."""
    return kl_divergence(q, prior(q)).sum(-1)


def prior(q: Normal) -> Normal:
    r"""$N(0, I)$ of the same size."""
    return Normal(torch.zeros_like(q.loc), torch.ones_like(q.loc), validate_args=False)


# ---- the columns -------------------------------------------------------------------------------------

Cost = Callable[[Tensor], Tensor]


class PathWay(nn.Module):
    r"""Reparameterisation: $\nabla f(\mu + \sigma \epsilon)$."""

    def forward(self, f: Cost, q: Normal, generator: torch.Generator) -> Tensor:
        """The estimate."""
        return f(q.rsample((1,), generator=generator)).mean(0)


class ScoreWay(nn.Module):
    r"""REINFORCE: $(f(z) - b)\, \nabla \log q(z)$.

    Args:
        samples: draws an image.
        baseline: $b$: nothing, the running mean of past costs, or the mean cost of the image's other draws.
    """

    mean: Tensor

    def __init__(self, samples: int, baseline: Literal["none", "running", "others"]) -> None:
        super().__init__()
        self.samples, self.baseline = samples, baseline
        self.register_buffer("mean", torch.tensor(torch.nan))

    def forward(self, f: Cost, q: Normal, generator: torch.Generator) -> Tensor:
        """The estimate."""
        z = q.sample((self.samples,), generator=generator)
        cost, log_q = f(z), q.log_prob(z).sum(-1)
        score = log_q - log_q.detach()  # 0 with the right gradient
        return (cost + self.advantage(cost.detach()) * score).mean(0)

    def advantage(self, cost: Tensor) -> Tensor:
        """The cost less its baseline."""
        if self.baseline == "others":
            others = (cost.sum(0) - cost) / (len(cost) - 1)
            return cost - others
        if self.baseline == "none":
            return cost
        seen = torch.where(self.mean.isnan(), cost.mean(), self.mean)
        if self.training:
            self.mean.copy_(0.95 * seen + 0.05 * cost.mean())
        return cost - seen


WAYS: dict[str, Callable[[], PathWay | ScoreWay]] = {
    "reparameterisation": PathWay,
    "REINFORCE": partial(ScoreWay, 1, "none"),
    "REINFORCE with running mean": partial(ScoreWay, 1, "running"),
    "LeaveOneOut(4)": partial(ScoreWay, 4, "others"),
}
