"""Recipes for sequences and decisions: rewards and models against enumeration, smoke runs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

import argrad as ag
from argrad.recipes import clinic, counterfactual, seqgan, seqgan_model, swor, swor_models
from smoke_run import smoke


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


# ---- counterfactuals -------------------------------------------------------------------------------


def test_the_exact_value_is_the_sum_over_all_episodes() -> None:
    policy, p = clinic.other_policy(), clinic.log_transitions().exp()
    total, mass = 0.0, 0.0
    for path in itertools.product(range(clinic.LEVELS), repeat=3):
        levels = (2, *path)
        chances = [(policy[s] * p[s, :, t]).sum().item() for s, t in itertools.pairwise(levels)]
        mass += math.prod(chances)
        total += math.prod(chances) * clinic.REWARD[levels[-1]].item()
    assert abs(mass - 1) < 1e-12
    assert abs(total - clinic.value(policy, 2, 3)) < 1e-12


@pytest.mark.parametrize("name", ["Gumbel-max", "inverse CDF"])
def test_what_happened_would_have_happened(name: str) -> None:
    """Under the same log-probabilities the same noise gives what was seen."""
    g = torch.Generator().manual_seed(0)
    seen = clinic.observe(2000, 2, 6, g)
    p = clinic.log_transitions()[seen.levels[:, :-1], seen.actions].flatten(0, 1)
    after = seen.levels[:, 1:].flatten()
    assert torch.equal(clinic.MECHANISMS[name](p, after, p, g), after)


@pytest.mark.parametrize("name", clinic.MECHANISMS)
def test_imagined_days_have_the_law_of_the_other_policy(name: str) -> None:
    """Frequencies of the last level against dynamic programming, by a chi-square at 1e-6."""
    g = torch.Generator().manual_seed(0)
    last = clinic.imagine(clinic.observe(50_000, 2, 4, g), clinic.MECHANISMS[name], g)
    step = torch.einsum("sa,sat->st", clinic.other_policy(), clinic.log_transitions().exp())
    expected = 50_000 * torch.linalg.matrix_power(step, 4)[2]
    counts = torch.bincount(last, minlength=clinic.LEVELS)
    statistic = ((counts - expected).square() / expected).sum().item()
    assert statistic < 35.9  # the quantile of 1 - 1e-6 for 5 degrees of freedom


def test_only_gumbel_max_is_stable() -> None:
    g = torch.Generator().manual_seed(0)
    seen = clinic.observe(5000, 2, 6, g)
    broken = {name: clinic.unstable(seen, m, g) for name, m in clinic.MECHANISMS.items()}
    assert broken["Gumbel-max"][0] == 0
    assert broken["inverse CDF"][0] > 0 and broken["fresh noise"][0] > 0


# ---- SeqGAN ----------------------------------------------------------------------------------------


@pytest.fixture
def writer() -> seqgan_model.Writer:
    return seqgan_model.oracle(5, 4, 3, seed=0).requires_grad_()


def test_the_whole_sequence_at_once_is_step_by_step(writer: seqgan_model.Writer) -> None:
    tokens = torch.randint(5, (7, 4), generator=torch.Generator().manual_seed(0))
    length = torch.full((7, 1), 4)
    for tau in (1.0, 0.5):
        slow = ag.sequence_log_prob(
            writer.step, writer.state(7), tokens[:, None], length, per_token=True, tau=tau
        )
        torch.testing.assert_close(writer.log_prob(tokens, tau), slow[:, 0], rtol=1e-4, atol=1e-5)


def test_written_sequences_have_the_law_of_the_writer(writer: seqgan_model.Writer) -> None:
    """All 625 sequences: frequencies against probabilities, by a chi-square at 1e-6."""
    every = torch.tensor(list(itertools.product(range(5), repeat=4)))
    p = writer.log_prob(every).sum(-1).exp().double().detach()
    assert abs(p.sum().item() - 1) < 1e-4
    written = writer.write(40_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(written @ torch.tensor([125, 25, 5, 1]), minlength=625)
    common = 40_000 * p >= 5
    expected = torch.cat([40_000 * p[common], 40_000 * p[~common].sum()[None]])
    found = torch.cat([counts[common], counts[~common].sum()[None]])
    statistic = ((found - expected).square() / expected).sum().item()
    assert statistic < chi2.isf(1e-6, len(expected) - 1)


@pytest.mark.parametrize("name", [name for name in seqgan.LOSSES if name != "constant reward"])
def test_every_way_moves_the_writer_towards_what_the_judge_likes(name: str) -> None:
    """A judge that likes the token 0 and nothing else: after some steps it is written more often."""
    torch.manual_seed(0)
    config = seqgan.Config(vocabulary=6, length=4, batch=64, rollouts=4)
    writer = seqgan_model.Writer(6, 4, 8)
    game = seqgan.Game(writer, writer, LikesZeros(), config, torch.Generator().manual_seed(0))
    before = (writer.write(2000, game.noise) == 0).float().mean()
    optimizer = torch.optim.Adam(writer.parameters(), 0.02)
    for _ in range(30):
        optimizer.zero_grad()
        seqgan.LOSSES[name](game).backward()
        optimizer.step()
    after = (writer.write(2000, game.noise) == 0).float().mean()
    assert after > before + 0.1


class LikesZeros(torch.nn.Module):
    """The logit is twice the number of zeros, less 4."""

    def forward(self, s: Tensor) -> Tensor:
        zeros = s[..., 0] if s.is_floating_point() else (s == 0).float()
        return 2 * zeros.sum(-1) - 4


def test_a_judge_reads_tokens_and_one_hots_alike() -> None:
    torch.manual_seed(0)
    judge = seqgan_model.Judge(6, 4, 8, 3).eval()
    tokens = torch.randint(6, (2, 5, 4))
    hard = torch.nn.functional.one_hot(tokens, 6).float()
    torch.testing.assert_close(judge(tokens), judge(hard))


@pytest.mark.parametrize("name", ["swor", "counterfactual", "seqgan"])
def test_smoke(name: str, tmp_path: Path) -> None:
    smoke(name, tmp_path)


def test_unknown_rows_and_columns_get_a_sentence() -> None:
    with pytest.raises(ag.InputError, match="no row 'steep'; there are peaked"):
        swor.cells(swor.Config(rows=("steep",)))
    with pytest.raises(ag.InputError, match="no column 'gibbs'; there are Monte Carlo"):
        swor.cells(swor.Config(columns=("gibbs",)))
    with pytest.raises(ag.InputError, match="no column 'fate'; there are Gumbel-max"):
        counterfactual.cells(counterfactual.Config(columns=("fate",)))
    with pytest.raises(ag.InputError, match="`--start` must be from 1 to 4; got 5"):
        counterfactual.cells(counterfactual.Config(start=5))
