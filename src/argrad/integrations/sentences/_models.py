r"""Loading backbones, proxies and tokenizers, with a sentence where they do not fit."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from argrad._checks import check_count, fail
from argrad._errors import InputError
from argrad.integrations.sentences.gate import TokenGate

Source = str | Path | PreTrainedModel
_UNBOUNDED = 1_000_000  # tokenizers without a limit say 1e30


def load(
    name: str,
    source: Source,
    tokenizer: PreTrainedTokenizerBase | None = None,
    layers: int | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model (its first `layers`) and its tokenizer."""
    if isinstance(source, PreTrainedModel):
        if tokenizer is None:
            raise fail("GatedEncoder.build", "tokenizer", "must be given beside a model", None, "")
        return first_layers(source, layers), tokenizer
    _check_folder(name, source)
    try:
        own = AutoTokenizer.from_pretrained(source) if tokenizer is None else tokenizer
        model = _load_model(source)
    except (OSError, ValueError) as error:
        raise _not_found(name, source, str(error).splitlines()[0]) from error
    return first_layers(without_pooler(model), layers), own


def _load_model(source: str | Path) -> PreTrainedModel:
    """Without a pooler, if the model can do without."""
    try:
        return AutoModel.from_pretrained(source, add_pooling_layer=False)
    except TypeError:  # DistilBERT and others have none
        return AutoModel.from_pretrained(source)


def load_proxy(
    proxy: Source | nn.Module | None,
    backbone: Source,
    tokenizer: PreTrainedTokenizerBase,
    model: PreTrainedModel,
    layers: int,
) -> nn.Module:
    """The model behind a gate: its own, or the beginning of the backbone."""
    if proxy is None:
        return first_layers(copy.deepcopy(model), layers)
    if isinstance(proxy, nn.Module):
        return proxy
    loaded, own = load("proxy", proxy)
    if own.get_vocab() != tokenizer.get_vocab():
        words = _first_difference(own, tokenizer)
        raise fail(
            "GatedEncoder.build",
            "proxy",
            "must have the tokenizer of the backbone, since both read the same token ids",
            f"{str(proxy)!r} beside {_name(backbone)!r}, {words}",
            "Take a smaller model of the same family, or leave `proxy` out: the first layers of the backbone.",
        )
    return loaded


def structural_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids of [CLS], [SEP] and the like; an unknown word is a word."""
    return [i for i in tokenizer.all_special_ids if i != tokenizer.unk_token_id]


def without_pooler(model: Any) -> Any:
    """The model without the layer that sentence pairs were classified with, which nothing here uses."""
    if isinstance(getattr(model, "pooler", None), nn.Module):
        model.pooler = None
    return model


def first_layers(model: PreTrainedModel, count: int | None) -> PreTrainedModel:
    """The model cut off after `count` layers, in place."""
    if count is None:
        return model
    total = model.config.num_hidden_layers
    check_count("GatedEncoder.build", "layers", count, 1, total, f"The model has {total}.")
    for name, stack in list(model.named_modules()):
        if isinstance(stack, nn.ModuleList) and len(stack) == total and total > count:
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], stack[:count])
    model.config.num_hidden_layers = count
    if isinstance(getattr(model.config, "layer_types", None), list):
        model.config.layer_types = model.config.layer_types[:count]
    return model


def check_vocabulary(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Every id of the tokenizer has an embedding."""
    rows = model.get_input_embeddings().weight.shape[0]  # type: ignore[union-attr]
    highest = max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise fail(
            "GatedEncoder",
            "tokenizer",
            f"must give ids below {rows}, the size of the {name}'s vocabulary",
            f"ids up to {highest}",
            "The tokenizer belongs to another model: load both from the same folder.",
        )


def check_gate(gate: TokenGate, tokenizer: PreTrainedTokenizerBase, pooling: str) -> None:
    """A gate that fits the tokenizer and the pooling."""
    if isinstance(gate.proxy, PreTrainedModel):
        check_vocabulary("proxy", gate.proxy, tokenizer)
    if pooling == "cls" and gate.special_tokens != "keep":
        advice = 'Use `special_tokens="keep"`, or average.'
        rule = (
            f'must not be "cls" with `special_tokens="{gate.special_tokens}"`: the gate may drop [CLS]'
        )
        raise fail("GatedEncoder", "pooling", rule, pooling, advice)
    if gate.special_tokens != "gate" and not len(gate.special_ids):
        rule = (
            f'must name the tokens to {gate.special_tokens} (`special_tokens="{gate.special_tokens}"`)'
        )
        raise fail("TokenGate", "special_ids", rule, "none", "Pass the ids of [CLS] and [SEP].")


def check_length(length: int | None, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The longest sentence, at most what the model has positions for."""
    positions = getattr(model.config, "max_position_embeddings", _UNBOUNDED)
    if getattr(getattr(model, "embeddings", None), "padding_idx", None) is not None:
        positions -= model.config.pad_token_id + 1  # type: ignore[operator]
    limit = min(positions, tokenizer.model_max_length)
    if length is None:
        return int(min(limit, _UNBOUNDED))
    advice = f"The backbone has positions for {limit} tokens."
    return check_count("GatedEncoder", "max_length", length, 3, int(min(limit, _UNBOUNDED)), advice)


def tiny(sentences: Sequence[str]) -> tuple[BertModel, PreTrainedTokenizerBase]:
    """A small BERT with random weights, and a tokenizer of the words of `sentences`."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    split = pre_tokenizers.BertPreTokenizer()
    words = sorted({w for s in sentences for w, _ in split.pre_tokenize_str(s.lower())})
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(special + words)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), split
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=64,
    )  # fmt: skip
    config = BertConfig(
        vocab_size=len(special) + len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    return without_pooler(BertModel(config)), tokenizer


def _check_folder(name: str, source: str | Path) -> None:
    path = Path(source)
    is_path = isinstance(source, Path) or path.is_absolute() or str(source).startswith((".", "~"))
    if is_path and not path.is_dir():
        raise _not_found(name, source, "there is no such folder")
    if path.is_dir() and not (path / "config.json").is_file():
        raise _not_found(name, source, "the folder holds no config.json")


def _not_found(name: str, source: str | Path, reason: str) -> InputError:
    rule = "must be a folder with a transformers model and tokenizer, or a name on the Hugging Face hub"
    advice = (
        "Check the path; for a name, be online once (`hf download NAME`). Without any model, "
        "`GatedEncoder.tiny(sentences)` makes one with random weights."
    )
    return fail("GatedEncoder.build", name, rule, f"{str(source)!r} ({reason})", advice)


def _name(source: Source) -> str:
    return type(source).__name__ if isinstance(source, PreTrainedModel) else str(source)


def _first_difference(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> str:
    a, b = one.get_vocab(), other.get_vocab()
    if len(a) != len(b):
        return f"with {len(a)} and {len(b)} tokens"
    word = next(w for w in sorted(b) if a.get(w) != b[w])
    return f"where {word!r} is {a.get(word)} and {b[word]}"
