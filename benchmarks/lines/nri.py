"""A training step of the decoder of neural relational inference, beside the dense one-hot formulation.

The usual code makes all ordered pairs by products with one-hot matrices, runs a network on every pair, sums by another
product, and rolls out from a last frame that nothing follows. Weights, edges and frames are the same here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.line import Line, Speedup, Step, both

BATCH, NODES, FRAMES, HIDDEN = 32, 10, 10, 256


def _inputs() -> tuple[Tensor, Tensor]:
    from argrad.recipes.data.layouts import layouts

    made = layouts(BATCH, NODES, FRAMES, torch.Generator().manual_seed(0))
    edges = 0.1 + 0.8 * made.trees  # relaxed, with the gradient that the encoder needs
    return made.frames, edges.requires_grad_()


def _decoder() -> nn.Module:
    from argrad.recipes.nri_model import Decoder

    torch.manual_seed(0)
    return Decoder(HIDDEN)


def _ours() -> Step:
    from argrad.recipes.nri_model import negative_log_likelihood, roll_out

    (frames, edges), decoder = _inputs(), _decoder()

    def step() -> Tensor:
        predicted = roll_out(decoder, frames, edges, FRAMES - 1)
        return _trained(negative_log_likelihood(predicted, frames).mean(), decoder, edges)

    return step


class _Dense(nn.Module):
    """The same function of the same weights, pair by pair."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(4, HIDDEN), nn.Linear(4, HIDDEN)])
        self.second = nn.ModuleList([decoder.edge, decoder.none])
        self.node = decoder.node
        both_ends = torch.cat([decoder.sender.weight, decoder.receiver.weight], 1)
        with torch.no_grad():
            for i, layer in enumerate(self.first):
                layer.weight.copy_(both_ends[i * HIDDEN : (i + 1) * HIDDEN])
                layer.bias.copy_(decoder.receiver.bias[i * HIDDEN : (i + 1) * HIDDEN])
        sender, receiver = (~torch.eye(NODES, dtype=torch.bool)).nonzero().T
        self.sender, self.receiver = torch.eye(NODES)[sender], torch.eye(NODES)[receiver]

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        """Positions `(batch, starts, n, 2)` one frame on; `kinds` `(batch, 1, pairs, 2)` are edge and none."""
        pairs = torch.cat([torch.matmul(self.sender, x), torch.matmul(self.receiver, x)], -1)
        messages = torch.zeros(*pairs.shape[:-1], HIDDEN)
        for i in range(2):
            hidden = torch.relu(self.first[i](pairs))
            messages = messages + self.second[i](hidden) * kinds[..., i : i + 1]
        total = torch.matmul(self.receiver.T, messages)
        return x + self.node(torch.cat([x, total], -1))


def _usual() -> Step:
    from argrad.recipes.nri_model import negative_log_likelihood

    frames, edges = _inputs()
    dense = _Dense(_decoder())
    off = ~torch.eye(NODES, dtype=torch.bool)

    def step() -> Tensor:
        there = edges[:, off][:, None]
        kinds = torch.stack([there, 1 - there], -1)
        x, seen = frames[:, :: FRAMES - 1], []  # the first frame, and the last
        for _ in range(FRAMES - 1):
            x = dense(x, kinds)
            seen.append(x)
        predicted = torch.stack(seen, 2).flatten(1, 2)[:, : FRAMES - 1]
        return _trained(negative_log_likelihood(predicted, frames).mean(), dense, edges)

    return step


def _trained(loss: Tensor, model: nn.Module, edges: Tensor) -> Tensor:
    model.zero_grad()
    edges.grad = None
    loss.backward()
    return torch.cat([loss.detach()[None], edges.grad.sum((1, 2))])


def _same(ours: Tensor, usual: Tensor) -> None:
    """Loss and gradient of the edges agree; sums of 90 messages in another order, nine steps one after the other."""
    torch.testing.assert_close(ours, usual, rtol=1e-3, atol=1e-3 * float(usual.abs().max()))


LINES = (
    Line(
        name=f"NRI decoder training step, {NODES} nodes, {FRAMES} frames, {HIDDEN} hidden, batch {BATCH}",
        ours=_ours,
        peer=_usual,
        peer_name="dense one-hot pairs",
        package=None,
        check=_same,
        goals=both(Speedup(5.0)),
    ),
)
