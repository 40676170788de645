"""Token gates on a real encoder, the packaged MiniLM (90 MB, from the wheel)."""

from __future__ import annotations

import pytest
import torch

from argrad._errors import InputError
from argrad.integrations.sentences import GatedEncoder, apply_token_gate
from argrad.integrations.sentences._removal import position_ids
from argrad.recipes.data import wheels

TEXTS = [
    "A man is playing a large flute.",
    "The cat sat on the mat while it rained outside in the garden.",
    "Two dogs run.",
]


@pytest.fixture(scope="module")
def minilm() -> str:
    try:
        return str(wheels.minilm())
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@torch.no_grad()
def test_gates_of_minilm_are_product_and_deletion(minilm: str) -> None:
    plain = GatedEncoder.build(minilm).eval()
    inputs = plain.tokenize(TEXTS)
    mask = inputs["attention_mask"].bool()
    before = plain.backbone(**inputs).last_hidden_state
    gate = torch.rand(mask.shape, generator=torch.Generator().manual_seed(0))
    hooked = apply_token_gate(GatedEncoder.build(minilm).eval().backbone, "value", "hook")
    value = apply_token_gate(plain.backbone, "value")
    assert torch.equal(value(**inputs, token_gate=torch.ones_like(gate))[0], before)
    gap = value(**inputs, token_gate=gate)[0] - hooked(**inputs, token_gate=gate)[0]
    assert gap[mask].abs().max() < 1e-5  # float32, six layers
    value.restore()
    keep = (gate > 0.5) & mask
    logit = apply_token_gate(plain.backbone, "logit")(**inputs, token_gate=keep.float())[0]
    positions = position_ids(plain.backbone, inputs["input_ids"], inputs["attention_mask"])
    for row, kept in enumerate(keep):
        short = {"input_ids": inputs["input_ids"][row, kept][None]}
        deleted = plain.backbone(**short, position_ids=positions[row, kept][None])[0][0]
        assert (logit[row, kept] - deleted).abs().max() < 1e-5


@pytest.mark.slow
def test_minilm_with_half_of_its_tokens(minilm: str) -> None:
    torch.manual_seed(0)
    encoder = GatedEncoder.build(minilm, gate={"k": 0.5}, mode="logit")
    removed, masked = encoder.encode_counted(TEXTS), encoder.encode_counted(TEXTS, remove=False)
    assert torch.allclose(removed.embedding, masked.embedding, atol=1e-5)  # float32, six layers
    special = 2 * len(TEXTS)
    assert removed.kept.sum() - special <= (removed.tokens.sum() - special) / 2 + len(TEXTS)
