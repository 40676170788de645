r"""A gated encoder in a folder: weights as safetensors, settings as JSON, nothing that is executed on loading."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_model, save_model
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

import argrad
from argrad._checks import fail
from argrad._errors import InputError, UnsupportedError
from argrad.estimators.base import Estimator
from argrad.integrations.sentences import rules
from argrad.integrations.sentences._models import without_pooler
from argrad.integrations.sentences.gate import TokenGate
from argrad.schedules import Learnable, Schedule

if TYPE_CHECKING:
    from argrad.integrations.sentences.encoder import GatedEncoder

SETTINGS, WEIGHTS = "gated_encoder.json", "model.safetensors"
_GATE_OPTIONS = ("count", "keep_bias", "special_tokens", "k", "views")


def save(encoder: GatedEncoder, folder: str | Path) -> None:
    """Write everything that `load` needs."""
    path = Path(folder)
    settings = {
        "version": 1,
        "mode": encoder.mode,
        "pooling": encoder.pool.kind,
        "head": None if encoder.head is None else "mlp",
        "head_at_test": encoder.head_at_test,
        "max_length": encoder.max_length,
        "gate": None if encoder.gate is None else _describe_gate(encoder.gate),
    }  # before the first file is written: not everything can be described
    path.mkdir(parents=True, exist_ok=True)
    encoder.tokenizer.save_pretrained(path)
    encoder.backbone.config.save_pretrained(path / "backbone")
    if encoder.gate is not None and isinstance(encoder.gate.proxy, PreTrainedModel):
        encoder.gate.proxy.config.save_pretrained(path / "proxy")
    save_model(encoder, str(path / WEIGHTS))
    (path / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load(cls: type[Any], folder: str | Path) -> Any:
    """The encoder that was saved in `folder`, in evaluation mode."""
    path = Path(folder)
    for name in (SETTINGS, WEIGHTS):
        if not (path / name).is_file():
            rule = "must be a folder written by `save_pretrained`"
            advice = "A plain transformers model is loaded by `GatedEncoder.build(folder)`."
            got = f"{str(folder)!r}, which has no {name}"
            raise fail("GatedEncoder.from_pretrained", "folder", rule, got, advice)
    settings = json.loads((path / SETTINGS).read_text(encoding="utf-8"))
    settings.pop("version")
    gate = settings.pop("gate")
    if gate is not None:
        gate = _make_gate(gate, path)
    encoder = cls(_model(path / "backbone"), AutoTokenizer.from_pretrained(path), gate=gate, **settings)
    load_model(encoder, str(path / WEIGHTS))
    return encoder.eval()


def _model(folder: Path) -> PreTrainedModel:
    return without_pooler(AutoModel.from_config(AutoConfig.from_pretrained(folder)))


def _describe_gate(gate: TokenGate) -> dict[str, Any]:
    described = {
        "estimator": describe_part(gate.estimator),
        "schedule": None if gate.has_own_tau else describe_part(gate.schedule),
        "proxy": _describe_proxy(gate.proxy),
        "special_ids": gate.special_ids.tolist(),
    }
    return described | {name: getattr(gate, name) for name in _GATE_OPTIONS}


def _make_gate(described: dict[str, Any], folder: Path) -> TokenGate:
    parts = dict(described)
    proxy, schedule = parts.pop("proxy"), parts.pop("schedule")
    made = _model(folder / "proxy") if proxy is None else rules.make(proxy)
    estimator = make_part(parts.pop("estimator"))
    return TokenGate(made, estimator, None if schedule is None else make_part(schedule), **parts)


def _describe_proxy(proxy: object) -> dict[str, Any] | None:
    if isinstance(proxy, PreTrainedModel):
        return None
    if isinstance(proxy, rules.Rule):
        return proxy.describe()
    raise UnsupportedError(
        f"`GatedEncoder.save_pretrained` cannot write a proxy of type {type(proxy).__name__}: only transformers "
        "models and the rules of `argrad.integrations.sentences` can be made again. Save `state_dict()` yourself."
    )


def describe_part(part: object) -> dict[str, Any]:
    """An estimator or a schedule as its name and settings."""
    name = type(part).__name__
    if isinstance(part, Learnable):
        return {"name": name, "floor": part.floor}
    if dataclasses.is_dataclass(part):
        values = {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.init}
        if all(v is None or isinstance(v, (bool, int, float, str)) for v in values.values()):
            return {"name": name, **values}
    raise UnsupportedError(
        f"`GatedEncoder.save_pretrained` cannot write {part!r}: its settings are not plain numbers. Set an "
        "estimator without further parts before saving (`encoder.gate.estimator = ...`): inference does not use it."
    )


def make_part(described: dict[str, Any]) -> Any:
    """What `describe_part` described; a name of argrad, nothing else."""
    options = dict(described)
    name = options.pop("name")
    part = getattr(argrad.schedules, name, None) or getattr(argrad, name, None)
    if not (isinstance(part, type) and issubclass(part, (Estimator, Schedule, Learnable))):
        raise InputError(
            f"`GatedEncoder.from_pretrained`: argrad has no estimator or schedule named {name!r}."
        )
    return part(**options)
