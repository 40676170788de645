"""Recipes for sequences and decisions: rewards and models against enumeration, smoke runs."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad.recipes import find, swor, swor_models
from argrad.recipes.bench.reproduce import reproduce


def slow_bleu(said: list[int], target: list[int]) -> float:
    """From the definition, with dictionaries."""
    product = 1.0
    for n in (1, 2):
        grams, wanted = (
            Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (said, target)
        )
        hits = sum(min(count, wanted[gram]) for gram, count in grams.items())
        product *= (hits + 1) / (sum(grams.values()) + 1)
    return math.exp(min(0.0, 1 - len(target) / len(said))) * math.sqrt(product)


def test_bleu_is_that_of_the_definition() -> None:
    target = [1, 2, 1, 3, 0]
    said = [list(s) for n in (1, 2, 3, 5) for s in itertools.product(range(4), repeat=n)]
    tokens = torch.tensor([s + [0] * (6 - len(s)) for s in said])
    length = torch.tensor([len(s) for s in said])
    found = swor_models.bleu(tokens, length, torch.tensor(target), 4)
    expected = torch.tensor([slow_bleu(s, target) for s in said], dtype=torch.float64)
    torch.testing.assert_close(found, expected)
    assert found[said.index([1, 2, 1, 3, 0])] == 1


@pytest.fixture(scope="module")
def model() -> swor_models.Model:
    return swor_models.speller(0.7, steps=60)


def all_sequences(model: swor_models.Model) -> tuple[Tensor, Tensor]:
    """Every word of at most five letters, the full stop included."""
    words = [
        [*w, 0] if n < model.max_len else list(w)
        for n in range(model.max_len + 1)
        for w in itertools.product(range(1, 5), repeat=n)
    ]
    tokens = torch.tensor([w + [0] * (model.max_len - len(w)) for w in words])
    return tokens[None], torch.tensor([len(w) for w in words])[None]


def test_the_reference_is_the_sum_over_all_sequences(model: swor_models.Model) -> None:
    tokens, length = all_sequences(model)
    bias = torch.zeros(1, model.vocabulary, requires_grad=True)
    log_p = ag.sequence_log_prob(
        model.step, model.state(1, bias), tokens, length, tau=model.tau
    ).double()
    p = log_p.exp()
    assert tokens.shape[1] == 1365
    assert abs(p.sum().item() - 1) < 1e-5
    reward = swor_models.bleu(tokens, length, model.target, model.vocabulary)
    mean = (p * reward).sum()
    (gradient,) = torch.autograd.grad(mean, bias)
    expected = torch.cat([torch.stack([mean, -(p * log_p).sum()]), gradient[0].double()]).detach()
    torch.testing.assert_close(swor.exact(model, 2000), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", swor.WAYS)
def test_every_way_estimates_all_quantities(name: str, model: swor_models.Model) -> None:
    """The mean of many estimates, against the exact values, within 5 standard errors where it is unbiased."""
    way, g = swor.WAYS[name], torch.Generator().manual_seed(0)
    errors = swor.values(model, way, way.draw(model, 2000, 4, g), g) - swor.exact(model, 2000)
    assert errors.shape == (2000, 2 + model.vocabulary)
    z = errors.mean(0) / (errors.std(0) / math.sqrt(2000))
    if way.unbiased:
        assert bool((z.abs() < 5).all()), z
    else:
        assert bool((z.abs() > 5).any()), z


@pytest.mark.parametrize("name", ["swor"])
def test_smoke(name: str, tmp_path: Path) -> None:
    recipe = find(name)
    summary = reproduce(recipe, recipe.smoke, preset="smoke", out=tmp_path, quiet=True)
    assert summary.passed, [(c.cell.name, c.mean()) for c in summary.cells if not c.in_band]
    written = json.loads((tmp_path / name / "results.json").read_text())
    assert len(written["cells"]) == len(recipe.cells(recipe.smoke))
    assert "<html" in (tmp_path / name / "report.html").read_text()


def test_unknown_rows_and_columns_get_a_sentence() -> None:
    with pytest.raises(ag.InputError, match="no row 'steep'; there are peaked"):
        swor.cells(swor.Config(rows=("steep",)))
    with pytest.raises(ag.InputError, match="no column 'gibbs'; there are Monte Carlo"):
        swor.cells(swor.Config(columns=("gibbs",)))
