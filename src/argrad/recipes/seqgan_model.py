r"""The networks of SeqGAN (Yu et al. 2017): an LSTM that writes, and a convolutional network that judges.

The oracle is an LSTM of the same shape with all weights from $N(0, 1)$: the truth, whose likelihood is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

import argrad as ag

AT_ONCE = 128  # tokens whose logits are made together: more would not fit into the cache


class State(NamedTuple):
    """Of an LSTM, a row for each sequence."""

    h: Tensor
    c: Tensor


class Writer(nn.Module):
    """An LSTM over tokens; the first input is a learned start.

    Args:
        vocabulary: number of tokens.
        length: of every sequence; there is no end token.
        size: of embeddings and of the hidden state.
    """

    def __init__(self, vocabulary: int, length: int, size: int) -> None:
        super().__init__()
        self.vocabulary, self.length, self.size = vocabulary, length, size
        self.embed = nn.Embedding(vocabulary, size)
        self.start = nn.Parameter(torch.zeros(size))
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.out = nn.Linear(size, vocabulary)
        for p in self.parameters():
            nn.init.normal_(p, std=0.1)

    def state(self, rows: int) -> State:
        """Before the first token."""
        zeros = self.start.new_zeros(rows, self.size)
        return State(zeros, zeros)

    def advance(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits and state after an embedded token `(rows, size)`."""
        h, c = torch.lstm_cell(x, list(state), *self.lstm.all_weights[0])
        return self.out(h), State(h, c)

    def step(self, token: Tensor | None, state: State) -> tuple[Tensor, State]:
        """As `ag.ancestral_sample` and its neighbours take it."""
        rows = len(state.h)
        x = self.start.expand(rows, -1) if token is None else self.embed(token)
        return self.advance(x, state)

    def log_prob(self, tokens: Tensor, tau: float = 1.0) -> Tensor:
        r"""$\log p(s_t | s_{<t})$ of sequences `(rows, length)`, all at once; the same shape."""
        inputs = self.embed(tokens[:, :-1])
        first = self.start.expand(len(tokens), 1, -1)
        hidden, _ = self.lstm(torch.cat([first, inputs], 1))
        pairs = zip(hidden.flatten(0, 1).split(AT_ONCE), tokens.flatten().split(AT_ONCE), strict=True)
        losses = [cross_entropy(self.out(h) / tau, s, reduction="none") for h, s in pairs]
        return -torch.cat(losses).view(tokens.shape)

    @torch.no_grad()
    def write(self, count: int, generator: torch.Generator, tau: float = 1.0) -> Tensor:
        """Independent sequences, `(count, length)`."""
        options: dict[str, Any] = {"eos": None, "max_len": self.length, "tau": tau}
        return ag.ancestral_sample(
            self.step, self.state(1), count, generator=generator, **options
        ).tokens[0]

    def write_relaxed(self, estimator: Any, rows: int, generator: torch.Generator) -> Tensor:
        """Sequences of points of the simplex, `(rows, length, vocabulary)`, with a gradient for every weight."""
        logits, state = self.advance(self.start.expand(rows, -1), self.state(rows))
        points = []
        for t in range(self.length):
            z = estimator.rsample(ag.Gibbs(ag.OneHot(), logits), generator=generator)
            points.append(z)
            if t + 1 < self.length:
                logits, state = self.advance(z @ self.embed.weight, state)
        return torch.stack(points, 1)


def oracle(vocabulary: int, length: int, size: int, seed: int) -> Writer:
    """The truth."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        truth = Writer(vocabulary, length, size)
        for p in truth.parameters():
            nn.init.normal_(p)
    return truth.requires_grad_(False)


class Judge(nn.Module):
    """Convolutions of several widths, the maximum over places, a highway layer; the logit of "real"."""

    def __init__(self, vocabulary: int, length: int, size: int, filters: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        widths = [w for w in (1, 2, 3, 4, 5, 8, 12, 16, 20) if w <= length]
        self.convolutions = nn.ModuleList([nn.Conv1d(size, filters, w) for w in widths])
        total = filters * len(widths)
        self.carry, self.change = nn.Linear(total, total), nn.Linear(total, total)
        self.dropout, self.out = nn.Dropout(0.25), nn.Linear(total, 1)

    def forward(self, s: Tensor) -> Tensor:
        """Of tokens `(*batch, length)`, or of points of the simplex `(*batch, length, vocabulary)`."""
        soft = s.is_floating_point()
        x = s @ self.embed.weight if soft else self.embed(s)
        batch = x.shape[:-2]
        x = x.flatten(0, -3).transpose(1, 2)
        found = torch.cat([relu(c(x)).amax(-1) for c in self.convolutions], -1)
        gate = self.carry(found).sigmoid()
        found = gate * relu(self.change(found)) + (1 - gate) * found
        return self.out(self.dropout(found)).view(batch)
