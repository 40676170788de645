"""The gate inside the attention of transformers models: tiny random ones, no download."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
)

from argrad import UnsupportedError
from argrad.integrations.sentences import apply_token_gate
from argrad.integrations.sentences._removal import position_ids, removal_refusal

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 60,
}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
DISTIL = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "vocab_size": 60}
MODELS = {
    "bert": (BertModel, BertConfig(**SMALL)),
    "roberta": (RobertaModel, RobertaConfig(**SMALL)),
    "distilbert": (DistilBertModel, DistilBertConfig(**DISTIL)),
    "modernbert": (ModernBertModel, ModernBertConfig(**SMALL, **IDS)),
    "albert": (AlbertModel, AlbertConfig(**SMALL, embedding_size=16)),
    "mpnet": (MPNetModel, MPNetConfig(**SMALL)),
    "deberta": (DebertaV2Model, DebertaV2Config(**SMALL)),
}
INTERFACE = ["bert", "roberta", "distilbert", "modernbert", "albert"]
TOLERANCE = 1e-5  # float32, three layers, outputs of size about 1: kernels round differently


def make(name: str, attention: str | None = None):
    torch.manual_seed(0)
    cls, config = MODELS[name]
    model = cls._from_config(copy.deepcopy(config), attn_implementation=attention).eval()
    with torch.no_grad():
        for (
            parameter
        ) in model.parameters():  # larger than the usual 0.02, so that attention is not uniform
            if parameter.dim() > 1:
                parameter.mul_(8.0)
    return model


def batch(name: str) -> dict[str, torch.Tensor]:
    """Two sentences; the second is padded."""
    pad = MODELS[name][1].pad_token_id or 0
    ids = torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    ids[1, 6:], mask[1, 6:] = pad, 0
    return {"input_ids": ids, "attention_mask": mask}


def random_gate() -> torch.Tensor:
    return torch.rand(2, 9, generator=torch.Generator().manual_seed(2))


class EagerProduct:
    """Attention by its definition, probabilities times gate, put in the place of a model's own function."""

    def __init__(self, model, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = None
        module = sys.modules[type(model).__module__]
        monkeypatch.setattr(module, "eager_attention_forward", self)

    def __call__(self, module, q, k, v, mask, scaling=None, **_):
        scaling = q.shape[-1] ** -0.5 if scaling is None else scaling
        scores = q @ k.transpose(2, 3) * scaling
        scores = scores if mask is None else scores + mask
        probs = scores.softmax(-1) * self.gate[:, None, None, :]
        return (probs @ v).transpose(1, 2).contiguous(), probs


@torch.no_grad()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", INTERFACE)
def test_value_gate_is_the_eager_product(name: str, attention: str, monkeypatch) -> None:
    inputs, gate = batch(name), random_gate()
    gated = apply_token_gate(make(name, attention), "value")
    assert gated.backend == "interface"
    ours = gated(**inputs, token_gate=gate)[0]
    reference = make(name, "eager")
    by_definition = EagerProduct(reference, monkeypatch)
    by_definition.gate = gate
    expected = reference(**inputs)[0]
    tokens = inputs["attention_mask"].bool()
    assert (ours - expected)[tokens].abs().max() < TOLERANCE
    by_definition.gate = torch.ones_like(gate)
    assert (ours - reference(**inputs)[0])[tokens].abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("name", INTERFACE)
def test_value_gates_by_hooks_and_by_the_interface_agree(name: str) -> None:
    if name == "modernbert":  # query, key and value are one projection
        with pytest.raises(UnsupportedError, match="no projection"):
            apply_token_gate(make(name), "value", "hook")
        return
    inputs, gate = batch(name), random_gate()
    one = apply_token_gate(make(name), "value", "interface")(**inputs, token_gate=gate)[0]
    other = apply_token_gate(make(name), "value", "hook")(**inputs, token_gate=gate)[0]
    assert (one - other).abs().max() < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("backend", ["interface", "hook"])
@pytest.mark.parametrize("name", INTERFACE)
def test_logit_gate_is_deletion(name: str, backend: str) -> None:
    if name == "modernbert" and backend == "hook":
        pytest.skip("query, key and value are one projection")
    inputs, plain = batch(name), make(name)
    keep = torch.ones(2, 9)
    keep[0, [0, 3, 7]], keep[1, [2, 5]] = 0, 0
    gated = apply_token_gate(make(name), "logit", backend)(**inputs, token_gate=keep)[0]
    positions = position_ids(plain, inputs["input_ids"], inputs["attention_mask"])
    for row in range(2):
        kept = (keep[row] * inputs["attention_mask"][row]).bool()
        short = {"input_ids": inputs["input_ids"][row, kept][None]}
        deleted = plain(**short, position_ids=positions[row, kept][None])[0][0]
        assert (gated[row, kept] - deleted).abs().max() < TOLERANCE


@torch.no_grad()
def test_value_gate_is_not_deletion() -> None:
    inputs = {"input_ids": torch.randint(5, 60, (1, 9))}
    keep = torch.ones(1, 9)
    keep[0, 4] = 0
    value = apply_token_gate(make("bert"), "value")(**inputs, token_gate=keep)[0]
    logit = apply_token_gate(make("bert"), "logit")(**inputs, token_gate=keep)[0]
    assert (value - logit).abs().max() > 0.05


@torch.no_grad()
@pytest.mark.parametrize("mode", ["value", "logit"])
@pytest.mark.parametrize("name", [*INTERFACE, "mpnet"])
def test_padded_and_unpadded_batches_agree(name: str, mode: str) -> None:
    inputs, gate = batch(name), random_gate()
    gated = apply_token_gate(make(name), mode)
    padded = gated(**inputs, token_gate=gate)[0][1, :6]
    alone = gated(input_ids=inputs["input_ids"][1:, :6], token_gate=gate[1:, :6])[0][0]
    assert (padded - alone).abs().max() < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("mode", ["value", "logit"])
@pytest.mark.parametrize("name", [*INTERFACE, "mpnet"])
def test_a_gate_of_one_changes_no_bit(name: str, mode: str) -> None:
    inputs = batch(name)
    unpadded = {"input_ids": inputs["input_ids"][:1]}
    before = [make(name)(**given)[0] for given in (inputs, unpadded)]
    gated = apply_token_gate(make(name), mode)
    for expected, given in zip(before, (inputs, unpadded), strict=True):
        ones = torch.ones(given["input_ids"].shape)
        assert torch.equal(gated(**given)[0], expected)
        assert torch.equal(gated(**given, token_gate=ones)[0], expected)


@pytest.mark.parametrize("mode", ["value", "logit"])
def test_nothing_is_nan_when_every_token_is_dropped(mode: str) -> None:
    inputs = batch("bert")
    for requires_grad in (False, True):
        gate = torch.zeros(2, 9, requires_grad=requires_grad)
        out = apply_token_gate(make("bert"), mode)(**inputs, token_gate=gate)[0]
        assert out.isfinite().all()
        if requires_grad:
            (grad,) = torch.autograd.grad(out.square().sum(), gate)
            assert grad.isfinite().all()
            assert grad.abs().sum() > 0


def test_gradient_of_the_logit_gate_at_zero_is_that_of_the_ratio() -> None:
    """softmax(s + log g) V = sum g e^s V / sum g e^s has a finite derivative where g = 0."""
    model, inputs = make("bert").double(), batch("bert")
    gated = apply_token_gate(model, "logit")
    target = torch.randn(2, 9, 32, dtype=torch.float64)

    def f(gate: torch.Tensor) -> torch.Tensor:
        return (gated(**inputs, token_gate=gate)[0][:, :1] * target[:, :1]).sum()

    gate = torch.ones(2, 9, dtype=torch.float64)
    gate[0, 4] = 0.0
    (grad,) = torch.autograd.grad(f(gate.requires_grad_()), gate)
    step = torch.zeros_like(gate)
    step[0, 4] = 1e-4
    with torch.no_grad():
        slope = (f(gate + step) - f(gate)) / 1e-4
    # the floor of the gate, 1e-6, and the step, 1e-4, each bend it by less than this
    assert abs(grad[0, 4] - slope) < 5e-3 * abs(slope)


@torch.no_grad()
def test_models_outside_the_interface_are_gated_by_hooks() -> None:
    for name in ("mpnet", "deberta"):
        inputs, gate = batch(name), random_gate()
        with pytest.raises(UnsupportedError, match="interface"):
            apply_token_gate(make(name), "value", "interface")
        gated = apply_token_gate(make(name), "value")
        assert gated.backend == "hook"
        assert not torch.equal(gated(**inputs, token_gate=gate)[0], gated(**inputs)[0])
        gated.restore()
        before = make(name)(**inputs)[0]
        assert torch.equal(gated.model(**inputs)[0], before)


@torch.no_grad()
def test_logit_gate_of_mpnet_is_its_attention_mask() -> None:
    inputs = batch("mpnet")
    keep = torch.ones(2, 9)
    keep[:, 3] = 0
    gated = apply_token_gate(make("mpnet"), "logit")
    assert gated.backend == "hook"
    masked = make("mpnet")(**{**inputs, "attention_mask": (keep * inputs["attention_mask"]).long()})[0]
    where = (keep * inputs["attention_mask"]).bool()
    assert (gated(**inputs, token_gate=keep)[0] - masked)[where].abs().max() < TOLERANCE


def test_what_cannot_be_gated_is_refused_with_a_sentence() -> None:
    with pytest.raises(UnsupportedError, match=r'cannot gate DebertaV2Model .*Use `mode="value"`'):
        apply_token_gate(make("deberta"), "logit")
    with pytest.raises(ValueError, match='must be one of "value", "logit"; got'):
        apply_token_gate(make("bert"), "product")
    with pytest.raises(ValueError, match="must be a transformers model; got Linear"):
        apply_token_gate(torch.nn.Linear(2, 2))


def test_self_check_leaves_the_model_and_the_generator_alone() -> None:
    model = make("bert").train()
    model.embeddings.eval()
    state = torch.get_rng_state()
    apply_token_gate(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not model.embeddings.training


def test_restoring_takes_the_gate_away() -> None:
    model = make("bert")
    gated = apply_token_gate(model, "logit")
    assert model.config._attn_implementation == "argrad_logit_sdpa"
    gated.restore()
    assert model.config._attn_implementation == "sdpa"
    apply_token_gate(model, "value")
    assert model.config._attn_implementation == "argrad_value_sdpa"


def test_a_model_that_is_gated_in_some_layers_only_is_refused(monkeypatch) -> None:
    model = make("bert")
    layer = model.encoder.layer[1].attention.self
    forward = layer.forward
    monkeypatch.setattr(layer, "forward", lambda *a, token_gate=None, **k: forward(*a, **k))
    with pytest.raises(UnsupportedError, match="reaches 2 of 3 layers"):
        apply_token_gate(model, "value", "interface")
    assert apply_token_gate(model, "value").backend == "hook"


def test_where_tokens_can_be_deleted() -> None:
    for name in INTERFACE:
        assert removal_refusal(make(name), 9) is None
    assert "distances" in str(removal_refusal(make("mpnet"), 9))
    assert "neighbours" in str(removal_refusal(make("modernbert"), 500))
