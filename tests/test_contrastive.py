"""NCE, InfoNCE, sampled softmax, negative sampling, hierarchical softmax: what they estimate, exactly.

Expectations over noise are sums: a law whose probabilities are multiples of 1/k is "drawn" as the list in
which each class stands in proportion, so that a loss over that list is its own expectation.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

import argrad as ag
from argrad.class_noise.base import Negatives
from argrad.losses import _large_softmax
from argrad.losses.sampled_softmax import first_occurrences
from argrad.testing import assert_frequencies

P = torch.tensor([30, 5, 10, 25, 18, 12])  # data, in 1/100
Q = torch.tensor([10, 20, 10, 20, 10, 30])  # noise, in 1/100


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def proportional(counts: Tensor) -> Tensor:
    """Each class as often as its count says."""
    return torch.repeat_interleave(torch.arange(len(counts)), counts)


class Listed(ag.AliasTable):
    """Noise that "draws" a given list; counted as `k` draws of a law with these weights."""

    def __init__(self, weights: Tensor, draws: Tensor, k: int | None = None) -> None:
        super().__init__(weights)
        self.draws, self.k = draws, k

    def negatives(self, target, k, *, shared=True, generator=None):
        return Negatives(self.draws, self.k or self.draws.shape[-1])


def whole(counts: Tensor, k: int) -> Listed:
    """The law `counts`, of which `k` draws a datum are (in expectation) `k / counts.sum()` of its list."""
    return Listed(counts, proportional(counts), k)


def minimise(loss: Callable[[], Tensor], parameters: list[Tensor], steps: int = 300) -> None:
    optimiser = torch.optim.LBFGS(
        parameters,
        max_iter=steps,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)


def bias_only(module: nn.Module, scores: Tensor | None = None) -> nn.Module:
    """Scores that do not depend on the features: they are the bias."""
    nn.init.zeros_(module.weight)
    module.weight.requires_grad_(False)
    if scores is not None:
        with torch.no_grad():
            module.bias.copy_(scores)
    return module


def data(counts: Tensor, features: int = 1) -> tuple[Tensor, Tensor]:
    target = proportional(counts)
    return torch.zeros(len(target), features, dtype=torch.float64), target


# ---- NCE -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["log q", "zero"])
def test_nce_recovers_a_categorical_and_normalises_itself(start: str) -> None:
    # k = 100 noise classes for each of 100 data: both lists are exact expectations
    loss = bias_only(ag.NCE(1, whole(Q, 100), k=100, dtype=torch.float64))
    if start == "zero":
        nn.init.zeros_(loss.bias)
    hidden, target = data(P)
    minimise(lambda: loss(hidden, target).mean(), [loss.bias])
    # LBFGS stops where the loss, of size 1, no longer changes: scores to 1e-6
    torch.testing.assert_close(loss.bias.exp(), P / 100.0, rtol=0, atol=1e-5, check_dtype=False)
    assert loss.bias.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    assert abs(loss.partition(hidden).mean) < 1e-5


@pytest.mark.statistical
def test_nce_recovers_a_categorical_from_random_noise() -> None:
    p = P / 100.0
    loss = bias_only(ag.NCE(1, ag.Unigram(P, power=1.0), k=25, shared=False))
    nn.init.zeros_(loss.bias)  # a start that is not the answer
    source = ag.AliasTable(P)
    optimiser = torch.optim.Adam([loss.bias], lr=0.2)
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (1 + step / 50))
    mean, steps, g = torch.zeros(6), 500, seeded()
    for step in range(steps):
        target = source.sample((1000,), generator=g)
        optimiser.zero_grad()
        loss(torch.zeros(1000, 1), target, generator=g).mean().backward()
        optimiser.step()
        rate.step()
        if step >= steps // 2:
            mean += loss.bias.detach() / (steps - steps // 2)
    # 250 000 data behind the mean: a standard error of 1e-3 for p, and much less for the sum, whose
    # noise is that of 6 million noise classes against data of the same law
    torch.testing.assert_close(mean.exp(), p, rtol=0, atol=3e-3)
    assert mean.exp().sum().item() == pytest.approx(1.0, abs=1e-3)


def test_nce_gradient_tends_to_maximum_likelihood() -> None:
    scores = torch.tensor([0.3, -1.0, 0.2, 0.9, -0.4, 0.0], dtype=torch.float64).log_softmax(-1)
    exact = scores.exp() - P / 100.0
    hidden, target = data(P)
    errors = []
    for k in (1, 10, 100, 1000, 10_000):
        noise = proportional(Q)
        loss = bias_only(ag.NCE(1, Listed(Q, noise, k), dtype=torch.float64), scores)
        # a list of 100 stands for k draws: its terms weigh k/100
        first = loss(hidden, target)
        only_target = bias_only(ag.NCE(1, Listed(Q, noise[:0], k), dtype=torch.float64), scores)
        grad_all = torch.autograd.grad(first.mean(), loss.bias)[0]
        grad_data = torch.autograd.grad(only_target(hidden, target).mean(), only_target.bias)[0]
        grad = grad_data + (grad_all - grad_data) * (k / 100)
        errors.append((grad - exact).abs().max().item())
    ratios = [a / b for a, b in itertools.pairwise(errors)]
    assert all(r > 3 for r in ratios) and ratios[-1] == pytest.approx(10, rel=0.05)  # like 1/k
    assert errors[-1] < 1e-4


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.statistical
def test_nce_gradient_with_drawn_noise_has_the_expected_mean(shared: bool) -> None:
    scores = torch.linspace(-2.5, -1.0, 6, dtype=torch.float64)
    loss = bias_only(ag.NCE(1, ag.AliasTable(Q), k=7, shared=shared, dtype=torch.float64), scores)
    hidden, target = data(P)
    g = seeded()
    grads = torch.stack(
        [
            torch.autograd.grad(loss(hidden, target, generator=g).mean(), loss.bias)[0]
            for _ in range(500)
        ]
    )
    p, q = P.double() / 100, Q.double() / 100
    exact = -p * torch.sigmoid(-(scores - (7 * q).log())) + 7 * q * torch.sigmoid(
        scores - (7 * q).log()
    )
    ag.testing.assert_mean(grads, exact)


def test_log_q_bias_starts_normalised_and_zero_does_not() -> None:
    noise = ag.Unigram(torch.arange(1.0, 1001.0))
    loss = ag.NCE(16, noise)
    hidden = torch.randn(64, 16, generator=seeded())
    assert loss.partition(torch.zeros(1, 16)).mean == pytest.approx(0.0, abs=1e-5)
    assert abs(loss.partition(hidden).mean) < 0.5
    nn.init.zeros_(loss.bias)
    assert loss.partition(hidden).mean > 6  # log 1000 = 6.9
    stats = loss.partition(hidden)
    assert stats.low <= stats.mean <= stats.high and stats.std > 0


def test_a_class_that_noise_never_draws_starts_at_the_smallest_bias() -> None:
    loss = ag.NCE(2, ag.AliasTable([3.0, 0.0, 1.0]))
    assert loss.bias.tolist() == pytest.approx([math.log(0.75), math.log(0.25), math.log(0.25)])


def test_partition_zero_constant_or_of_the_context() -> None:
    hidden, target = torch.randn(5, 3, generator=seeded()), torch.tensor([0, 1, 2, 3, 1])
    noise = Listed(torch.ones(4), torch.tensor([0, 2]))
    per_context = nn.Linear(3, 1)
    constant = nn.Parameter(torch.tensor(0.7))
    values = {}
    for name, log_z in {"zero": 0.0, "constant": constant, "context": per_context}.items():
        torch.manual_seed(1)
        loss = ag.NCE(3, noise, log_z=log_z)
        values[name] = (loss, loss(hidden, target))
    zero, plain = values["zero"]
    for name, log_z in {"constant": constant, "context": per_context(hidden)[:, 0]}.items():
        loss, value = values[name]
        shifted = zero.scores(hidden) - torch.as_tensor(log_z).expand(5)[:, None]
        d = shifted - math.log(2 / 4)
        first = nn.functional.softplus(-d.gather(1, target[:, None]))[:, 0]
        torch.testing.assert_close(value, first + nn.functional.softplus(d[:, [0, 2]]).sum(-1))
        expected = shifted.gather(1, target[:, None])[:, 0]
        torch.testing.assert_close(loss.log_prob(hidden, target), expected)
        # normalised, the constant plays no role
        exact = zero.log_prob(hidden, target, normalise=True)
        torch.testing.assert_close(loss.log_prob(hidden, target, normalise=True), exact)
        value.sum().backward()
    assert constant.grad is not None and per_context.weight.grad is not None
    assert dict(values["constant"][0].named_parameters())["log_z"] is constant
    assert plain.shape == (5,)


def test_learned_constant_finds_the_partition() -> None:
    """Scores that cannot be shifted (no bias, one-hot features sum to a constant) need a learned Z."""
    scores = (P / 100.0).log().double() + 3.0
    constant = nn.Parameter(torch.zeros((), dtype=torch.float64))
    loss = bias_only(ag.NCE(1, whole(Q, 100), k=100, log_z=constant, dtype=torch.float64), scores)
    hidden, target = data(P)
    minimise(lambda: loss(hidden, target).mean(), [constant])
    assert constant.item() == pytest.approx(3.0, abs=1e-5)


def test_context_partition_finds_one_for_each_context() -> None:
    per_context = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    loss = ag.NCE(2, whole(Q, 100), k=100, log_z=per_context, bias=False, dtype=torch.float64)
    with torch.no_grad():
        log_p = (P / 100.0).log().double()
        loss.weight.copy_(torch.stack([log_p + 1.0, log_p - 2.0], -1))
    target = proportional(P).repeat(2)
    hidden = torch.eye(2, dtype=torch.float64).repeat_interleave(100, 0)
    minimise(lambda: loss(hidden, target).mean(), [per_context.weight])
    assert per_context.weight[0].tolist() == pytest.approx([1.0, -2.0], abs=1e-5)


# ---- negative sampling ---------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 5])
def test_negative_sampling_optimum_is_the_pmi_less_log_k(k: int) -> None:
    pairs = torch.tensor([[8, 1, 3, 2], [1, 9, 2, 4], [4, 2, 6, 8]])  # contexts x words, 50 pairs
    words, contexts = pairs.sum(0), pairs.sum(1)
    target = torch.cat([proportional(row) for row in pairs])
    hidden = torch.eye(3, dtype=torch.float64).repeat_interleave(contexts, 0)
    # k draws from the unigram law in expectation: its list k times, in a loss of which each item has 1/50
    loss = ag.NegativeSampling(3, whole(words, 50), dtype=torch.float64)

    def objective() -> Tensor:
        scores = loss.scores(hidden)
        noise = loss.noise.draws
        data_part = -nn.functional.logsigmoid(scores.gather(1, target[:, None])[:, 0])
        whole_loss = loss(hidden, target)
        noise_part = (whole_loss - data_part) * (k / len(noise))
        return (data_part + noise_part).mean()

    minimise(objective, [loss.weight])
    joint = pairs.double() / 50
    pmi = (joint / (joint.sum(0) * joint.sum(1, keepdim=True))).log()
    torch.testing.assert_close(loss.weight.T, pmi - math.log(k), rtol=0, atol=1e-4)  # LBFGS in float64
    # ... which is not a density: the softmax of the scores is p / q, normalised
    softmax = loss.weight.T.softmax(-1)
    conditional = joint / joint.sum(1, keepdim=True)
    assert (softmax - conditional).abs().max() > 0.03
    # while with log(k q) added the scores are those of NCE
    back = loss.weight.T + math.log(k) + loss.noise.log_prob(torch.arange(4))
    torch.testing.assert_close(back.exp(), conditional, rtol=0, atol=1e-4)


def test_negative_sampling_is_nce_with_the_bias_fixed_at_log_kq() -> None:
    noise = ag.AliasTable(Q)
    hidden, target = torch.randn(9, 4, generator=seeded()), torch.randint(6, (9,), generator=seeded())
    neg = ag.NegativeSampling(4, noise, k=5, shared=True)
    nce = ag.NCE(4, noise, k=5)
    with torch.no_grad():
        neg.weight.normal_(generator=seeded(1))
        nce.weight.copy_(neg.weight)
        nce.bias.copy_(noise.log_prob(torch.arange(6)) + math.log(5))
    a, b = (m(hidden, target, generator=seeded(2)) for m in (neg, nce))
    torch.testing.assert_close(a, b)


# ---- sampled softmax -----------------------------------------------------------------------------


def multisets(n: int, k: int) -> tuple[Tensor, Tensor]:
    """All multisets of k classes out of n, and the number of orders of each."""
    sets = list(itertools.combinations_with_replacement(range(n), k))
    orders = [math.factorial(k) / math.prod(math.factorial(s.count(i)) for i in set(s)) for s in sets]
    return torch.tensor(sets), torch.tensor(orders, dtype=torch.float64)


def over_all_draws(k: int, scores: Tensor, **options) -> tuple[Tensor, Tensor, Tensor]:
    """Losses over all draws of k classes from a law on three, their probabilities, and the scores."""
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    draws, orders = multisets(3, k)
    probability = orders * weights[draws].prod(-1)
    assert probability.sum().item() == pytest.approx(1.0)
    noise = Listed(weights, draws)
    loss = ag.SampledSoftmax(1, noise, k, shared=False, dtype=torch.float64, **options)
    bias_only(loss, scores)
    return loss, probability, draws


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_estimated_sum_is_unbiased_at_every_k(k: int, unique: bool) -> None:
    scores = torch.tensor([0.5, -1.0, 1.2], dtype=torch.float64)
    for y in range(3):
        loss, probability, draws = over_all_draws(k, scores, unique=unique)
        target = torch.full((len(draws),), y)
        value = loss(torch.zeros(len(draws), 1, dtype=torch.float64), target)
        estimate = (value + scores[y]).exp()
        assert (probability * estimate).sum().item() == pytest.approx(scores.exp().sum().item())


@pytest.mark.parametrize("unique", [False, True])
def test_sampled_softmax_gradient_tends_to_the_softmax(unique: bool) -> None:
    scores = torch.tensor([0.5, -1.0, 1.2], dtype=torch.float64)
    exact = scores.softmax(-1) - torch.tensor([0.0, 0.0, 1.0])
    errors = []
    for k in (4, 16, 64):
        loss, probability, draws = over_all_draws(k, scores, unique=unique)
        target = torch.full((len(draws),), 2)
        value = loss(torch.zeros(len(draws), 1, dtype=torch.float64), target)
        (grad,) = torch.autograd.grad((probability * value).sum(), loss.bias)
        errors.append((grad - exact).abs().max().item())
    assert errors[0] > 1e-3  # biased ...
    assert errors[1] < errors[0] / 3 and errors[2] < errors[1] / 3  # ... like 1/k
    if unique:
        assert errors[2] < 1e-4  # exact as soon as every class has been drawn


def test_accidental_hits_are_masked() -> None:
    noise = Listed(torch.ones(5), torch.tensor([2, 0, 2, 4]))
    without = Listed(torch.ones(5), torch.tensor([0, 4]), 4)
    hidden, target = torch.randn(1, 3, generator=seeded()), torch.tensor([2])
    weight = torch.randn(5, 3, generator=seeded(1))
    values = []
    for law in (noise, without):
        loss = ag.SampledSoftmax(3, law)
        with torch.no_grad():
            loss.weight.copy_(weight)
        values.append(loss(hidden, target))
        values[-1].sum().backward()
        values.append(loss.weight.grad)
    torch.testing.assert_close(values[0], values[2])
    torch.testing.assert_close(values[1], values[3])


def test_nce_keeps_accidental_hits() -> None:
    hidden, target = torch.zeros(1, 1), torch.tensor([2])
    loss = ag.NCE(1, Listed(torch.ones(5), torch.tensor([2, 2])))
    d = math.log(1 / 5) - math.log(2 / 5)
    expected = math.log1p(math.exp(-d)) + 2 * math.log1p(math.exp(d))
    assert loss(hidden, target).item() == pytest.approx(expected)


def test_every_draw_may_be_a_hit() -> None:
    loss = ag.SampledSoftmax(2, Listed(torch.ones(3), torch.tensor([1, 1])))
    hidden = torch.randn(1, 2, requires_grad=True)
    value = loss(hidden, torch.tensor([1]))
    value.sum().backward()
    assert value.item() == 0.0 and bool((hidden.grad == 0).all())


@pytest.mark.parametrize("k", [1, 3])
def test_ranking_nce_finds_log_p_up_to_a_constant_at_every_k(k: int) -> None:
    p = torch.tensor([0.6, 0.1, 0.3], dtype=torch.float64)
    loss, probability, draws = over_all_draws(k, torch.zeros(3), mask_hits=False)
    hidden = torch.zeros(len(draws), 1, dtype=torch.float64)

    def objective() -> Tensor:
        parts = [
            p[y] * (probability * loss(hidden, torch.full((len(draws),), y))).sum() for y in range(3)
        ]
        return torch.stack(parts).sum()

    minimise(objective, [loss.bias])
    torch.testing.assert_close(loss.bias.softmax(-1), p, rtol=0, atol=1e-5)  # LBFGS in float64


def test_first_occurrences() -> None:
    index = torch.tensor([[3, 1, 3, 3, 1], [0, 1, 2, 3, 4]])
    expected = [[True, True, False, False, False], [True] * 5]
    assert first_occurrences(index).tolist() == expected
    assert first_occurrences(index[0]).tolist() == expected[0]


def test_in_batch_noise_is_the_batch() -> None:
    counts = torch.tensor([5.0, 3.0, 2.0, 1.0])
    hidden, target = torch.randn(3, 2, generator=seeded()), torch.tensor([0, 2, 0])
    loss = ag.SampledSoftmax(2, ag.InBatch(4, counts))
    s = loss.scores(hidden)
    weight = (2 * counts / counts.sum()).log()
    for i, others in enumerate([[2], [0, 0], [2]]):  # the own target and its double are masked
        terms = torch.cat([s[i, target[i]][None], s[i, others] - weight[others]])
        expected = terms.logsumexp(-1) - s[i, target[i]]
        torch.testing.assert_close(loss(hidden, target)[i], expected)
    for module in (ag.NCE(2, ag.InBatch(4)), ag.NegativeSampling(2, ag.InBatch(4))):
        assert module(hidden, target).shape == (3,)


# ---- InfoNCE -------------------------------------------------------------------------------------


def test_info_nce_is_the_cross_entropy_of_the_batch() -> None:
    x, y = torch.randn(7, 4, generator=seeded()), torch.randn(7, 4, generator=seeded(1))
    expected = nn.functional.cross_entropy(x @ y.T / 0.3, torch.arange(7), reduction="none")
    torch.testing.assert_close(ag.InfoNCE(tau=0.3)(x, y), expected)
    # explicit negatives: shared by all, or an item's own
    others = torch.randn(5, 4, generator=seeded(2))
    logits = torch.cat([(x * y).sum(-1, keepdim=True), x @ others.T], -1)
    expected = logits.logsumexp(-1) - logits[:, 0]
    torch.testing.assert_close(ag.InfoNCE()(x, y, others), expected)
    torch.testing.assert_close(ag.InfoNCE()(x, y, others.expand(7, 5, 4)), expected)
    # cosine: lengths play no role
    loss = ag.InfoNCE(tau=0.1, cosine=True)
    torch.testing.assert_close(loss(3 * x, 0.5 * y), loss(x, y))
    # any batch shape
    assert ag.InfoNCE()(x[:6].reshape(2, 3, 4), y[:6].reshape(2, 3, 4)).shape == (2, 3)


def test_info_nce_masks() -> None:
    x, y = torch.randn(4, 3, generator=seeded()), torch.randn(4, 3, generator=seeded(1))
    same = torch.tensor([0, 0, 1, 2])  # items 0 and 1 are the same thing
    mask = same[:, None] != same
    logits = (x @ y.T).masked_fill(~(mask | torch.eye(4, dtype=torch.bool)), -math.inf)
    expected = nn.functional.cross_entropy(logits, torch.arange(4), reduction="none")
    torch.testing.assert_close(ag.InfoNCE()(x, y, mask=mask), expected)


@pytest.mark.parametrize("corrected", [False, True])
def test_info_nce_optimum(corrected: bool) -> None:
    """PMI up to a constant, or with log q the log-probability up to a constant."""
    p, q = torch.tensor([0.6, 0.1, 0.3]).double(), torch.tensor([0.2, 0.5, 0.3]).double()
    scores = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    y, w = (t.reshape(-1) for t in torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij"))
    log_q = (q.log()[y], q.log()[w][:, None]) if corrected else None

    def objective() -> Tensor:
        value = ag.InfoNCE().of_scores(scores[y], scores[w][:, None], log_q=log_q)
        return (p[y] * q[w] * value).sum()

    minimise(objective, [scores])
    law = p if corrected else p / q / (p / q).sum()
    torch.testing.assert_close(scores.softmax(-1), law, rtol=0, atol=1e-5)  # LBFGS in float64


def test_info_nce_bounds_mutual_information() -> None:
    """Correlated Gaussians: log m - loss rises with m, below I = -log(1 - rho^2) d/2 = 1.66."""
    d, rho, g = 2, 0.9, seeded()
    true = -0.5 * d * math.log(1 - rho**2)
    bounds = []
    for m in (4, 64, 1024):
        values = []
        for _ in range(max(1, 4096 // m)):
            x = torch.randn(m, d, generator=g, dtype=torch.float64)
            y = rho * x + math.sqrt(1 - rho**2) * torch.randn(m, d, generator=g, dtype=torch.float64)
            pmi = (
                -((y[None] - rho * x[:, None]) ** 2).sum(-1) / (2 * (1 - rho**2))
                + (y[None] ** 2).sum(-1) / 2
            )
            others = ~torch.eye(m, dtype=torch.bool)
            loss = ag.InfoNCE().of_scores(pmi.diagonal(), pmi, mask=others)
            values.append(math.log(m) - loss.mean())
        bounds.append(torch.stack(values).mean().item())
    assert bounds[0] < bounds[1] < bounds[2] < true + 0.1  # 4096 pairs: a standard error of 0.03
    assert bounds[0] < math.log(4) and bounds[2] > true - 0.15


# ---- hierarchical softmax ------------------------------------------------------------------------


def huffman_cost(counts: list[float]) -> float:
    """Total code length of an optimal tree, by the textbook algorithm."""
    heap = list(counts)
    heapq.heapify(heap)
    cost = 0.0
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        cost += joined
        heapq.heappush(heap, joined)
    return cost


@pytest.mark.parametrize("n", [2, 3, 7, 100, 1000])
def test_huffman_tree_is_optimal(n: int) -> None:
    counts = torch.rand(n, generator=seeded(n), dtype=torch.float64).exp() ** 5
    loss = ag.HierarchicalSoftmax(1, counts)
    depth = (loss.tree.sign != 0).sum(-1)
    assert (counts * depth).sum().item() == pytest.approx(huffman_cost(counts.tolist()))
    assert torch.equal(depth, loss.tree.depth[:n])
    assert (0.5 ** depth.double()).sum().item() == 1.0  # Kraft: a full binary tree


def test_hierarchical_softmax_is_normalised() -> None:
    counts = torch.arange(1.0, 12.0)
    loss = ag.HierarchicalSoftmax(5, counts, dtype=torch.float64)
    depth = loss.tree.depth[:11].double()
    hidden = torch.randn(2, 3, 5, generator=seeded(), dtype=torch.float64)
    torch.testing.assert_close(loss.log_probs(hidden), -(depth * math.log(2)).expand(2, 3, 11))
    nn.init.normal_(loss.weight, generator=seeded(1))
    every = loss.log_probs(hidden)
    torch.testing.assert_close(every.exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))
    for y in range(11):
        target = torch.full((2, 3), y)
        torch.testing.assert_close(loss.log_prob(hidden, target), every[..., y])
        torch.testing.assert_close(loss(hidden, target), -every[..., y])


@pytest.mark.statistical
def test_hierarchical_softmax_samples_from_itself() -> None:
    loss = ag.HierarchicalSoftmax(3, torch.arange(1.0, 8.0))
    nn.init.normal_(loss.weight, generator=seeded())
    hidden = torch.randn(3, generator=seeded(1)).expand(50_000, 3)
    drawn = loss.sample(hidden, generator=seeded(2))
    assert_frequencies(torch.bincount(drawn, minlength=7), loss.log_probs(hidden[0]).exp().detach())
    assert torch.equal(loss.sample(hidden, generator=seeded(2)), drawn)


# ---- all of them ---------------------------------------------------------------------------------

HEADS = {
    "NCE": lambda **o: ag.NCE(4, ag.AliasTable(Q), k=5, **o),
    "NCE own noise": lambda **o: ag.NCE(4, ag.AliasTable(Q), k=5, shared=False, **o),
    "NCE learned Z": lambda **o: ag.NCE(
        4,
        ag.AliasTable(Q),
        k=5,
        log_z=nn.Linear(4, 1, **{k: v for k, v in o.items() if k != "sparse"}),
        **o,
    ),
    "NCE in batch": lambda **o: ag.NCE(4, ag.InBatch(6), **o),
    "SampledSoftmax": lambda **o: ag.SampledSoftmax(4, ag.LogUniform(6), k=5, **o),
    "SampledSoftmax unique": lambda **o: ag.SampledSoftmax(4, ag.LogUniform(6), k=5, unique=True, **o),
    "ranking NCE": lambda **o: ag.SampledSoftmax(4, ag.LogUniform(6), k=5, mask_hits=False, **o),
    "NegativeSampling": lambda **o: ag.NegativeSampling(4, ag.Unigram(Q), k=5, **o),
    "HierarchicalSoftmax": lambda **o: ag.HierarchicalSoftmax(4, Q, **o),
}
DRAWING = [name for name in HEADS if name not in ("NCE in batch", "HierarchicalSoftmax")]


def call(module: nn.Module, hidden: Tensor, target: Tensor, seed: int = 0) -> Tensor:
    if isinstance(module, ag.HierarchicalSoftmax):
        return module(hidden, target)
    return module(hidden, target, generator=seeded(seed))


def filled(name: str, **options) -> nn.Module:
    torch.manual_seed(0)
    module = HEADS[name](**options)
    nn.init.normal_(module.weight)  # some start at 0
    return module


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("batch", [(0,), (5,), (2, 3)], ids=str)
def test_batch_shapes(name: str, batch: tuple[int, ...]) -> None:
    module = filled(name)
    hidden = torch.randn(*batch, 4, requires_grad=True)
    loss = call(module, hidden, torch.randint(6, batch))
    assert loss.shape == batch and bool((loss >= 0).all())
    loss.sum().backward()
    assert hidden.grad.shape == hidden.shape
    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.parametrize("name", [n for n in HEADS if n != "NCE in batch"])
def test_a_single_item_needs_no_batch(name: str) -> None:
    module, hidden, target = filled(name), torch.randn(4), torch.tensor(3)
    torch.testing.assert_close(
        call(module, hidden, target), call(module, hidden[None], target[None])[0]
    )


@pytest.mark.parametrize(
    "name", ["NCE", "NCE learned Z", "SampledSoftmax", "ranking NCE", "HierarchicalSoftmax"]
)
def test_a_batch_is_a_loop(name: str) -> None:
    """With shared noise, items do not see each other."""
    module, hidden, target = filled(name), torch.randn(5, 4), torch.randint(6, (5,))
    loop = torch.stack([call(module, hidden[i], target[i]) for i in range(5)])
    torch.testing.assert_close(call(module, hidden, target), loop)


@pytest.mark.parametrize("name", HEADS)
def test_gradients(name: str) -> None:
    module = filled(name, dtype=torch.float64)
    target = torch.tensor([[0, 3, 2], [5, 5, 1]])
    hidden = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)

    def loss(h: Tensor, w: Tensor) -> Tensor:
        parameters = {"weight": w}
        generator = {} if name == "HierarchicalSoftmax" else {"generator": seeded()}
        return torch.func.functional_call(module, parameters, (h, target), generator)

    weight = module.weight.detach().clone().requires_grad_()
    assert gradcheck(loss, (hidden, weight))
    assert gradgradcheck(loss, (hidden, weight))


@pytest.mark.parametrize("name", HEADS)
def test_sparse_gradients_are_the_same(name: str) -> None:
    dense, sparse = filled(name), filled(name, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    hidden, target = torch.randn(5, 4), torch.randint(6, (5,))
    for module in (dense, sparse):
        call(module, hidden, target).sum().backward()
    assert sparse.weight.grad.is_sparse
    torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    module, half = filled(name), filled(name).to(dtype)
    half.load_state_dict(module.state_dict())
    module.load_state_dict(half.state_dict())  # the same rounded numbers
    hidden, target = torch.randn(5, 4).to(dtype), torch.randint(6, (5,))
    loss = call(half, hidden, target)
    assert loss.dtype == dtype
    # scores are dot products in half precision, everything behind them is float32
    expected = call(module, hidden.float(), target)
    torch.testing.assert_close(loss.float(), expected, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("name", DRAWING)
def test_the_generator_decides_and_the_global_one_is_left_alone(name: str) -> None:
    module, hidden, target = filled(name), torch.randn(50, 4), torch.randint(6, (50,))
    before = torch.get_rng_state()
    a, b, c = (call(module, hidden, target, seed) for seed in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(before, torch.get_rng_state())
    rng = ag.CounterRNG(3)
    assert torch.equal(module(hidden, target, generator=rng), module(hidden, target, generator=rng))


@pytest.mark.parametrize("name", ["NCE", "SampledSoftmax unique", "HierarchicalSoftmax"])
def test_compiled(name: str) -> None:
    module, hidden, target = filled(name), torch.randn(5, 4), torch.randint(6, (5,))
    options = {} if name == "HierarchicalSoftmax" else {"generator": ag.CounterRNG(1)}
    compiled = torch.compile(module, backend="aot_eager")
    torch.testing.assert_close(compiled(hidden, target, **options), module(hidden, target, **options))


@pytest.mark.parametrize("name", HEADS)
def test_vmap(name: str) -> None:
    module, hidden, target = filled(name), torch.randn(3, 5, 4), torch.randint(6, (3, 5))
    options = {} if name == "HierarchicalSoftmax" else {"generator": ag.CounterRNG(1)}
    mapped = torch.func.vmap(lambda h, t: module(h, t, **options))(hidden, target)
    loop = torch.stack([module(h, t, **options) for h, t in zip(hidden, target, strict=True)])
    torch.testing.assert_close(mapped, loop)


@pytest.mark.parametrize("name", HEADS)
def test_saved_and_copied(name: str) -> None:
    module = filled(name)
    other = copy.deepcopy(module)
    nn.init.zeros_(other.weight)
    other.load_state_dict(module.state_dict())
    hidden, target = torch.randn(5, 4), torch.randint(6, (5,))
    assert torch.equal(call(other, hidden, target), call(module, hidden, target))
    assert type(module).__name__ in repr(module)
    assert HEADS[name](device="meta").weight.is_meta


# ---- many classes --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["whole", "torch", "pieces"])
def test_normalised_log_prob_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "whole":
        monkeypatch.setattr(_large_softmax, "AT_ONCE", 100)
    if kind == "pieces":
        monkeypatch.delattr(nn, "LinearCrossEntropyOptions", raising=False)
    loss = ag.NCE(8, ag.LogUniform(50))
    hidden = torch.randn(3, 4, 8, generator=seeded(), requires_grad=True)
    target = torch.randint(50, (3, 4), generator=seeded(1))
    expected = loss.scores(hidden).log_softmax(-1).gather(-1, target[..., None])[..., 0]
    value = loss.log_prob(hidden, target, normalise=True)
    torch.testing.assert_close(value, expected)
    wanted = torch.autograd.grad(expected.sum(), [hidden, loss.weight, loss.bias])
    got = torch.autograd.grad(value.sum(), [hidden, loss.weight, loss.bias])
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(loss.log_partition(hidden), loss.scores(hidden).logsumexp(-1))
    sampled = ag.SampledSoftmax(8, ag.LogUniform(50))
    sampled.load_state_dict(loss.state_dict())
    torch.testing.assert_close(sampled.log_prob(hidden, target), expected)


@pytest.mark.statistical
@pytest.mark.parametrize("head", [ag.NCE, ag.SampledSoftmax])
def test_sampling_is_from_the_normalised_model(head: type) -> None:
    loss = head(3, ag.LogUniform(9))
    nn.init.normal_(loss.weight, generator=seeded())
    hidden = torch.randn(3, generator=seeded(1)).expand(50_000, 3)
    drawn = loss.sample(hidden, generator=seeded(2))
    law = loss.scores(hidden[0]).softmax(-1).detach()
    assert_frequencies(torch.bincount(drawn, minlength=9), law)
    assert torch.equal(loss.sample(hidden, generator=seeded(2)), drawn)


# ---- sentences -----------------------------------------------------------------------------------

H, T = torch.zeros(3, 4), torch.tensor([0, 1, 2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ag.NCE(4, ag.AliasTable([1.0, 0.0, 2.0]))(H, T), "probability 0 for 1 of them (1)"),
        (
            lambda: ag.NegativeSampling(4, ag.Unigram([1.0, 0.0, 0.0]))(H, T),
            "must be able to draw every class that is a target; got probability 0 for 2 of them (1, 2)",
        ),
        (lambda: ag.SampledSoftmax(4, ag.AliasTable([1.0, 1.0, 0.0]))(H, T), "`Unigram(counts + 1)`"),
        (lambda: ag.NCE(4, ag.LogUniform(2))(H, T), "`NCE(target=...)` must hold classes from 0 to 1"),
        (lambda: ag.NCE(4, ag.LogUniform(3))(H, -T), "from -2 to 0"),
        (lambda: ag.HierarchicalSoftmax(4, [1.0, 2.0])(H, T), "classes from 0 to 1"),
        (lambda: ag.NCE(4, ag.LogUniform(3))(H, T.float()), "must hold class numbers (integers)"),
        (lambda: ag.NCE(4, ag.LogUniform(3))(H, T[:2]), "must have the batch shape of `hidden`, (3,)"),
        (lambda: ag.NCE(5, ag.LogUniform(3))(H, T), "must end in 5 features; got shape (3, 4)"),
        (
            lambda: ag.NCE(4, ag.LogUniform(3), k=0),
            "`NCE(k=...)` must be an integer of at least 1; got 0",
        ),
        (lambda: ag.SampledSoftmax(4, ag.LogUniform(3), k=0), "`SampledSoftmax(k=...)`"),
        (lambda: ag.NegativeSampling(4, ag.LogUniform(3), k=-1), "`NegativeSampling(k=...)`"),
        (lambda: ag.NCE(4, ag.LogUniform(3))(H * math.nan, T), "`NCE(hidden=...)` must not hold NaN"),
        (lambda: ag.NCE(4, ag.LogUniform(3))(H.long(), T), "must be floating point"),
        (lambda: ag.NCE(4, [1.0, 2.0]), "must be a `ClassNoise`; got list. Write `Unigram(counts)`"),
        (
            lambda: ag.NCE(4, ag.LogUniform(3), log_z="zero"),
            "must be a number, a parameter or a module",
        ),
        (lambda: ag.NCE(4, ag.LogUniform(3), log_z=math.nan), "`NCE(log_z=...)` must be finite"),
        (lambda: ag.NCE(4, ag.LogUniform(3), log_z=nn.Linear(4, 2))(H, T), "shape (*batch, 1)"),
        (lambda: ag.NCE(4, ag.LogUniform(3)).partition(H[:0]), "at least one item"),
        (lambda: ag.NegativeSampling(4, ag.LogUniform(3)).log_prob(H, T), "Train `NCE` for a density"),
        (lambda: ag.SampledSoftmax(4, ag.LogUniform(3), mask_hits=False, unique=True), "needs"),
        (lambda: ag.HierarchicalSoftmax(4, [1.0]), "There must be something to choose from"),
        (lambda: ag.HierarchicalSoftmax(4, [1.0, -2.0]), "must be non-negative, finite"),
        (lambda: ag.HierarchicalSoftmax(4, [1.0] * 3)(H + math.inf, T), "must not hold NaN or +inf"),
        (lambda: ag.InfoNCE(tau=0.0), "`InfoNCE(tau=...)` must be positive"),
        (lambda: ag.InfoNCE()(H, H[:2]), "must have the shape of `query`, (3, 4); got shape (2, 4)"),
        (lambda: ag.InfoNCE()(H[:1], H[:1]), "give `negatives`"),
        (lambda: ag.InfoNCE()(H, H, H[:, :2]), "must have shape (m, 4)"),
        (lambda: ag.InfoNCE()(H * math.nan, H), "must not hold NaN"),
        (lambda: ag.InfoNCE()(H, H, mask=torch.ones(2, dtype=torch.bool)), "must broadcast"),
        (
            lambda: ag.InfoNCE().of_scores(H[:, 0], H * math.nan),
            "`InfoNCE(negative=...)` must not hold",
        ),
    ],
)
def test_wrong_input_gets_a_sentence(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ag.ArgradError) as caught:
        make()
    assert words in str(caught.value)


def test_a_weight_that_became_nan_is_named() -> None:
    loss = ag.SampledSoftmax(4, ag.LogUniform(3), k=50)
    with torch.no_grad():
        loss.weight[0, 1] = math.nan
    with pytest.raises(ag.InputError, match=r"`SampledSoftmax\(weight=...\)` must not hold NaN"):
        loss(H, T, generator=seeded())


def test_cosines_of_mixed_types_are_taken_in_the_wider_one() -> None:
    query, key = torch.randn(3, 2, dtype=torch.float64), torch.randn(3, 2)
    loss = ag.InfoNCE(tau=0.1, cosine=True)
    torch.testing.assert_close(loss(query, key), loss(query, key.double()), rtol=1e-14, atol=1e-14)
