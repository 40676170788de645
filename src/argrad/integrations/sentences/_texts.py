r"""Sentences -> token ids, with a sentence about each that cannot be encoded."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import BatchEncoding, PreTrainedTokenizerBase

from argrad._checks import fail
from argrad._errors import InputError


def as_list(texts: str | Sequence[str]) -> list[str]:
    """A list of strings."""
    found = [texts] if isinstance(texts, str) else list(texts)
    for i, text in enumerate(found):
        if not isinstance(text, str):
            rule = f"must be strings; number {i} is not"
            raise fail("encode", "texts", rule, type(text).__name__, "")
    return found


def token_ids(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], max_length: int, truncate: bool
) -> list[list[int]]:
    """The ids of each sentence, special ones included."""
    for i, text in enumerate(texts):
        if not text.strip():
            raise _empty(i, text)
    # of batches that are cut a tokenizer says nothing; that one is too long, it would only say to the log
    rows = tokenizer(
        texts, truncation=truncate, max_length=max_length if truncate else None, verbose=False
    )
    ids = rows["input_ids"]
    around = tokenizer.num_special_tokens_to_add()
    for i, row in enumerate(ids):
        if len(row) <= around:
            raise _empty(i, texts[i])
        if len(row) > max_length:
            raise _too_long(i, len(row), max_length, sum(len(r) > max_length for r in ids), len(ids))
    return ids


def pad(tokenizer: PreTrainedTokenizerBase, ids: list[list[int]]) -> BatchEncoding:
    """`input_ids` and `attention_mask`, padded to the longest sentence."""
    batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt")
    return BatchEncoding({name: batch[name] for name in ("input_ids", "attention_mask")})


def _empty(index: int, text: str) -> InputError:
    advice = "Leave it out, or put a word in its place: nothing has no embedding."
    return fail("encode", "texts", f"must hold words; number {index} has none", repr(text), advice)


def _too_long(index: int, length: int, limit: int, count: int, total: int) -> InputError:
    got = f"{length} tokens in number {index} ({count} of these {total} sentences are longer)"
    advice = "Pass `truncate=True` to cut them, split them, or raise `max_length` if the model has positions."
    return fail("encode", "texts", f"must have at most {limit} tokens each", got, advice)
