r"""Deleting tokens before a backbone sees them, at the positions they had."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from argrad._errors import UnsupportedError
from argrad.integrations.sentences.attention import evaluating, probe


def takes_positions(model: PreTrainedModel) -> bool:
    """Whether the model can be told where a token stood."""
    return "position_ids" in inspect.signature(model.forward).parameters


def position_ids(model: Any, input_ids: Tensor, mask: Tensor) -> Tensor:
    """The positions that the model itself gives to these tokens, shape of `input_ids`."""
    padding = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    if padding is None:
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
    tokens = mask.long()  # RoBERTa and its kin count from behind the index of padding
    return torch.cumsum(tokens, 1) * tokens + padding


def gather_kept(keep: Tensor, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """For each row the entries of `tensors` where `keep` is not 0."""
    chosen = keep > 0
    sizes = chosen.sum(-1).tolist()
    return list(zip(*(t[chosen].split(sizes) for t in tensors), strict=True))


def pad_rows(rows: list[Tensor], value: int) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and 1 where they are."""
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)
    length = torch.tensor([len(row) for row in rows], device=padded.device)
    mask = torch.arange(padded.shape[1], device=padded.device) < length[:, None]
    return padded, mask.long()


def cannot_remove(model: PreTrainedModel, reason: str) -> UnsupportedError:
    """The sentence for `remove=True` where it would change the result."""
    return UnsupportedError(
        f"`encode(remove=True)` cannot delete tokens from {type(model).__name__}: {reason}. Leave `remove` out: "
        "the gate then closes them inside the attention, at the full cost."
    )


@torch.no_grad()
def removal_refusal(model: PreTrainedModel, max_length: int) -> str | None:
    """Why deleting tokens would not be what masking them is; tried on a small batch."""
    window = getattr(model.config, "sliding_window", None)
    if window is not None and max_length > window:
        return (
            f"it attends to {window} neighbours by their index, and sentences may be longer (`max_length` "
            f"is {max_length})"
        )
    if not takes_positions(model):
        return "it takes no position_ids"
    with evaluating(model):
        inputs = probe(model)
        keep = inputs["attention_mask"].clone()
        keep[:, 2] = 0
        masked = model(**{**inputs, "attention_mask": keep})[0]
        ids = inputs["input_ids"]
        rows = gather_kept(keep, ids, position_ids(model, ids, inputs["attention_mask"]))
        short, mask = pad_rows([row[0] for row in rows], 0)
        positions = pad_rows([row[1] for row in rows], 0)[0]
        deleted = model(input_ids=short, attention_mask=mask, position_ids=positions)[0]
    a, b = masked[keep.bool()], deleted[mask.bool()]
    if torch.allclose(a, b, rtol=0, atol=1e-3 * float(a.abs().max())):
        return None
    return "it looks at distances in the shortened sentence, not at the positions"
