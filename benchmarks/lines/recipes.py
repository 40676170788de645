"""A training step of the categorical VAE (batch 100), beside the same model written in the usual way.

The first line has the step alone, on one and the same batch; the second what a run does, a new batch for every step:
ours picks rows of a tensor of bytes, the usual way is torch's `DataLoader`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.line import Line, Speedup, Step

Setup = Callable[[], Step]
BATCH, PIXELS, VARIABLES, CLASSES, HIDDEN = 100, 784, 20, 10, 200


def _images() -> Tensor:
    return (torch.rand(BATCH, PIXELS, generator=torch.Generator().manual_seed(1)) > 0.8).float()


def _always(x: Tensor) -> Callable[[], Tensor]:
    return lambda: x


def _many() -> Tensor:
    return (torch.rand(20_000, PIXELS, generator=torch.Generator().manual_seed(1)) > 0.8).to(
        torch.uint8
    )


def _ours_on(batch: Callable[[], Tensor], *, compiled: bool = False) -> Step:
    from argrad.recipes import vae
    from argrad.recipes.columns import WAYS, Layer
    from argrad.recipes.training import Adam, gradients

    x, noise = batch(), None if compiled else torch.Generator().manual_seed(2)
    layer = Layer(VARIABLES, CLASSES)
    torch.manual_seed(0)
    model = vae.Vae(layer, PIXELS, HIDDEN, x.mean(0))
    way = WAYS["Gumbel-softmax"](layer, 1000)
    optimizer = Adam(model.parameters(), 1e-3)
    backward = gradients(vae.negative_elbo, model, compiled=compiled, pure=way.is_pure)

    def step() -> Tensor:
        model.slope, estimator = way.at(0, traced=compiled)
        optimizer.zero_grad()
        loss = backward(estimator, batch(), noise)
        optimizer.step()
        return loss

    return step


class _Usual(nn.Module):
    """As tutorials write it."""

    mean: Tensor

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


def _ours() -> Step:
    return _ours_on(_always(_images()))


def _ours_compiled() -> Step:
    return _ours_on(_always(_images()), compiled=True)


def _ours_with_batches() -> Step:
    from argrad.recipes.training import Shuffled

    batches = Shuffled(_many(), BATCH, torch.Generator().manual_seed(3))
    return _ours_on(lambda: batches.next().float())


def _usual_on(batch: Callable[[], Tensor], *, compiled: bool = False) -> Step:
    x = batch()
    torch.manual_seed(0)
    model = _Usual(x.mean(0))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loss_of = torch.compile(model.loss) if compiled else model.loss

    def step() -> Tensor:
        loss = loss_of(batch())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _usual() -> Step:
    return _usual_on(_always(_images()))


def _usual_compiled() -> Step:
    return _usual_on(_always(_images()), compiled=True)


def _usual_with_batches() -> Step:
    loader = DataLoader(TensorDataset(_many().float()), batch_size=BATCH, shuffle=True)

    def forever() -> Iterator[Tensor]:
        while True:
            for (x,) in loader:
                yield x

    batches = forever()
    return _usual_on(lambda: next(batches))


def _same_loss(ours: Tensor, usual: Tensor) -> None:
    """Two training runs of the same model on the same batch, with different noise."""
    assert 0.5 < float(ours) / float(usual) < 2.0, (ours, usual)


def _line(name: str, ours: Setup, peer: Setup, extra: str = "", goal: float | None = 1.5) -> Line:
    return Line(
        name=f"categorical VAE training{name}",
        ours=ours,
        peer=peer,
        peer_name=f"F.gumbel_softmax, Adam{extra}",
        package="torch",
        check=_same_loss,
        goals={} if goal is None else {2: Speedup(goal)},
    )


LINES = (
    _line(" step, batch 100", _ours, _usual),
    _line(" step, batch 100, ours compiled", _ours_compiled, _usual),
    _line(" step, batch 100, both compiled", _ours_compiled, _usual_compiled, ", torch.compile", None),
    _line(", a new batch each step", _ours_with_batches, _usual_with_batches, ", DataLoader"),
)
