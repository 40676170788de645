r"""Gates without parameters, to compare a learned one with."""

from __future__ import annotations

import math
import string
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from argrad._checks import fail

_CERTAIN = 20.0  # log-odds: 1 - 2e-9

_WORDS = """
    a an the this that these those here there it its he him his she her hers they them their we us our you your i me
    my is are was were be been being am has have had having do does did doing will would shall should can could may
    might must of in on at by for with about against between into through during before after above below to from up
    down out off over under again then once and but or nor so than too very as if while because until when where which
    who whom whose what how all any both each few more most other some such only own same just also s t d ll m re ve
    said"""
STOP_WORDS = frozenset(_WORDS.split())
"""Words that carry grammar more than meaning; no, not and never are none of them."""


class Rule(nn.Module, ABC):
    """A proxy without parameters: `(input_ids, attention_mask) -> log-odds`."""

    @abstractmethod
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Log-odds of being kept, shape of `input_ids`."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What `make` needs; tensors are in `state_dict`."""


class StopWords(Rule):
    """Drop stop-words and punctuation.

    Args:
        tokenizer: whose vocabulary is looked up.
        words: None is `STOP_WORDS`, a short English list.

    Examples:
        >>> from argrad.integrations.sentences import GatedEncoder, StopWords
        >>> texts = ["the man is playing a flute ."]
        >>> plain = GatedEncoder.tiny(texts)
        >>> rule = GatedEncoder.build(plain.backbone, tokenizer=plain.tokenizer, proxy=StopWords(plain.tokenizer),
        ...                           gate={"special_tokens": "drop"})
        >>> print(rule.explain(texts))
        (-[CLS]-) (-the-) man (-is-) playing (-a-) flute (-.-) (-[SEP]-)
    """

    drops: Tensor

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None,
        words: frozenset[str] | None = None,
        size: int = 0,
    ) -> None:
        super().__init__()
        words = STOP_WORDS if words is None else words
        vocabulary = {} if tokenizer is None else tokenizer.get_vocab()
        size = max(vocabulary.values(), default=size - 1) + 1
        drops = torch.zeros(size, dtype=torch.bool)
        for token, i in vocabulary.items():
            word = token.lstrip("Ġ▁ ").lower()  # how byte-pair tokenizers write a space
            drops[i] = word in words or (bool(word) and all(c in string.punctuation for c in word))
        self.register_buffer("drops", drops)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Plus or minus 20."""
        return torch.where(self.drops[input_ids], -_CERTAIN, _CERTAIN)

    def describe(self) -> dict[str, Any]:
        """The size of the vocabulary; which words is in `state_dict`."""
        return {"name": "StopWords", "size": len(self.drops)}


class RandomDrop(Rule):
    """Drop tokens at random: anew at each draw in training, always the same ones of a sentence in evaluation.

    Args:
        keep: the fraction to keep.

    Examples:
        >>> import torch
        >>> from argrad.integrations.sentences import RandomDrop
        >>> rule = RandomDrop(0.6).eval()
        >>> ids = torch.arange(10_000).view(100, 100)
        >>> kept = rule(ids, torch.ones_like(ids)) > 0
        >>> 0.58 < kept.float().mean() < 0.62
        tensor(True)
    """

    def __init__(self, keep: float = 0.6) -> None:
        super().__init__()
        if not 0 < keep < 1:
            raise fail(
                "RandomDrop", "keep", "must be between 0 and 1", keep, "It is the fraction to keep."
            )
        self.keep = keep

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Constant in training, where the gate draws; plus or minus 20 by a hash in evaluation."""
        if self.training:
            odds = math.log(self.keep / (1 - self.keep))
            return torch.full(input_ids.shape, odds, device=input_ids.device)
        place = torch.arange(input_ids.shape[1], device=input_ids.device)
        sentence = (input_ids * attention_mask).sum(-1, keepdim=True)
        mixed = (input_ids * 2654435761 + place * 40503 + sentence * 69069) % 1000003
        mixed = (mixed * mixed + 12345) % 1000003  # so that neighbours are not alike
        return torch.where(mixed < self.keep * 1000003, _CERTAIN, -_CERTAIN)

    def describe(self) -> dict[str, Any]:
        """The fraction."""
        return {"name": "RandomDrop", "keep": self.keep}


def make(described: dict[str, Any]) -> Rule:
    """The rule that `describe` described."""
    if described["name"] == "RandomDrop":
        return RandomDrop(described["keep"])
    return StopWords(None, size=described["size"])
