"""The encoders of `simcse`: which tokens each row of the table lets through, and where its sentences come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import logging

import argrad as ag
from argrad._errors import InputError
from argrad.integrations.sentences import data, sts
from argrad.integrations.sentences.data import Example
from argrad.integrations.sentences.encoder import GatedEncoder
from argrad.integrations.sentences.gate import DOCUMENT_SCHEDULE
from argrad.integrations.sentences.rules import RandomDrop, StopWords
from argrad.integrations.sentences.sts import Pairs
from argrad.recipes.data import places, wheels
from argrad.recipes.data.text import find

logging.set_verbosity_error()  # which weights of a checkpoint are not used is no news here
logging.disable_progress_bar()

PLAIN, GATE, BUDGET = "plain", "gate as published", "gate + budget"
RANDOM, STOP, LEARNED = "random drop", "stop-word rule", "learned pooling"


@dataclass(frozen=True)
class Way:
    """How a column treats the tokens of a sentence.

    Attributes:
        gate: options of `TokenGate` with a learnt proxy; None for no such gate.
        rule: a gate that is not learnt, made from a tokenizer and the share to keep.
        special_tokens: what such a rule does to [CLS] and [SEP].
        budget: whether the share of kept tokens is held down; the gate then has a learning rate of its own.
        pooling: of the tokens.
    """

    gate: Mapping[str, Any] | None = None
    rule: Callable[[Any, float], nn.Module] | None = None
    special_tokens: str = "gate"
    budget: bool = False
    pooling: str = "avg"


def _stop_words(tokenizer: Any, keep: float) -> nn.Module:
    return StopWords(tokenizer)


def _random_drop(tokenizer: Any, keep: float) -> nn.Module:
    return RandomDrop(keep)


# [CLS] and [SEP] are gated like words, as in the document
_DOCUMENT = {"special_tokens": "gate", "schedule": DOCUMENT_SCHEDULE}
WAYS = {
    PLAIN: Way(),
    GATE: Way(gate=_DOCUMENT),
    BUDGET: Way(gate=_DOCUMENT, budget=True),
    RANDOM: Way(rule=_random_drop),
    STOP: Way(rule=_stop_words, special_tokens="drop"),
    LEARNED: Way(pooling="learned"),
}


def encoder(
    way: Way,
    model: str,
    proxy: str | None,
    *,
    layers: int | None,
    keep_bias: float,
    keep: float,
    **options: Any,
) -> GatedEncoder:
    """An encoder that treats tokens in this way.

    Args:
        way: of the column.
        model: folder or name of the backbone; `tiny` for a random one that reads generated sentences.
        proxy: folder or name of the proxy; None for the first layer of the backbone.
        layers: how many of the backbone; None for all.
        keep_bias: log-odds of keeping a token before training, roughly.
        keep: the share that random drop keeps.
        options: of `GatedEncoder`.
    """
    options = {"pooling": way.pooling, **options}
    gate = None if way.gate is None else {**way.gate, "keep_bias": keep_bias}
    if model == "tiny":
        texts = [s for e in data.generated_examples(2000, triples=True) for s in e]
        found = GatedEncoder.tiny(texts, gate=gate, **options)
    else:
        found = GatedEncoder.build(folder(model), layers=layers, proxy=proxy, gate=gate, **options)
    if way.rule is None:
        return found
    rule = {"special_tokens": way.special_tokens, "estimator": ag.StraightThrough()}
    parts: dict[str, Any] = {"tokenizer": found.tokenizer, "proxy": way.rule(found.tokenizer, keep)}
    return GatedEncoder.build(found.backbone, **parts, gate=rule, **options)


def folder(model: str) -> str:
    """Where a model is; `minilm` comes in a wheel."""
    return str(wheels.minilm()) if model == "minilm" else model


def examples(kind: str, file: str, *, longest: int) -> list[Example]:
    """What a regime trains on: `generated`, a file of one's own, or wikitext and SNLI."""
    if file == "generated":
        return data.generated_examples(2000, triples=kind == "sup")
    if file:
        return data.read_examples(find(file))
    if kind == "unsup":
        return data.wiki_sentences(find("wikitext-2/valid.txt").parent, longest=longest)
    return data.nli_triples(find("SNLI/s1.dev").parent)


def sets(file: str) -> dict[str, Pairs]:
    """The STS sets: `generated`, or those of the data folder."""
    if file == "generated":
        return data.generated_sts(40)
    place = places.find("sts/STSBenchmark", "sts-dev.csv")
    if place is None:
        raise InputError(
            "the STS sets are not here. Put STS12-en-test, ..., STSBenchmark and SICK into FOLDER/sts and set "
            "ARGRAD_DATA=FOLDER."
        )
    return sts.load_sts(place.parent)


class Best:
    """The best state of a model so far, which is part of a checkpoint."""

    def __init__(self) -> None:
        self.score, self.kept = float("-inf"), {}

    def offer(self, score: float, model: nn.Module) -> None:
        """Keep a copy if it is better."""
        if score > self.score:
            self.score = score
            self.kept = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """Score and tensors."""
        return {"score": self.score, "kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.score, self.kept = state["score"], state["kept"]


def device() -> torch.device:
    """A GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
