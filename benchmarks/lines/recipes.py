"""A training step of the categorical VAE (batch 100), beside the same model written in the usual way."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.line import Line, Speedup, Step

BATCH, PIXELS, VARIABLES, CLASSES, HIDDEN = 100, 784, 20, 10, 200


def _images() -> Tensor:
    return (torch.rand(BATCH, PIXELS, generator=torch.Generator().manual_seed(1)) > 0.8).float()


def _ours() -> Step:
    from argrad.recipes import vae
    from argrad.recipes.columns import WAYS, Layer

    x, noise = _images(), torch.Generator().manual_seed(2)
    layer = Layer(VARIABLES, CLASSES)
    torch.manual_seed(0)
    model = vae.Vae(layer, PIXELS, HIDDEN, x.mean(0))
    way = WAYS["Gumbel-softmax"](layer, 1000)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)

    def step() -> Tensor:
        loss = vae.negative_elbo(model, way, x, 0, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class _Usual(nn.Module):
    """As tutorials write it."""

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.encoder = nn.Linear(PIXELS, VARIABLES * CLASSES)
        self.decoder = nn.Sequential(
            nn.Linear(VARIABLES * CLASSES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS)
        )
        self.register_buffer("mean", mean)

    def loss(self, x: Tensor) -> Tensor:
        logits = self.encoder(x - self.mean).view(-1, VARIABLES, CLASSES)
        z = F.gumbel_softmax(logits, tau=1.0)
        pixels = self.decoder(z.flatten(1))
        cost = F.binary_cross_entropy_with_logits(pixels, x, reduction="sum") / len(x)
        q = F.softmax(logits, -1)
        kl = torch.sum(q * (torch.log(q + 1e-20) + math.log(CLASSES)), dim=(1, 2)).mean()
        return cost + kl


def _usual() -> Step:
    x = _images()
    torch.manual_seed(0)
    model = _Usual(x.mean(0))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> Tensor:
        loss = model.loss(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _same_loss(ours: Tensor, usual: Tensor) -> None:
    """Two training runs of the same model on the same batch, with different noise."""
    assert 0.5 < float(ours) / float(usual) < 2.0, (ours, usual)


LINES = (
    Line(
        name="categorical VAE training step, batch 100",
        ours=_ours,
        peer=_usual,
        peer_name="F.gumbel_softmax, Adam",
        package="torch",
        check=_same_loss,
        goals={2: Speedup(1.5)},
    ),
)
