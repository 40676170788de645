"""The data and the model of the demo: 8x8 digits, and a VAE whose latent variables are choices."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from argrad.recipes.likelihood import bernoulli_nll

SIDE = 8  # pixels
TRAIN = 1500  # images; the other 297 are the test set


def load_digits(seed: int) -> tuple[Tensor, Tensor]:
    """Training and test images of scikit-learn's digits, shapes `(*, 64)`, black (1) from half intensity on."""
    from sklearn.datasets import load_digits

    pixels, _ = load_digits(return_X_y=True)  # from 0 to 16
    images = torch.as_tensor(pixels).ge(8).float()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images[order[:TRAIN]], images[order[TRAIN:]]


class CategoricalVAE(nn.Module):
    r"""$q(z|x)$: `latents` independent choices among `classes`; $p(z)$ uniform; $p(x|z)$ Bernoulli pixels.

    References: [kingma2014], [jang2017].
    """

    def __init__(self, latents: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.latents, self.classes = latents, classes
        pixels, code = SIDE * SIDE, latents * classes
        self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

    def encode(self, x: Tensor) -> Tensor:
        """Logits of the choices, shape `(*batch, latents, classes)`."""
        return self.encoder(x).unflatten(-1, (self.latents, self.classes))

    def decode(self, z: Tensor) -> Tensor:
        """Probability of black for each pixel."""
        return self.decoder(z.flatten(-2)).sigmoid()

    def cost(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        r"""The function $z \mapsto -\log p(x|z)$ of samples `(S, *batch, latents, classes)`."""

        def f(z: Tensor) -> Tensor:
            return bernoulli_nll(self.decoder(z.flatten(-2)), x)

        return f

    @staticmethod
    def kl(logits: Tensor) -> Tensor:
        r"""$\mathrm{KL}(q(z|x) \| p(z))$, exact: $\sum_i \log K - H(q_i)$."""
        log_q = logits.log_softmax(-1)
        return (log_q.exp() * (log_q + math.log(logits.shape[-1]))).sum((-2, -1))
