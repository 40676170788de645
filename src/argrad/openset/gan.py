r"""Confident classifiers by adversarial training (Lee et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from argrad import random
from argrad._checks import check_count, check_finite, check_floating, fail
from argrad._types import Float, Generator, Int
from argrad.losses.confidence import ConfidenceLoss


def pull_away(x: Float[Tensor, "m ..."]) -> Float[Tensor, ""]:
    r"""How alike the samples of a batch are: the mean squared cosine between two of them.

    $$ \frac{1}{M(M-1)} \sum_{i \ne j} \Big(\frac{x_i^\top x_j}{\|x_i\| \|x_j\|}\Big)^2 $$
    From 0 (all orthogonal) to 1 (all on one line). As a penalty it keeps a generator from making one sample only.

    Examples:
        >>> import torch, argrad as ag
        >>> [round(ag.openset.pull_away(x).item(), 4) for x in (torch.eye(3), torch.ones(3, 2))]
        [0.0, 1.0]

    References: [zhao2017].
    """
    check_floating("pull_away", "x", x)
    if x.dim() < 2 or len(x) < 2 or x[0].numel() == 0:
        raise fail("pull_away", "x", "must hold at least two samples", f"shape {tuple(x.shape)}", "")
    check_finite("pull_away", "x", x)
    flat = x.flatten(1)
    # first to size 1, so that squares of small samples do not underflow; a zero is orthogonal to everything
    size = flat.detach().abs().amax(-1, keepdim=True)
    flat = flat / torch.where(size == 0, 1.0, size)
    unit = (
        flat / (flat**2).sum(-1, keepdim=True).clamp(min=0.5).sqrt()
    )  # at least 1, or the sample is 0
    cosine = (unit @ unit.mT) ** 2
    m = len(flat)
    return (cosine.sum() - cosine.diagonal().sum()) / (m * (m - 1))


@dataclass(frozen=True)
class GanStep:
    """The losses of one step, without gradient.

    Examples:
        >>> import argrad as ag
        >>> ag.openset.GanStep(1.386, -0.7, 0.5)
        GanStep(discriminator=1.386, generator=-0.7, classifier=0.5)
    """

    discriminator: float
    generator: float
    classifier: float


class ConfidentGAN(nn.Module):
    r"""A generator of near outliers, trained together with the classifier that must not be confident there.

    One step is three, each with fresh noise $\zeta$ (with $D$ the probability of "real"):

    $$ \begin{aligned}
       D:&\ \max\ \tfrac1M \textstyle\sum_i \log D(x_i) + \log(1 - D(G(\zeta_i))) \\
       G:&\ \min\ \tfrac1M \textstyle\sum_i \log(1 - D(G(\zeta_i))) + \beta\, o(G(\zeta_i))
           + \gamma\, \mathrm{PT}(G(\zeta)) \\
       \theta:&\ \min\ \tfrac1M \textstyle\sum_i -\log p_\theta(y_i | x_i) + \beta\, o(G(\zeta_i))
       \end{aligned} $$
    $o$ is the outlier term of the `ConfidenceLoss` (in the paper $\mathrm{KL}(U \| p_\theta)$): small where the
    classifier is unsure, so that $G$ is drawn to the border of the data, and PT is `pull_away`. Read
    [what failed](../softmax/what_failed.md) before relying on it: trained jointly from scratch it missed the border in
    our experiments; `Shell` is simpler and found it.

    Args:
        classifier: inputs to logits.
        generator: noise `(m, noise_dim)` to inputs.
        discriminator: inputs to one logit each, positive for "real".
        noise_dim: numbers a sample of the generator.
        loss: a `ConfidenceLoss`, whose `beta` is $\beta$.
        pull_away: $\gamma$, the weight of the pull-away term.
        non_saturating: let G minimise $-\log D$ instead of $\log(1 - D)$, as the authors' code does.

    Examples:
        >>> import torch, argrad as ag
        >>> from torch import nn
        >>> gan = ag.openset.ConfidentGAN(nn.Linear(2, 3), nn.Linear(4, 2), nn.Linear(2, 1), noise_dim=4)
        >>> adams = gan.optimizers(1e-3)
        >>> step = gan.step(torch.randn(8, 2), torch.zeros(8, dtype=torch.long), adams)
        >>> 0 < step.discriminator < 10
        True

    References: [lee2018], [zhao2017].
    """

    def __init__(
        self,
        classifier: nn.Module,
        generator: nn.Module,
        discriminator: nn.Module,
        *,
        noise_dim: int,
        loss: ConfidenceLoss | None = None,
        pull_away: float = 1.0,
        non_saturating: bool = False,
    ) -> None:
        super().__init__()
        self.classifier, self.generator, self.discriminator = classifier, generator, discriminator
        self.noise_dim = check_count(
            "ConfidentGAN", "noise_dim", noise_dim, 1, None, "Numbers a sample."
        )
        self.loss = ConfidenceLoss("kl") if loss is None else loss
        self.pull_away, self.non_saturating = pull_away, non_saturating

    def noise(self, m: int, like: Tensor, generator: Generator = None) -> Tensor:
        """Standard normal noise for m samples."""
        options = {"dtype": like.dtype, "device": like.device, "generator": generator}
        return random.normal((m, self.noise_dim), **options)

    def discriminator_loss(self, x: Tensor, noise: Tensor) -> Tensor:
        """Real against generated; no gradient reaches the generator."""
        fake = self.generator(noise).detach()
        real = logsigmoid(self.discriminator(x)).mean()
        return -real - logsigmoid(-self.discriminator(fake)).mean()

    def generator_loss(self, noise: Tensor) -> Tensor:
        """Look real, be unclear to the classifier, and do not repeat yourself."""
        fake = self.generator(noise)
        score = self.discriminator(fake)
        fool = -logsigmoid(score).mean() if self.non_saturating else logsigmoid(-score).mean()
        unclear = self.loss.beta * self.loss.outlier(self.classifier(fake)).mean()
        alike = self.pull_away * pull_away(fake) if self.pull_away else 0.0
        return fool + unclear + alike

    def classifier_loss(self, x: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        """The `ConfidenceLoss` with generated outliers; no gradient reaches the generator."""
        fake = self.generator(noise).detach()
        return self.loss(self.classifier(x), labels, self.classifier(fake))

    def optimizers(self, lr: float = 2e-4) -> tuple[torch.optim.Optimizer, ...]:
        """Adam for discriminator, generator and classifier, with the settings of the paper."""
        betas = (0.5, 0.999)
        return (
            torch.optim.Adam(self.discriminator.parameters(), lr=lr, betas=betas),
            torch.optim.Adam(self.generator.parameters(), lr=lr, betas=betas),
            torch.optim.Adam(self.classifier.parameters(), lr=lr),
        )

    def step(
        self,
        x: Float[Tensor, "m ..."],
        labels: Int[Tensor, " m"],
        optimizers: tuple[torch.optim.Optimizer, ...],
        *,
        generator: Generator = None,
    ) -> GanStep:
        """All three steps on one batch, in the order of the paper."""
        noise = [self.noise(len(x), x, source) for source in random.split(generator, 3)]
        losses = [
            lambda: self.discriminator_loss(x, noise[0]),
            lambda: self.generator_loss(noise[1]),
            lambda: self.classifier_loss(x, labels, noise[2]),
        ]
        values = []
        for loss, optimizer in zip(losses, optimizers, strict=True):
            self.zero_grad(
                set_to_none=True
            )  # a loss also reaches parts that its optimiser leaves alone
            value = loss()
            value.backward()
            optimizer.step()
            values.append(value.item())
        return GanStep(*values)
