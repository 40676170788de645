"""A likelihood step and a batch of new sequences of the SeqGAN writer (64 x 20 tokens of 5000), beside the textbook.

The textbook goes token by token in both: `nn.LSTMCell` and a cross-entropy, `torch.multinomial` of the softmax.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.line import Line, Speedup, Step, both

BATCH, LENGTH, VOCABULARY, SIZE = 64, 20, 5000, 32


def _tokens() -> Tensor:
    return torch.randint(VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))


def _ours() -> Step:
    from argrad.recipes.seqgan_model import Writer

    torch.manual_seed(0)
    writer, tokens, noise = (
        Writer(VOCABULARY, LENGTH, SIZE),
        _tokens(),
        torch.Generator().manual_seed(1),
    )
    optimizer = torch.optim.Adam(writer.parameters(), 1e-3)

    def step() -> Tensor:
        loss = -writer.log_prob(tokens).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.write(BATCH, noise)
        return loss.detach()

    return step


class _Textbook(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, SIZE)
        self.cell, self.out = nn.LSTMCell(SIZE, SIZE), nn.Linear(SIZE, VOCABULARY)
        for p in self.parameters():
            nn.init.normal_(p, std=0.1)

    def loss(self, tokens: Tensor) -> Tensor:
        h = c = torch.zeros(len(tokens), SIZE)
        last, total = torch.zeros(len(tokens), dtype=torch.int64), torch.zeros(())
        for token in tokens.T:
            h, c = self.cell(self.embed(last), (h, c))
            total = total + F.cross_entropy(self.out(h), token)
            last = token
        return total / tokens.shape[1]

    @torch.no_grad()
    def write(self) -> Tensor:
        h = c = torch.zeros(BATCH, SIZE)
        tokens = [torch.zeros(BATCH, dtype=torch.int64)]
        for _ in range(LENGTH):
            h, c = self.cell(self.embed(tokens[-1]), (h, c))
            tokens.append(torch.multinomial(self.out(h).softmax(-1), 1)[:, 0])
        return torch.stack(tokens[1:], 1)


def _textbook() -> Step:
    torch.manual_seed(0)
    model, tokens = _Textbook(), _tokens()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> Tensor:
        loss = model.loss(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.write()
        return loss.detach()

    return step


def _same_loss(ours: Tensor, textbook: Tensor) -> None:
    """Untrained or trained on the one batch: both begin at log 5000 and fall."""
    assert 0.5 < float(ours) / float(textbook) < 2.0, (ours, textbook)


LINES = (
    Line(
        name=f"SeqGAN writer, a likelihood step and {BATCH} new sequences",
        ours=_ours,
        peer=_textbook,
        peer_name="token by token, torch.multinomial",
        package="torch",
        check=_same_loss,
        goals=both(Speedup(2)),
    ),
)
