"""The pages of docs/sequences say what was measured, and the models they speak of are as they say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import argrad as ag

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "sequences"


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sequences_measure", FOLDER / "measure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_tables_and_sources_are_up_to_date(measure: ModuleType) -> None:
    results = json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))
    texts = {page.name: page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md")}
    stale = [name for name, text in texts.items() if measure.filled(text, results) != text]
    assert not stale, f"run `docs/sequences/measure.py --write-only`: {', '.join(stale)} are stale"
    used = {m[2] for text in texts.values() for m in measure.BLOCK.findall(text) if m[1] == "sequences"}
    assert used == set(measure.TABLES), "every table is on a page"


@pytest.mark.slow
def test_pronunciations(measure: ModuleType) -> None:
    """What greedy decoding with the package's own code gives, and with which probability (research notes)."""
    model = measure.packages.Pronouncer()
    for word, sounds, p in (
        ("gumbel", "G AH1 M B AH0 L", 0.988),
        ("tomato", "T OW0 M AA1 T OW0", 0.677),
        ("read", "R IY1 D", 0.508),
    ):
        best = ag.beam_search(model.step, model.read(word), 4, eos=measure.packages.END, max_len=20)
        said = best.tokens[0, 0, : best.length[0, 0] - 1].tolist()
        assert " ".join(measure.packages.PHONEMES[t] for t in said) == sounds
        assert abs(best.log_prob[0, 0].exp().item() - p) < 5e-4
    everything = measure.pronounce(model, "read", 200)
    assert everything.log_prob.exp().sum() > 0.999


@pytest.mark.slow
def test_a_language_model(measure: ModuleType) -> None:
    pytest.importorskip("transformers")
    model, tokenizer = measure.packages.load_smollm()
    sample = measure.continue_prompt(model, tokenizer, tau=0.3, tokens=2, k=4)
    assert tokenizer.decode(sample.tokens[0, 0]) == " Paris."
    prompt = tokenizer(measure.PROMPT, return_tensors="pt")
    again = ag.integrations.huggingface.score(model, prompt, sample, tau=0.3)
    # 30 layers in float32, cached and not; divided by the temperature
    torch.testing.assert_close(again.double(), sample.log_prob, rtol=1e-3, atol=2e-3)
