r"""The semi-supervised VAE of the recipe `ssvae` and its objective: an image of class $y$ in a style $z$.

$$ p(x, y, z) = \tfrac1K\, N(z; 0, I)\, p(x|y, z), \qquad q(y, z|x) = q(y|x)\, N(z; \mu(x, y), \sigma^2(x, y)) $$

Encoder and decoder meet $y$ in one layer, $\mathrm{relu}(h + W y)$ with $h$ from $x$ or $z$. What depends on $x$
alone is computed once for all classes, so marginalisation is as cheap as this model allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import kl_divergence
from torch.nn.functional import cross_entropy, one_hot, relu

import argrad as ag
from argrad.recipes.likelihood import bernoulli_nll
from argrad.reparam import Normal

Network = Literal["dense", "mixed", "conv"]


class SemiSupervisedVae(nn.Module):
    """Classifier, encoder and decoder.

    Args:
        network: `conv`: three convolutions in classifier and encoder, four transposed ones in the decoder, for
            28 x 28 pixels; `mixed`: a small convolutional classifier, the rest dense; `dense`: all dense.
        side: pixels of an edge.
        classes: of y.
        hidden: units of the dense layers.
        latent: size of z.
    """

    def __init__(self, network: Network, side: int, classes: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.classes, self.latent = classes, latent
        pixels, conv = side * side, network == "conv"
        self.classifier = (
            nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, classes))
            if network == "dense"
            else convolutions(side, 16 if conv else 8, classes)
        )
        self.image = convolutions(side, 16, hidden) if conv else nn.Linear(pixels, hidden)
        self.image_label = nn.Linear(classes, hidden, bias=False)
        self.posterior = nn.Linear(hidden, 2 * latent)
        self.style = nn.Linear(latent, hidden)
        self.style_label = nn.Linear(classes, hidden, bias=False)
        self.pixels = Painter(hidden, 16) if conv else nn.Linear(hidden, pixels)

    def decode(self, y: Tensor, z: Tensor) -> Tensor:
        """Logits of the pixels for classes `(*batch, classes)`, which may be soft, and styles `(*batch, latent)`."""
        return self.pixels(relu(self.style(z) + self.style_label(y)))

    def style_given(self, h: Tensor, y: Tensor) -> Normal:
        """$q(z|x, y)$, from `h = image(x)`."""
        mu, log_sigma = self.posterior(relu(h + self.image_label(y))).chunk(2, -1)
        return Normal(mu, log_sigma.exp(), validate_args=False)

    def cost(self, x: Tensor, h: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        r"""A bound on $-\log p(x, y)$, by one draw of $z$, for classes `y` of shape `(S, batch, classes)`.

        $\mathbb{E}_{q(z|x,y)}[-\log p(x|y, z)] + \mathrm{KL}(q(z|x, y) \| p(z)) + \log K$, shape `(S, batch)`, with
        `h = image(x)`.
        """
        q = self.style_given(h, y)
        z = q.rsample(generator=generator)
        nll = bernoulli_nll(self.decode(y, z), x)
        prior = Normal(torch.zeros_like(z), torch.ones_like(z), validate_args=False)
        return nll + kl_divergence(q, prior).sum(-1) + math.log(self.classes)


def convolutions(side: int, width: int, out: int) -> nn.Sequential:
    """Three convolutions, each followed by a pooling that halves the edge, then a dense layer; flat pixels in."""
    edge = (side + 7) // 8

    def halve(before: int, after: int, size: int) -> tuple[nn.Module, ...]:
        conv = nn.Conv2d(before, after, size, padding=size // 2)
        return conv, nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)

    return nn.Sequential(
        nn.Unflatten(-1, (1, side, side)),
        *halve(1, width, 5),
        *halve(width, 2 * width, 5),
        *halve(2 * width, 4 * width, 3),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(4 * width * edge * edge, out),
    )


class Painter(nn.Module):
    """A dense layer and four transposed convolutions: from `(*batch, hidden)` to `(*batch, 28 * 28)`."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Linear(hidden, 4 * width * 16), nn.ReLU(), nn.Unflatten(-1, (4 * width, 4, 4))),
            *(nn.ConvTranspose2d(4 * width, 2 * width, 3, stride=2, padding=1), nn.ReLU()),  # 7 x 7
            *(nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.ReLU()),  # 14 x 14
            *(nn.ConvTranspose2d(width, width, 4, stride=2, padding=1), nn.ReLU()),  # 28 x 28
            *(nn.ConvTranspose2d(width, 1, 3, padding=1), nn.Flatten()),
        )

    def forward(self, h: Tensor) -> Tensor:
        """Logits of the pixels."""
        return self.net(h.flatten(0, -2)).unflatten(0, h.shape[:-1])


# ---- the objective -----------------------------------------------------------------------------------


def estimator(column: str, tau: float) -> ag.Estimator:
    """The gradient through y; all have the same cost function."""
    if column == "Gumbel-softmax":
        return ag.Relaxed(tau=tau)
    return ag.GumbelST(tau=tau) if column == "ST Gumbel-softmax" else ag.Exact()


@dataclass(frozen=True)
class Batch:
    """Images without and with label, binarised."""

    x: Tensor
    labelled: Tensor
    labels: Tensor


def loss(
    model: SemiSupervisedVae,
    batch: Batch,
    way: ag.Estimator,
    generator: torch.Generator,
    *,
    alpha: float,
    share: float,
    pull: float = 1.0,
) -> Tensor:
    r"""Mean of $\mathcal{U}$, plus `share` of the mean of $\mathcal{L}$, plus `alpha` of the mean of $-\log q(y|x)$.

    `pull` is the share of the gradient of $\mathcal{U}$ that reaches $q(y|x)$.
    """
    count = [len(batch.x), len(batch.labelled)]
    both = torch.cat([batch.x, batch.labelled])
    logits, known_logits = model.classifier(both).split(count)
    h, known_h = model.image(both).split(count)
    q = ag.Gibbs(ag.OneHot(), torch.lerp(logits.detach(), logits, pull))
    free = way(lambda y: model.cost(batch.x, h, y, generator), q, generator=generator) - q.entropy()
    y = one_hot(batch.labels, model.classes).to(h)
    known = model.cost(batch.labelled, known_h, y[None], generator)
    return free.mean() + share * known.mean() + alpha * cross_entropy(known_logits, batch.labels)
