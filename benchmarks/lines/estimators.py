"""Gradient estimators: what the contract costs, beside the same step written by hand and beside storchastic."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import argrad as ag
from benchmarks.line import Line, Speedup, Step, both
from benchmarks.lines import three_bits

BATCH, LATENTS, CLASSES, PIXELS = 100, 20, 10, 784


class Vae(nn.Module):
    """784 - 512 - 256 - (20 x 10) - 256 - 512 - 784, as in the notebook of Jang et al."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(
            nn.Linear(PIXELS, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, LATENTS * CLASSES),
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENTS * CLASSES, 256),
            nn.ReLU(),
            nn.Linear(256, 512),
            nn.ReLU(),
            nn.Linear(512, PIXELS),
        )

    def logits(self, x: Tensor) -> Tensor:
        return self.encoder(x).view(-1, LATENTS, CLASSES)

    def cost(self, z: Tensor, x: Tensor) -> Tensor:
        decoded = self.decoder(z.flatten(-2))
        return F.binary_cross_entropy_with_logits(decoded, x.expand_as(decoded), reduction="none").sum(
            -1
        )

    def kl(self, logits: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        return (log_p.exp() * (log_p + torch.tensor(float(CLASSES)).log())).sum((-2, -1))


def _vae_step(loss: Callable[[Vae, Tensor], Tensor]) -> Step:
    model = Vae()
    x = (torch.rand(BATCH, PIXELS, generator=torch.Generator().manual_seed(1)) > 0.7).float()

    def step() -> Tensor:
        for p in model.parameters():
            p.grad = None
        value = loss(model, x)
        value.backward()
        return value.detach()

    return step


def _by_estimator(estimator: ag.Estimator) -> Callable[[Vae, Tensor], Tensor]:
    def loss(model: Vae, x: Tensor) -> Tensor:
        logits = model.logits(x)
        q = ag.Gibbs(ag.OneHot(), logits).independent(1)
        return (estimator(lambda z: model.cost(z, x), q) + model.kl(logits)).mean()

    return loss


def _gumbel_st_by_hand(model: Vae, x: Tensor) -> Tensor:
    logits = model.logits(x)
    z = F.gumbel_softmax(logits, tau=1.0, hard=True)
    return (model.cost(z, x) + model.kl(logits)).mean()


def _reinmax_by_hand(model: Vae, x: Tensor) -> Tensor:
    logits = model.logits(x)
    p = logits.softmax(-1)
    index = torch.multinomial(p.detach().view(-1, CLASSES), 1).view(BATCH, LATENTS, 1)
    hard = torch.zeros_like(p).scatter_(-1, index, 1.0)
    middle = 0.5 * (p + hard).detach()
    middle = (middle.log() - logits.detach() + logits).softmax(-1)
    soft = 2 * middle - 0.5 * p
    z = hard + (soft - soft.detach())
    return (model.cost(z, x) + model.kl(logits)).mean()


def _leave_one_out() -> Step:
    model = Vae()
    x = torch.rand(BATCH, PIXELS, generator=torch.Generator().manual_seed(1))
    scores = torch.randn(
        BATCH, LATENTS, CLASSES, generator=torch.Generator().manual_seed(2)
    ).requires_grad_()
    q = ag.Gibbs(ag.OneHot(), scores).independent(1)

    def step() -> Tensor:
        scores.grad = None
        model.zero_grad()
        value = ag.LeaveOneOut(4)(lambda z: model.cost(z, x), q).mean()
        value.backward()
        return value.detach()

    return step


def _four_evaluations() -> Step:
    model = Vae()
    x = torch.rand(BATCH, PIXELS, generator=torch.Generator().manual_seed(1))
    index = torch.randint(CLASSES, (4, BATCH, LATENTS), generator=torch.Generator().manual_seed(2))
    z = F.one_hot(index, CLASSES).float()

    def step() -> Tensor:
        model.zero_grad()
        value = model.cost(z, x).mean()
        value.backward()
        return value.detach()

    return step


def _check_losses(ours: Tensor, peer: Tensor) -> None:
    """The same loss of an untrained model: about 784 log 2, whatever the noise."""
    assert abs(ours - peer) < 0.05 * abs(peer), (ours, peer)


LINES = (
    Line(
        name="VAE step 20 x 10, GumbelST",
        ours=lambda: _vae_step(_by_estimator(ag.GumbelST())),
        peer=lambda: _vae_step(_gumbel_st_by_hand),
        peer_name="by hand, F.gumbel_softmax",
        package="torch",
        check=_check_losses,
        goals=both(Speedup(1 / 1.15)),
    ),
    Line(
        name="VAE step 20 x 10, ReinMax",
        ours=lambda: _vae_step(_by_estimator(ag.ReinMax())),
        peer=lambda: _vae_step(_reinmax_by_hand),
        peer_name="by hand, torch.multinomial",
        package="torch",
        check=_check_losses,
        goals=both(Speedup(1 / 1.15)),
    ),
    Line(
        name="LeaveOneOut(4), cost a 20 x 10 decoder",
        ours=_leave_one_out,
        peer=_four_evaluations,
        peer_name="four evaluations and their backward",
        package="torch",
        check=_check_losses,
        goals=both(Speedup(1 / 1.3)),
    ),
    *three_bits.LINES,
)
