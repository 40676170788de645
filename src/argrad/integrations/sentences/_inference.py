r"""Sentences -> embeddings: the gate first, then the backbone on batches of what it left over."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from argrad.integrations.sentences._removal import gather_kept, pad_rows, position_ids, takes_positions
from argrad.integrations.sentences._texts import pad, token_ids
from argrad.integrations.sentences.attention import evaluating

if TYPE_CHECKING:
    from argrad.integrations.sentences.encoder import GatedEncoder


class Counted(NamedTuple):
    """Embeddings `(n, d)`, and how many of how many tokens were kept in each sentence, `(n,)`."""

    embedding: Tensor
    kept: Tensor
    tokens: Tensor


class _Row(NamedTuple):
    """One sentence: what the backbone sees of it, and the counts."""

    ids: Tensor
    positions: Tensor
    gate: Tensor
    kept: int
    tokens: int


@torch.no_grad()
def encode_counted(
    encoder: GatedEncoder, sentences: list[str], *, size: int, removes: bool, truncate: bool
) -> Counted:
    """Embeddings of any number of sentences, `size` at a time."""
    if not sentences:
        width = encoder.backbone.config.hidden_size
        return Counted(torch.zeros(0, width), *torch.zeros(2, 0, dtype=torch.int64))
    with evaluating(encoder):
        rows = _read(encoder, sentences, size, removes, truncate)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
        starts = range(0, len(order), size)
        parts = [_see(encoder, [rows[i] for i in order[at : at + size]]) for at in starts]
    embedding = torch.empty(len(rows), parts[0].shape[-1])
    embedding[torch.tensor(order)] = torch.cat(parts).float().cpu()
    kept, tokens = torch.tensor([[row.kept, row.tokens] for row in rows]).T
    return Counted(embedding, kept, tokens)


@torch.no_grad()
def infer(encoder: GatedEncoder, ids: Tensor, mask: Tensor, *, removes: bool) -> Tensor:
    """Embeddings of one batch of token ids."""
    with evaluating(encoder):
        return _see(encoder, _gate(encoder, ids, mask, removes))


def _read(
    encoder: GatedEncoder, sentences: list[str], size: int, removes: bool, truncate: bool
) -> list[_Row]:
    """The tokens of each sentence that the backbone will see."""
    ids = token_ids(encoder.tokenizer, sentences, encoder.max_length, truncate)
    device = next(encoder.backbone.parameters()).device
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    rows: list[_Row] = []
    for at in range(0, len(order), size):
        batch = pad(encoder.tokenizer, [ids[i] for i in order[at : at + size]]).to(device)
        rows += _gate(encoder, batch["input_ids"], batch["attention_mask"], removes)
    return [row for _, row in sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])]


def _gate(encoder: GatedEncoder, ids: Tensor, mask: Tensor, removes: bool) -> list[_Row]:
    gate = mask.float() if encoder.gate is None else encoder.gate(ids, mask)[0].float()
    places = position_ids(encoder.backbone, ids, mask)
    counts = torch.stack([(gate > 0).sum(-1), mask.sum(-1)], -1).tolist()
    parts = gather_kept(gate if removes else mask, ids, places, gate)
    return [
        _Row(row[0], row[1], row[2], kept, tokens)
        for row, (kept, tokens) in zip(parts, counts, strict=True)
    ]


def _see(encoder: GatedEncoder, rows: list[_Row]) -> Tensor:
    """Embeddings of rows of tokens, each at the position it had."""
    ids, mask = pad_rows([row.ids for row in rows], encoder.tokenizer.pad_token_id)  # type: ignore[arg-type]
    positions, _ = pad_rows([row.positions for row in rows], 0)
    gate = None if encoder.gate is None else pad_rows([row.gate for row in rows], 0)[0]
    moved = {"position_ids": positions} if takes_positions(encoder.backbone) else {}
    return encoder.vectors(ids, mask, gate, **moved)
