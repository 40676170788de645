"""Ancestral, arithmetic and incremental sampling, rollouts and scores, against the list of all sequences."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad.sequences import codes
from argrad.testing import assert_frequencies, assert_mean, z_scores
from sequence_oracle import Tabular, inclusion, pair_law

SMALL = Tabular.random(4, 4)  # 121 sequences
SAMPLERS = [ag.ancestral_sample, ag.arithmetic_sample]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def options(seed: int = 0, model: Tabular = SMALL) -> dict:
    return {"generator": ag.CounterRNG(seed), **model.options}


# ---- with replacement ----------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_sample_has_the_law_of_the_model(sampler) -> None:
    sample = sampler(SMALL.step, SMALL.start(20_000), 3, **options())
    which, log_p = SMALL.which(sample.tokens), SMALL.log_prob()
    torch.testing.assert_close(sample.log_prob, log_p[which], rtol=0, atol=1e-12)
    for i in range(3):
        assert_frequencies(torch.bincount(which[:, i], minlength=121), log_p.exp())
    assert (sample.finished == (sample.tokens == SMALL.eos).any(-1)).all()
    assert sample.valid.all()
    entropy = -(log_p.exp() * log_p).sum()
    assert z_scores(sample.entropy()[:, None], entropy).abs().max() < 4.5


@pytest.mark.statistical
def test_ancestral_samples_are_independent() -> None:
    sample = ag.ancestral_sample(SMALL.step, SMALL.start(20_000), 2, **options())
    which, p = SMALL.which(sample.tokens), SMALL.log_prob().exp()
    pairs = which[:, 0] * 121 + which[:, 1]
    assert_frequencies(torch.bincount(pairs, minlength=121**2), p[:, None] * p)
    assert sample.independent


@pytest.mark.statistical
def test_arithmetic_samples_are_spread() -> None:
    model, rows, n = Tabular.random(4, 4, scale=0.7, seed=4), 4_000, 8
    sample = ag.arithmetic_sample(model.step, model.start(rows), n, **options(model=model))
    log_p = model.log_prob()
    which, p = model.which(sample.tokens), log_p.exp()
    count = torch.zeros(rows, 121).scatter_add_(1, which, torch.ones(rows, n))
    # evenly spaced points: an interval of length p holds n p of them, rounded one way or the other
    assert (count <= (n * p).ceil()).all()
    assert (count >= (n * p).floor()).all()
    first = torch.tensor([leaf[0] for leaf in model.leaves]).double()
    free = ag.ancestral_sample(model.step, model.start(rows), n, **options(model=model))
    spread = [s.expectation(first[model.which(s.tokens)]).var().item() for s in (sample, free)]
    assert spread[0] < 0.2 * spread[1], "the first token is stratified"
    assert not sample.independent


@pytest.mark.statistical
def test_codes_are_refilled() -> None:
    """80 bits are read off a code of 53: without fresh ones all late tokens would be the same."""
    step = lambda token, state: (torch.zeros(len(state), 4, dtype=torch.float64), state)  # noqa: E731
    free = {"eos": None, "max_len": 40, "generator": ag.CounterRNG(0)}
    single = ag.arithmetic_sample(step, torch.zeros(3000, 1), 1, **free)
    for t in (0, 13, 26, 27, 39):
        assert_frequencies(torch.bincount(single.tokens[:, 0, t], minlength=4), torch.ones(4))
    # 64 codes differ in their first 6 bits alone: then they say the same, until the fresh bits arrive
    many = ag.arithmetic_sample(step, torch.zeros(1, 1), 64, **free).tokens[0]
    assert len(torch.unique(many[:, :3], dim=0)) == 64
    assert len(torch.unique(many[:, 3:20], dim=0)) == 1
    assert len(torch.unique(many[:, 30:], dim=0)) == 64


def test_codes_by_kernel_and_by_torch() -> None:
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 1000, generator=g, dtype=torch.float64)
    logits[..., ::3] = -math.inf
    logits[0, 0, 500:] = -math.inf
    places = torch.rand(3, 4, generator=g, dtype=torch.float64)
    places[0, 0] = 1 - 2.0**-53
    places[1, 1] = 0.0
    kernel, status = codes._read_kernel(logits, places, torch.ones(3, 4, dtype=torch.bool))
    assert status == 0
    plain = codes._read_torch(logits, places)
    assert torch.equal(kernel.tokens, plain.tokens)
    torch.testing.assert_close(kernel.log_p, plain.log_p)
    torch.testing.assert_close(kernel.rest, plain.rest, rtol=0, atol=1e-9)
    torch.testing.assert_close(kernel.resolution, plain.resolution)
    assert (logits.gather(-1, kernel.tokens[..., None]) > -math.inf).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_rows_do_not_depend_on_their_neighbours(sampler) -> None:
    whole = sampler(SMALL.step, SMALL.start(6), 5, **options(4))
    part = sampler(
        SMALL.step, SMALL.start(4), 5, **{**options(), "generator": ag.CounterRNG(4).shift(rows=2)}
    )
    width = min(whole.tokens.shape[-1], part.tokens.shape[-1])
    assert torch.equal(whole.tokens[2:, :, :width], part.tokens[..., :width])
    order = torch.tensor([5, 3, 0, 1, 2, 4])
    shuffled = sampler(SMALL.step, SMALL.start(6), 5, rows=order, **options(4))
    assert torch.equal(shuffled.tokens, whole.tokens[order])


@pytest.mark.statistical
def test_leave_one_out_gradients_are_unbiased() -> None:
    model = Tabular.random(3, 3, seed=2, scale=0.5)
    table = model.table.clone().requires_grad_()
    log_p = model.log_prob(table)
    f = 3 + torch.sin(3 * log_p.detach())
    (exact,) = torch.autograd.grad((log_p.exp() * f).sum(), table, retain_graph=True)
    slopes = torch.stack([torch.autograd.grad(x, table, retain_graph=True)[0].flatten() for x in log_p])
    for sampler in SAMPLERS:
        sample = sampler(model.step, model.start(10_000), 4, **options(model=model))
        which = model.which(sample.tokens)
        leaf = log_p.detach()[which].requires_grad_()
        (grad,) = torch.autograd.grad(sample.surrogate(f[which], leaf).sum(), leaf)
        per_leaf = torch.zeros(10_000, len(f), dtype=torch.float64).scatter_add_(1, which, grad)
        assert_mean(per_leaf @ slopes, exact.flatten())


# ---- without replacement, in parts ---------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("parts", [(1, 2), (2, 1), (1, 1, 1)])
def test_draws_in_parts_have_the_law_of_one_draw(parts: tuple[int, ...]) -> None:
    rows = 3_000
    sampler = ag.UniqueSampler(SMALL.step, SMALL.start(rows), **options(sum(parts) + len(parts)))
    drawn = [sampler.draw(k) for k in parts]
    sample = sampler.sample
    assert sample.tokens.shape[1] == 3
    which, log_p = SMALL.which(sample.tokens), SMALL.log_prob()
    p = log_p.exp()
    torch.testing.assert_close(sample.log_prob, log_p[which], rtol=0, atol=1e-12)
    assert (which.sort(-1).values.diff() > 0).all(), "a sequence was drawn twice"
    assert_frequencies(torch.bincount(which[:, 0], minlength=121), p)
    pairs = torch.bincount(which[:, 0] * 121 + which[:, 1], minlength=121**2)
    assert_frequencies(pairs, pair_law(p))
    exact = inclusion(p, 3)
    seen = torch.bincount(which.flatten(), minlength=121) / rows
    often = exact * rows > 10
    z = ((seen - exact) / (exact * (1 - exact) / rows).sqrt())[often]
    assert z.abs().max() < 5.5
    # the values too: falling, ending above kappa, with unbiased importance weights
    assert (sample.perturbed.diff() < 0).all()
    assert (sample.perturbed[:, -1] > sample.kappa).all()
    f = torch.sin(3 * log_p) + 0.3 * log_p + 3
    for kind in ("unordered", "importance", "hindsight", "sum_and_sample"):
        estimate = sample.expectation(f[which], kind, generator=ag.CounterRNG(9))
        assert z_scores(estimate[:, None], (p * f).sum()).abs().max() < 4.5
    assert torch.equal(drawn[-1].kappa, sample.kappa)


@pytest.mark.parametrize("scale", [0.3, 1.5, 6.0])
def test_drawing_until_nothing_is_left(scale: float) -> None:
    """Peaked models leave 1e-12 of their mass for the last half: rounding must not lose or double any."""
    model = Tabular.random(4, 4, scale=scale, seed=3)
    sampler = ag.UniqueSampler(model.step, model.start(2), **options(model=model))
    for _ in range(20):
        sampler.draw(7)
    sample = sampler.sample
    assert sampler.exhausted.all()
    assert sample.valid.sum(-1).tolist() == [121, 121]
    for which, valid in zip(model.which(sample.tokens), sample.valid, strict=True):
        assert sorted(which[valid].tolist()) == list(range(121))
    assert (sample.kappa == -math.inf).all()
    values = sample.perturbed[sample.valid].view(2, -1)
    assert (values.diff() < 0).all()
    after = sampler.draw(1)
    assert not after.valid.any()


def test_the_first_part_is_a_stochastic_beam_search() -> None:
    one = ag.stochastic_beam_search(SMALL.step, SMALL.start(10), 4, **options(2))
    part = ag.UniqueSampler(SMALL.step, SMALL.start(10), **options(2)).draw(4)
    assert torch.equal(one.tokens, part.tokens)
    torch.testing.assert_close(one.kappa, part.kappa)


# ---- values of beginnings ------------------------------------------------------------------------


@pytest.mark.statistical
def test_rollouts_are_unbiased() -> None:
    """Against the exact mean of the reward below each beginning."""
    log_p = SMALL.log_prob()
    f = torch.sin(3 * log_p)
    sequence = torch.tensor([1, 0, 2, 1])

    def reward(tokens: Tensor, length: Tensor) -> Tensor:
        assert tokens.shape[-1] == 4
        return f[SMALL.which(tokens)]

    rows = 3_000
    tokens = sequence.expand(rows, -1)
    q = ag.rollout(SMALL.step, SMALL.start(rows), tokens, reward, 4, **options())
    for t in range(4):
        below = torch.tensor(
            [leaf[: t + 1] == tuple(sequence[: t + 1].tolist()) for leaf in SMALL.leaves]
        )
        exact = (log_p.softmax(0)[below] * f[below]).sum() / log_p.softmax(0)[below].sum()
        assert_mean(q[:, t, None], exact)
    torch.testing.assert_close(q[:, 3], f[SMALL.which(tokens)])


def test_rollouts_behind_the_end() -> None:
    tokens = torch.tensor([[1, 3, 3, 3], [0, 1, 2, 0]])
    reward = lambda tokens, length: length.double()  # noqa: E731
    q = ag.rollout(SMALL.step, SMALL.start(2), tokens, reward, 5, **options())
    assert q[0, 1:].tolist() == [2.0, 0.0, 0.0]
    assert q[1, 3].item() == 4.0


# ---- scores --------------------------------------------------------------------------------------


def test_scores_are_the_log_probabilities_with_a_gradient() -> None:
    table = SMALL.table.clone().requires_grad_()
    model = Tabular(table, SMALL.max_len, SMALL.eos)
    extra = {"tau": 0.7, "mask": torch.tensor([True, True, False, True]), "min_len": 2}
    sample = ag.stochastic_beam_search(model.step, model.start(6), 5, **options(), **extra)
    arguments = (model.step, model.start(6), sample.tokens, sample.length)
    log_prob = ag.sequence_log_prob(*arguments, eos=3, **extra)
    torch.testing.assert_close(log_prob, sample.log_prob)
    terms = ag.sequence_log_prob(*arguments, eos=3, per_token=True, **extra)
    assert terms.shape == sample.tokens.shape
    torch.testing.assert_close(terms.sum(-1), log_prob)
    assert (terms[torch.arange(terms.shape[-1]) >= sample.length[..., None]] == 0).all()
    log_prob.sum().backward()
    assert table.grad is not None
    assert table.grad.isfinite().all()
    assert (table.grad[:, 2] == 0).all()


@pytest.mark.statistical
def test_a_policy_gradient_from_end_to_end() -> None:
    """Sample, score, surrogate, backward: the mean over rows is the exact gradient."""
    model = Tabular.random(3, 3, seed=2, scale=0.5)
    table = model.table.clone().requires_grad_()
    trained = Tabular(table, model.max_len, model.eos)
    f = 3 + torch.sin(3 * model.log_prob())
    (exact,) = torch.autograd.grad((model.log_prob(table).exp() * f).sum(), table)
    total, batches = [], 40
    for seed in range(batches):
        sample = ag.stochastic_beam_search(trained.step, model.start(200), 3, **options(seed, model))
        log_prob = ag.sequence_log_prob(trained.step, model.start(200), sample.tokens, sample.length)
        loss = sample.surrogate(f[model.which(sample.tokens)], log_prob).mean()
        total.append(torch.autograd.grad(loss, table)[0].flatten())
    assert_mean(
        torch.stack(total), exact.flatten(), alpha=1e-8
    )  # 40 batches: t has heavier tails than z
