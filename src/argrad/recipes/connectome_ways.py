r"""Ways to find the names of neurons and the weights between them: variational, and by Markov chain.

All see the same recordings, the same wiring, known names and excluded names (`mask`), and the same prior
$W_{ij} \sim N(0, 1/\lambda)$ on the wires.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import argrad as ag
from argrad.recipes.connectome_model import Worms, in_order, misfit, posterior_of_weights

# ---- variational ---------------------------------------------------------------------------------------


class Belief(nn.Module):
    r"""$q(P)$ by perturbed scores, and a point for W.

    Args:
        worms: what is known.
        structure: `Permutation` (Gumbel-Sinkhorn), or `OneHot`: each channel by itself, names may be given twice.
    """

    def __init__(self, worms: Worms, structure: ag.Structure) -> None:
        super().__init__()
        self.structure, self.worms = structure, worms
        self.scores = nn.Parameter(torch.zeros(worms.mask.shape))
        self.weights = nn.Parameter(torch.zeros(worms.adjacency.shape))

    def law(self) -> ag.Perturbed:
        """$q(P)$."""
        return ag.Perturbed(self.structure, self.scores, mask=self.worms.mask)

    def loss(
        self, tau: float, samples: int, ridge: float, regularized: bool, noise: torch.Generator
    ) -> Tensor:
        r"""$\mathbb{E}_q[-\log p(Y | P, W)] - \log p(W)$, plus the KL of the noise to that of scores 0 if wanted.

        Divided by the number of observations, so that one learning rate suits all sizes.
        """
        weights, q = self.weights * self.worms.adjacency, self.law()
        fit = misfit(q.rsample((samples,), tau=tau, generator=noise), weights, self.worms)
        kl = q.noise_kl().sum() if regularized else 0.0
        total = fit.mean(0).sum() + 0.5 * ridge * weights.square().sum() + kl
        return total / (self.worms.steps * self.worms.names.numel())

    def matching(self) -> Tensor:
        """The best permutation of each worm under the scores."""
        return ag.Permutation().argmax(self.scores.detach(), mask=self.worms.mask)


# ---- Markov chain Monte Carlo --------------------------------------------------------------------------


class Chain(nn.Module):
    """Gibbs steps for W, Metropolis steps that exchange two names within a worm.

    Args:
        worms: what is known.
        generator: of the first names, which are random among those allowed.
    """

    channels: Tensor  # of every neuron, `(worms, n)`
    visits: Tensor  # how often a channel had a name, `(worms, n, n)`

    def __init__(self, worms: Worms, generator: torch.Generator) -> None:
        super().__init__()
        self.worms = worms
        noise = torch.rand(worms.mask.shape, generator=generator)
        p = ag.Permutation().argmax(noise, mask=worms.mask)
        self.register_buffer("channels", p.argmax(-2))
        self.register_buffer("visits", torch.zeros(worms.mask.shape))

    def sweep(self, ridge: float, generator: torch.Generator) -> Tensor:
        """Draw W, then try as many exchanges as a worm has neurons; returns the log-likelihood up to a constant."""
        mean, factor = posterior_of_weights(self.channels, self.worms, ridge)
        normal = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        off = torch.linalg.solve_triangular(factor.mT, normal[..., None], upper=True)[..., 0]
        weights = (mean + off) * self.worms.adjacency
        fit = log_likelihood(self.channels, weights, self.worms)
        for _ in range(self.channels.shape[-1]):
            proposed = self._exchange(generator)
            new = log_likelihood(proposed, weights, self.worms)
            accept = torch.rand(len(fit), generator=generator).log() < new - fit
            self.channels = torch.where(accept[:, None], proposed, self.channels)
            fit = torch.where(accept, new, fit)
        return fit.sum()

    def _exchange(self, generator: torch.Generator) -> Tensor:
        """The names of two channels of each worm changed, as they are if that is not allowed.

        A neuron is drawn, then one that its channel may be. As the channel of the second must be allowed to be the
        first, the way back has the same chance.
        """
        worm = torch.arange(len(self.channels))
        free = ~self.worms.known.gather(-1, self.channels)  # by neuron
        one = torch.rand(free.shape, generator=generator).masked_fill(~free, -1.0).argmax(-1)
        may = self.worms.mask[worm, self.channels[worm, one]]
        other = torch.rand(may.shape, generator=generator).masked_fill(~may, -1.0).argmax(-1)
        a, b = self.channels[worm, one], self.channels[worm, other]
        ok = self.worms.mask[worm, b, one]
        proposed = self.channels.clone()
        proposed[worm, one], proposed[worm, other] = torch.where(ok, b, a), torch.where(ok, a, b)
        return proposed

    def count(self) -> None:
        """Remember the names of now."""
        names = self.channels.argsort(-1)
        self.visits.scatter_add_(-1, names[..., None], torch.ones_like(names[..., None]).float())

    def matching(self) -> Tensor:
        """The permutation whose names were visited most often."""
        return ag.Permutation().argmax(self.visits, mask=self.worms.mask)


def log_likelihood(channels: Tensor, weights: Tensor, worms: Worms) -> Tensor:
    r"""$\langle W, S_{10} \rangle - \tfrac12 \langle W^\top W, S_{00} \rangle$, both in the order of neurons."""
    gram = weights.mT @ weights
    linear = (weights * in_order(worms.s10, channels)).sum((-2, -1))
    return linear - 0.5 * (gram * in_order(worms.s00, channels)).sum((-2, -1))
