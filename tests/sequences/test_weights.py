"""Weights, expectations and gradients from samples without replacement, against exact values."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import argrad as ag
from argrad.sequences import ratios
from argrad.sequences.weights import log_survival
from argrad.testing import assert_mean, assert_not_mean, z_scores
from sequence_oracle import Tabular

F64 = torch.float64
UNBIASED = ["unordered", "importance", "hindsight", "sum_and_sample"]
SMALL, LARGE = Tabular.random(4, 4), Tabular.random(4, 5, seed=1)


def draw(model: Tabular, k: int, batch: int, seed: int = 0) -> ag.SequenceSample:
    return ag.stochastic_beam_search(
        model.step, model.start(batch), k, generator=ag.CounterRNG(seed), **model.options
    )


def value_of(log_p: Tensor) -> Tensor:
    """Some function of the sequence, with a mean far from 0."""
    return torch.sin(3 * log_p) + 0.3 * log_p + 3


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("kind", UNBIASED)
@pytest.mark.parametrize(("model", "k"), [(SMALL, 2), (LARGE, 3), (LARGE, 8)], ids=str)
def test_expectations_are_unbiased(model: Tabular, k: int, kind: str) -> None:
    sample = draw(model, k, 4_000)
    log_p = model.log_prob()
    f = value_of(log_p)
    weights = sample.weights(kind, generator=ag.CounterRNG(1))
    assert (weights >= 0).all()
    assert z_scores(weights.sum(-1)[:, None], 1.0).abs().max() < 4.5, "the weights sum to 1 on average"
    estimate = (weights * f[model.which(sample.tokens)]).sum(-1)
    assert z_scores(estimate[:, None], (log_p.exp() * f).sum()).abs().max() < 4.5
    entropy = -(weights * sample.log_prob).sum(-1)
    assert z_scores(entropy[:, None], -(log_p.exp() * log_p).sum()).abs().max() < 4.5


@pytest.mark.parametrize("kind", [*UNBIASED, "normalized"])
def test_expectations_are_weighted_sums(kind: str) -> None:
    sample, rng = draw(SMALL, 3, 10), ag.CounterRNG(1)
    weights = sample.weights(kind, generator=rng)
    f = sample.length.double()
    for given in (f, sample.length, lambda s: s.length):
        torch.testing.assert_close(
            sample.expectation(given, kind, generator=rng), (weights * f).sum(-1)
        )
    entropy = sample.entropy(kind, generator=rng)
    torch.testing.assert_close(entropy, -(weights * sample.log_prob).sum(-1))


@pytest.mark.parametrize("k", [1, 2, 5, 20, 119])
def test_unordered_weights_sum_to_one(k: int) -> None:
    for kind in ("unordered", "normalized", "sum_and_sample"):
        total = draw(SMALL, k, 50).weights(kind).sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-14)


@pytest.mark.statistical
def test_normalized_weights_are_biased() -> None:
    sample = draw(SMALL, 3, 20_000)
    log_p = SMALL.log_prob()
    f = value_of(log_p)
    estimate = sample.expectation(f[SMALL.which(sample.tokens)], "normalized")
    assert_not_mean(estimate[:, None], (log_p.exp() * f).sum())


@pytest.mark.statistical
def test_the_unordered_estimate_is_the_mean_of_the_others_given_the_set() -> None:
    """So it has the least variance."""
    sample = draw(SMALL, 3, 4_000)
    f = value_of(SMALL.log_prob())[SMALL.which(sample.tokens)]
    spread = {kind: sample.expectation(f, kind).std().item() for kind in UNBIASED}
    assert all(spread["unordered"] < 0.9 * spread[kind] for kind in UNBIASED[1:]), spread
    # all six orders of one set, weighted by their probabilities: sum-and-sample becomes the unordered set
    log_p = sample.log_prob[:50]
    orders = torch.tensor(list(itertools.permutations(range(3))))
    ordered = log_p[:, orders]  # (rows, 6, 3)
    share = ag.plackett_luce_log_prob(ordered).softmax(-1)
    weights = ordered.exp()
    weights[..., 2] = 1 - weights[..., :2].sum(-1)
    mean = torch.zeros_like(log_p)
    for i in range(6):
        mean[:, orders[i]] += share[:, i, None] * weights[:, i]
    torch.testing.assert_close(mean, sample.weights()[:50])


def test_a_constant_has_no_variance() -> None:
    sample = draw(SMALL, 3, 200)
    for kind in ("unordered", "sum_and_sample"):
        estimate = sample.expectation(torch.full_like(sample.log_prob, 7.0), kind)
        torch.testing.assert_close(estimate, torch.full_like(estimate, 7.0))


# ---- gradients -----------------------------------------------------------------------------------


def gradients(model: Tabular, sample: ag.SequenceSample | ag.RepeatedSample, **options) -> Tensor:
    """The gradient for the table that each row of the batch estimates, `(batch, entries)`."""
    table = model.table.clone().requires_grad_()
    log_p = model.log_prob(table)
    slopes = torch.stack([torch.autograd.grad(x, table, retain_graph=True)[0].flatten() for x in log_p])
    which = model.which(sample.tokens)
    leaf = log_p.detach()[which].requires_grad_()
    reward = value_of(log_p.detach())[which]
    value = sample.surrogate(reward, leaf, **options)
    torch.testing.assert_close(value.detach(), sample.expectation(reward, **_kind(options)))
    (coefficient,) = torch.autograd.grad(value.sum(), leaf)
    per_leaf = torch.zeros(len(which), len(log_p), dtype=F64).scatter_add_(1, which, coefficient)
    return per_leaf @ slopes


def _kind(options: dict) -> dict:
    return {name: options[name] for name in ("kind", "generator") if name in options}


def exact_gradient(model: Tabular) -> Tensor:
    table = model.table.clone().requires_grad_()
    log_p = model.log_prob(table)
    (log_p.exp() * value_of(log_p.detach())).sum().backward()
    assert table.grad is not None
    return table.grad.flatten()


TINY = Tabular.random(3, 3, seed=2, scale=0.5)  # 15 sequences, none of them rare: z-scores are normal


@pytest.mark.statistical
@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize("kind", UNBIASED)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_gradients_are_unbiased(k: int, kind: str, baseline: bool) -> None:
    sample = draw(TINY, k, 5_000)
    options = {"kind": kind, "baseline": baseline, "generator": ag.CounterRNG(2)}
    assert_mean(gradients(TINY, sample, **options), exact_gradient(TINY))


@pytest.mark.statistical
def test_the_normalized_gradient_is_biased_and_a_constant_baseline_is_not() -> None:
    sample, exact = draw(TINY, 3, 5_000), exact_gradient(TINY)
    assert_not_mean(gradients(TINY, sample, kind="normalized"), exact)
    assert_mean(gradients(TINY, sample, baseline=torch.full((5_000,), 3.0)), exact)


@pytest.mark.statistical
def test_the_built_in_baseline_lowers_the_variance() -> None:
    sample = draw(TINY, 3, 5_000)
    repeated = ag.ancestral_sample(
        TINY.step, TINY.start(5_000), 3, generator=ag.CounterRNG(0), **TINY.options
    )
    with_it, without, independent = (
        gradients(TINY, s, **o).var(0).sum().item()
        for s, o in ((sample, {}), (sample, {"baseline": False}), (repeated, {}))
    )
    assert with_it < 0.5 * without
    assert with_it < 0.7 * independent, "leave-one-out of as many independent samples"


def test_the_whole_support_gives_the_exact_gradient() -> None:
    sample = draw(TINY, 20, 3)
    exact = exact_gradient(TINY)
    for kind in (*UNBIASED, "normalized"):
        for baseline in (True, False):
            g = gradients(TINY, sample_of(sample), kind=kind, baseline=baseline)
            torch.testing.assert_close(g, exact.expand(3, -1), rtol=0, atol=1e-6)


def sample_of(sample: ag.SequenceSample) -> ag.SequenceSample:
    """Tokens of invalid places replaced by some sequence, for the index of the oracle."""
    tokens = sample.tokens.where(sample.valid[..., None], sample.tokens[:, :1])
    fields = {name: getattr(sample, name) for name in sample.__dataclass_fields__}
    return ag.SequenceSample(**{**fields, "tokens": tokens})


def test_rewards_may_have_a_gradient_of_their_own() -> None:
    sample = draw(SMALL, 3, 5)
    scale = torch.tensor(2.0, dtype=F64, requires_grad=True)
    log_p = sample.log_prob.clone().requires_grad_()
    sample.surrogate(lambda s: scale * s.length, log_p).sum().backward()
    expected = sample.expectation(sample.length.double()).sum()
    torch.testing.assert_close(scale.grad, expected)


# ---- the pieces ----------------------------------------------------------------------------------


def test_log_survival_against_high_precision() -> None:
    from mpmath import mp, mpf

    mp.dps = 50
    for x in (-800.0, -20.0, -6.0, -5.9, -1.0, 0.0, 3.0, 9.99, 10.0, 60.0, 700.0):
        exact = float(mp.log(-mp.expm1(-mp.exp(-mpf(x)))))
        got = log_survival(torch.tensor(x, dtype=F64)).item()
        assert abs(got - exact) <= 1e-13 * max(1.0, abs(exact)), x


def orders(p: Tensor) -> dict[tuple[int, ...], float]:
    """Probability of each order of all items."""
    found = {}
    for order in itertools.permutations(range(len(p))):
        left, total = 1.0, 1.0
        for i in order:
            total *= p[i].item() / left
            left -= p[i].item()
        found[order] = total
    return found


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_sets_and_ratios_by_enumeration(k: int, scale: float) -> None:
    phi = (scale * torch.randn(k + 3, generator=torch.Generator().manual_seed(k)).double()).log_softmax(
        -1
    )
    phi = phi[:k]
    p = phi.exp()
    assert abs(ag.log_prob_set(phi).exp().item() - sum(orders(p).values())) < 1e-9
    ratio = ag.leave_one_out_log_ratio(phi)
    for s in range(k):
        rest = torch.cat([p[:s], p[s + 1 :]]) / (1 - p[s])
        inner = sum(orders(rest).values()) if k > 1 else 1.0
        assert abs(ratio[s].item() - (math.log(inner) - ag.log_prob_set(phi).item())) < 1e-6
    first = {order[0]: 0.0 for order in orders(p)}
    for order, prob in orders(p).items():
        first[order[0]] += prob
    weights = torch.exp(phi + ratio)
    share = torch.tensor([first[s] for s in range(k)], dtype=F64)
    torch.testing.assert_close(weights, share / share.sum(), rtol=1e-8, atol=1e-10)


def test_plackett_luce_sums_to_one_and_has_a_gradient() -> None:
    logits = torch.randn(5, dtype=F64, generator=torch.Generator().manual_seed(0))
    phi = logits.log_softmax(-1)
    places = torch.tensor(list(itertools.permutations(range(5), 3)))
    assert abs(ag.plackett_luce_log_prob(phi[places]).exp().sum().item() - 1) < 1e-12
    assert gradcheck(
        lambda x: ag.plackett_luce_log_prob(x.log_softmax(-1)[:3]), logits.clone().requires_grad_()
    )
    assert ag.plackett_luce_log_prob(phi[:1]).item() == phi[0].item()


@pytest.mark.statistical
def test_hindsight_gumbels_have_the_law_of_the_race() -> None:
    """Given the order, the race's own values and those drawn in hindsight agree in mean and spread."""
    n = 200_000
    phi = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=F64).log()
    race = ag.gumbel_topk(phi.expand(n, -1), 2, generator=torch.Generator().manual_seed(0))
    chosen = (race.indices == torch.tensor([1, 0])).all(-1)  # one order, drawn n times or so
    values = torch.cat([race.perturbed, race.kappa[:, None]], -1)[chosen]
    perturbed, kappa = ag.hindsight_gumbels(
        phi[[1, 0]].expand(n, -1), generator=torch.Generator().manual_seed(1)
    )
    drawn = torch.cat([perturbed, kappa[:, None]], -1)
    assert (drawn.diff() < 0).all()
    for power in (1, 2):
        a, b = values**power, drawn**power
        error = (a.var(0) / len(a) + b.var(0) / len(b)).sqrt()
        assert ((a.mean(0) - b.mean(0)) / error).abs().max() < 5.5


def test_hindsight_of_everything_leaves_nothing() -> None:
    perturbed, kappa = ag.hindsight_gumbels(torch.tensor([0.5, 0.5], dtype=F64).log())
    assert perturbed.isfinite().all()
    assert kappa == -math.inf
    perturbed, _ = ag.hindsight_gumbels(torch.full((3, 2), -400.0))
    assert perturbed.dtype == torch.float32
    assert perturbed.isfinite().all()


def test_pairs_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    phi = (
        torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).log_softmax(
            -1
        )
        - 0.1
    )
    whole = ag.leave_one_out_log_ratio(phi, order=2)
    monkeypatch.setattr(ratios, "_AT_ONCE", 1)
    torch.testing.assert_close(ag.leave_one_out_log_ratio(phi, order=2), whole)
