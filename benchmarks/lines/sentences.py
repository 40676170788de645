"""A gate on tokens: what it costs a SimCSE step, and what it saves where tokens are dropped.

The backbone has the size of MiniLM (6 layers of 384, 30 522 words) and random weights; the proxy is one layer of it.
Sentences have 30 random words. In training both views share the gate; at inference half of the tokens go.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.line import Line, Speedup, Step, both

LAYERS, WIDTH, WORDS, VOCABULARY = 6, 384, 30, 30_522
BATCH, SENTENCES = 32, 64


@functools.cache
def _sentences(count: int) -> list[str]:
    picked = torch.randint(1000, (count, WORDS), generator=torch.Generator().manual_seed(1))
    return [" ".join(f"w{i}" for i in row) for row in picked.tolist()]


def _encoder(gate: dict | None, **options):
    """A plain or gated encoder; the weights of the backbone are the same."""
    from transformers import BertConfig, BertModel

    from argrad.integrations.sentences import GatedEncoder
    from argrad.integrations.sentences._models import tiny

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=12,
        intermediate_size=4 * WIDTH,
    )
    _, tokenizer = tiny([f"w{i}" for i in range(1000)])
    backbone = BertModel(config, add_pooling_layer=False)
    return GatedEncoder.build(backbone, tokenizer=tokenizer, gate=gate, **options)


def _simcse(embedding: Tensor) -> Tensor:
    a, b = F.normalize(embedding, dim=-1).chunk(2)
    return F.cross_entropy(a @ b.T / 0.05, torch.arange(len(a)))


def _training(gate: dict | None) -> Step:
    from argrad.integrations.sentences import Budget

    encoder = _encoder(gate)
    optimizer = torch.optim.AdamW(encoder.parameters(), 1e-6, fused=True)
    inputs, budget = encoder.tokenize(_sentences(BATCH)), Budget(0.6)

    def step() -> Tensor:
        loss, encoded = encoder.expected_loss(inputs, _simcse, views=2)
        optimizer.zero_grad()
        (loss if encoded.kept is None else loss + budget(encoded.kept)).backward()
        optimizer.step()
        return loss.detach()

    return step


def _encoding(gate: dict | None, remove: bool | None = None) -> Step:
    encoder = _encoder(gate, mode="logit")
    return lambda: encoder.encode(_sentences(SENTENCES), remove=remove)


def _check_loss(ours: Tensor, peer: Tensor) -> None:
    # random weights: all sentences look alike, and the loss is near the logarithm of the batch
    assert abs(ours - peer) < 0.3


def _check_shape(ours: Tensor, peer: Tensor) -> None:
    assert ours.shape == peer.shape
    assert ours.isfinite().all()


def _check_equal(ours: Tensor, peer: Tensor) -> None:
    torch.testing.assert_close(ours, peer, atol=1e-4, rtol=0)


HALF = {"k": 0.5, "special_tokens": "gate"}

LINES = (
    Line(
        name="gated SimCSE step, 32 sentences of 30 words, 6 layers, proxy of 1",
        ours=lambda: _training({"keep_bias": 2.0, "special_tokens": "gate"}),
        peer=lambda: _training(None),
        peer_name="the same without gate",
        package=None,
        check=_check_loss,
        goals=both(Speedup(1 / 1.35)),
    ),
    Line(
        name="encode 64 sentences, half of the tokens removed",
        ours=lambda: _encoding(HALF),
        peer=lambda: _encoding(None),
        peer_name="the same without gate",
        package=None,
        check=_check_shape,
        goals=both(Speedup(1.0)),
    ),
    Line(
        name="half of the tokens removed, not masked",
        ours=lambda: _encoding(HALF),
        peer=lambda: _encoding(HALF, remove=False),
        peer_name="the same gate inside the attention",
        package=None,
        check=_check_equal,
        goals=both(Speedup(1.0)),
    ),
)
