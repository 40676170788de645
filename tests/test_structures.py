"""The contract of DESIGN.md section 6 for every structure, from the list in cases.py."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad.testing import assert_frequencies, assert_mean
from structure_cases import STRUCTURES, StructureCase

CASES = pytest.mark.parametrize("case", STRUCTURES, ids=lambda c: c.name)
WITH_PARTITION = [c for c in STRUCTURES if c.structure.has_log_partition]
PARTITION = pytest.mark.parametrize("case", WITH_PARTITION, ids=lambda c: c.name)
RELAXATIONS = [
    pytest.param(c, r, id=f"{c.name}-{type(r).__name__}")
    for c in STRUCTURES
    for r in c.regularizers
    if not isinstance(r, ag.SuccessiveSoftmax)
]
RELAXED = pytest.mark.parametrize(("case", "regularizer"), RELAXATIONS)


def make_scores(case: StructureCase, *batch: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*batch, *case.event, dtype=torch.float64, generator=g)


def total_scores(case: StructureCase, scores: Tensor) -> tuple[Tensor, Tensor]:
    """All vertices and their scores, `(count, *batch)`."""
    z = case.structure.enumerate(case.event, dtype=torch.float64)
    dims = tuple(range(-len(case.event), 0))
    spread = z.reshape(len(z), *(1,) * (scores.dim() - len(case.event)), *case.event)
    terms = torch.where(spread == 0, 0.0, torch.where(spread == 0, 0.0, scores) * spread)
    return z, terms.sum(dims) * case.structure.inner_weight


@CASES
def test_enumeration_is_the_set(case):
    z = case.structure.enumerate(case.event)
    assert len(z) == case.structure.count(case.event) == len({tuple(v.flatten().tolist()) for v in z})
    assert bool(case.structure.contains(z).all())
    flipped = z.clone()
    flipped.view(len(z), -1)[:, case.flip] = 1 - flipped.view(len(z), -1)[:, case.flip]
    if not isinstance(case.structure, ag.Bits) and not case.flip_stays:
        assert not bool(case.structure.contains(flipped).any())
    assert not bool(case.structure.contains(0.5 * torch.ones(case.event)).any())


@CASES
def test_argmax_is_the_best_vertex(case):
    scores = make_scores(case, 3, 4)
    best = case.structure.argmax(scores)
    assert bool(case.structure.contains(best).all())
    _, totals = total_scores(case, scores)
    own = case.structure._inner(scores, best)
    # 1e-12: sums of a few terms of size 1
    torch.testing.assert_close(own, totals.amax(0), atol=1e-12, rtol=0)


@PARTITION
def test_log_partition_marginals_entropy_log_prob_by_enumeration(case):
    scores = make_scores(case, 2, 3, scale=2.0).requires_grad_()
    z, totals = total_scores(case, scores)
    log_z = totals.logsumexp(0)
    p = (totals - log_z).exp()
    tight = {"atol": 1e-10, "rtol": 1e-10}  # float64, a few hundred terms
    torch.testing.assert_close(case.structure.log_partition(scores), log_z, **tight)
    mean = torch.einsum("cb,ce->be", p.flatten(1), z.flatten(1)).reshape(scores.shape)
    torch.testing.assert_close(case.structure.marginals(scores), mean, **tight)
    entropy = -(p * p.log()).sum(0)
    torch.testing.assert_close(case.structure.entropy(scores), entropy, atol=1e-9, rtol=1e-9)
    spread = z.reshape(len(z), 1, 1, *case.event).expand(len(z), 2, 3, *case.event)
    torch.testing.assert_close(case.structure.log_prob(spread, scores), totals - log_z, **tight)
    (grad,) = torch.autograd.grad(case.structure.log_partition(scores).sum(), scores)
    torch.testing.assert_close(grad / case.structure.inner_weight, mean, **tight)
    (by_sum,) = torch.autograd.grad(log_z.sum(), scores)
    torch.testing.assert_close(grad, by_sum, **tight)


@PARTITION
def test_gradients_are_derivatives(case):
    scores = make_scores(case, 2).requires_grad_()
    assert torch.autograd.gradcheck(case.structure.log_partition, (scores,))
    assert torch.autograd.gradgradcheck(case.structure.log_partition, (scores,))
    assert torch.autograd.gradcheck(case.structure.marginals, (scores,))
    assert torch.autograd.gradgradcheck(case.structure.marginals, (scores,))


@RELAXED
def test_relaxation_is_inside_and_optimal(case, regularizer):
    scores = make_scores(case, 4)
    structure, tau = case.structure, 0.7
    soft = structure.relax(scores, tau, regularizer=regularizer)
    assert soft.shape == scores.shape
    z = structure.enumerate(case.event, dtype=torch.float64)
    # inside the hull: no vertex direction separates it (support function at random directions)
    for seed in range(20):
        direction = make_scores(case, seed=100 + seed)
        _, totals = total_scores(case, direction)
        assert bool((structure._inner(direction, soft) <= totals.max() + 1e-6).all())
    # optimal: no step towards a vertex (or between two) improves the objective
    family = isinstance(regularizer, ag.ExponentialFamily)
    if family:
        reference = structure.marginals(scores / tau)
        torch.testing.assert_close(soft, reference, atol=1e-9, rtol=1e-9)
        return

    def objective(point: Tensor) -> Tensor:
        return structure._inner(scores, point) - tau * structure._regularizer_value(regularizer, point)

    best = objective(soft)
    for vertex in z[:: max(len(z) // 25, 1)]:
        for step in (1e-4, 1e-2, 0.3):
            moved = (1 - step) * soft + step * vertex
            assert bool((objective(moved) <= best + 1e-7).all())


@RELAXED
def test_temperature_limits(case, regularizer):
    scores = make_scores(case, 5)
    structure = case.structure
    cold = structure.relax(scores, 2e-4, regularizer=regularizer)
    torch.testing.assert_close(cold, structure.argmax(scores), atol=1e-6, rtol=0)
    hot = structure.relax(scores, 1e5, regularizer=regularizer)
    centre = structure.relax(torch.zeros_like(scores), regularizer=regularizer)
    # the relaxed point moves by at most O(scores / tau) from the centre
    torch.testing.assert_close(hot, centre, atol=1e-3, rtol=0)
    float32 = structure.relax(scores.float(), 0.5, regularizer=regularizer)
    exact = structure.relax(scores.float().double(), 0.5, regularizer=regularizer)
    torch.testing.assert_close(float32.double(), exact, atol=2e-5, rtol=0)  # float32 rounding


@RELAXED
def test_relaxation_gradients_agree(case, regularizer):
    scores = make_scores(case, 2, seed=3).requires_grad_()
    structure = case.structure

    def solve(x: Tensor, backward: ag.Backward | None = None) -> Tensor:
        return structure.relax(x, 0.8, regularizer=regularizer, backward=backward)

    assert torch.autograd.gradcheck(solve, (scores,), atol=1e-5)
    weights = make_scores(case, 2, seed=4)
    # a larger step crosses a kink of sparsemax here
    rules = [ag.Implicit(), ag.FiniteDifference(1e-6), ag.Unrolled()]
    exact, *others = (
        torch.autograd.grad((solve(scores, rule) * weights).sum(), scores)[0] for rule in rules
    )
    for rule, other in zip(rules[1:], others, strict=True):
        # unrolled Sinkhorn stops after a fixed number of iterations; differences are O(eps^2)
        torch.testing.assert_close(
            other, exact, atol=2e-3, rtol=2e-3, msg=lambda m, rule=rule: f"{rule}: {m}"
        )


def test_a_solver_without_steps_is_not_unrolled():
    class Opaque(ag.Permutation):
        def _relaxations(self, tau):
            return {ag.Entropy: lambda _: (lambda scores: scores, None)}

    with pytest.raises(ag.UnsupportedError, match="no steps to unroll"):
        Opaque().relax(torch.zeros(2, 2), backward=ag.Unrolled())


@RELAXED
@pytest.mark.parametrize("backward", [ag.Implicit(), ag.Unrolled()], ids=["implicit", "unrolled"])
def test_masked_relaxation_is_removal(case, regularizer, backward):
    scores = make_scores(case, 3)
    mask = case.mask

    def solve(x: Tensor) -> Tensor:
        return case.structure.relax(x, 0.7, regularizer=regularizer, backward=backward, mask=mask)

    assert bool((solve(scores)[..., ~mask] == 0).all())
    x = scores.clone().requires_grad_()
    (grad,) = torch.autograd.grad((solve(x) ** 2).sum(), x)
    assert bool((grad[..., ~mask] == 0).all())
    assert bool(torch.isfinite(grad).all())


@PARTITION
def test_masks_remove_vertices(case):
    scores, mask = make_scores(case, 3), case.mask
    z, totals = total_scores(case, scores.masked_fill(~mask, -math.inf))
    keep = ~((z != 0) & ~mask).flatten(1).any(-1)
    log_z = totals[keep].logsumexp(0)
    torch.testing.assert_close(
        case.structure.log_partition(scores, mask=mask), log_z, atol=1e-9, rtol=1e-9
    )
    p = (totals[keep] - log_z).exp()
    mean = torch.einsum("cb,ce->be", p, z[keep].flatten(1)).reshape(scores.shape)
    torch.testing.assert_close(case.structure.marginals(scores, mask=mask), mean, atol=1e-9, rtol=1e-9)
    entropy = -(p * p.log()).sum(0)
    torch.testing.assert_close(case.structure.entropy(scores, mask=mask), entropy, atol=1e-8, rtol=1e-8)
    best = case.structure.argmax(scores, mask=mask)
    assert not bool(((best != 0) & ~mask).any())


@CASES
def test_batches_dtypes_and_empty_batches(case):
    scores = make_scores(case, 2, 3)
    structure = case.structure
    single = torch.stack([torch.stack([structure.argmax(s) for s in row]) for row in scores])
    assert torch.equal(structure.argmax(scores), single)
    assert structure.argmax(torch.zeros(0, *case.event)).shape == (0, *case.event)
    for regularizer in case.regularizers:
        soft = structure.relax(scores, 0.6, regularizer=regularizer)
        alone = structure.relax(scores[1, 2], 0.6, regularizer=regularizer)
        torch.testing.assert_close(soft[1, 2], alone, atol=1e-8, rtol=1e-8)
        assert structure.relax(torch.zeros(0, *case.event), regularizer=regularizer).shape == (
            0,
            *case.event,
        )
        for dtype in (torch.bfloat16, torch.float16):
            half = structure.relax(scores.to(dtype), 0.6, regularizer=regularizer)
            assert half.dtype == dtype
            assert bool(torch.isfinite(half).all())
        taus = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
        by_row = structure.relax(scores, taus, regularizer=regularizer)
        for i, tau in enumerate(taus.tolist()):
            one = structure.relax(scores[:, i], tau, regularizer=regularizer)
            torch.testing.assert_close(by_row[:, i], one, atol=1e-8, rtol=1e-8)


@PARTITION
@pytest.mark.statistical
def test_sampler_has_the_gibbs_law(case):
    scores = make_scores(case, 2)
    z = case.structure.sample(scores, (20_000,), generator=torch.Generator().manual_seed(1))
    assert z.shape == (20_000, 2, *case.event)
    vertices, totals = total_scores(case, scores)
    for item in range(2):
        same = torch.cdist(z[:, item].flatten(1), vertices.flatten(1), p=1) < 0.5
        assert bool((same.sum(1) == 1).all())
        assert_frequencies(same.sum(0), totals[:, item].softmax(0))
    again = case.structure.sample(scores, (20_000,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(z, again)


@CASES
def test_perturbed_draws_and_straight_through(case):
    scores = make_scores(case, 3).requires_grad_()
    q = ag.Perturbed(case.structure, scores)
    g = torch.Generator().manual_seed(0)
    draw = q.draw((5,), tau=0.5, generator=g)
    assert draw.hard.shape == draw.soft.shape == (5, 3, *case.event)
    assert bool(case.structure.contains(draw.hard).all())
    assert torch.equal(case.structure.argmax(draw.perturbed), draw.hard)
    hard = q.rsample((5,), tau=0.5, hard=True, generator=torch.Generator().manual_seed(0))
    assert torch.equal(hard, draw.hard)  # bitwise a vertex
    (grad,) = torch.autograd.grad((hard * make_scores(case, seed=9)).sum(), scores)
    assert bool(torch.isfinite(grad).all())
    assert bool((grad.abs() > 1e-12).any()) == (case.structure.count(case.event) > 1)  # rounding apart
    before = torch.get_rng_state()
    q.sample((2,), generator=torch.Generator().manual_seed(3))
    assert torch.equal(before, torch.get_rng_state())


@CASES
def test_objects_are_values(case):
    structure = case.structure
    assert pickle.loads(pickle.dumps(structure)) == structure
    assert copy.deepcopy(structure) == structure
    assert hash(structure) == hash(copy.copy(structure))
    assert eval(repr(structure), vars(ag) | {n: getattr(ag, n) for n in ag.__all__}) == structure


@CASES
def test_bad_scores_get_a_sentence(case):
    structure = case.structure
    nan = torch.full(case.event, math.nan)
    with pytest.raises(ag.InputError, match=r"NaN or \+inf"):
        structure.argmax(nan)
    with pytest.raises(ag.InputTypeError, match="floating point"):
        structure.argmax(torch.zeros(case.event, dtype=torch.int64))
    with pytest.raises(ag.InputError, match="at least"):
        structure.argmax(torch.tensor(1.0))
    if (
        not isinstance(structure, ag.Bits)
        and not getattr(structure, "partial", False)
        and case.can_be_infeasible
    ):
        with pytest.raises(ag.InputError):
            structure.argmax(torch.zeros(case.event), mask=torch.zeros(case.event, dtype=torch.bool))
    with pytest.raises(ag.InputError, match="positive"):
        structure.relax(torch.zeros(case.event), 0.0)
    with pytest.raises(ag.UnsupportedError, match="It solves"):
        structure.relax(torch.zeros(case.event), regularizer=_Unknown())


class _Unknown(ag.Regularizer):
    pass


@PARTITION
def test_vmap_is_a_loop_and_compile_is_eager(case):
    scores = make_scores(case, 3)
    structure = case.structure
    functions = [structure.log_partition, structure.marginals]
    functions += [lambda x, r=r: structure.relax(x, 0.7, regularizer=r) for r in case.regularizers]
    for function in functions:
        loop = torch.stack([function(s) for s in scores])
        torch.testing.assert_close(torch.vmap(function)(scores), loop, atol=1e-7, rtol=1e-7)
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")(scores)
        torch.testing.assert_close(compiled, function(scores), atol=1e-7, rtol=1e-7)
        torch._dynamo.reset()


@CASES
def test_vmap_without_warnings(case):
    # warnings are errors here: torch warns where it has no batching rule and loops
    structure, scores = case.structure, make_scores(case, 3, 2)
    torch.testing.assert_close(torch.vmap(structure.argmax)(scores), structure.argmax(scores))
    q = torch.vmap(lambda x: ag.Perturbed(structure, x).sample((4,)), randomness="different")
    assert bool(structure.contains(q(scores)).all())
    if structure.has_log_partition:
        draw = torch.vmap(lambda x: structure.sample(x, (4,)), randomness="different")
        assert bool(structure.contains(draw(scores)).all())


def test_vmap_of_draws_without_warnings():
    scores = torch.zeros(3, 2, 5)
    topk = torch.vmap(lambda x: ag.presets.plackett_luce_topk(x, 2), randomness="different")(scores)
    assert bool(ag.Subset(2).contains(topk).all())

    def gradient(x: Tensor, estimator: ag.Estimator) -> Tensor:
        return torch.func.grad(
            lambda s: estimator(lambda z: z[..., 0], ag.Gibbs(ag.OneHot(), s)).sum()
        )(x)

    for estimator in (ag.ReinMax(), ag.GumbelRao(0.5, 2), ag.GumbelST(0.5)):
        found = torch.vmap(lambda x, e=estimator: gradient(x, e), randomness="different")(scores)
        assert found.shape == scores.shape
        assert bool(found.isfinite().all())


def answers(case: StructureCase, scores: Tensor) -> dict[str, Tensor]:
    """Every question to a structure, and what hangs on it."""
    structure, mask = case.structure, case.mask
    found = {
        "argmax": structure.argmax(scores, mask=mask),
        "enumerate": structure.enumerate(case.event),
    }
    found["contains"] = structure.contains(found["argmax"])
    for generator in (torch.Generator().manual_seed(0), ag.CounterRNG(0)):
        law = ag.Perturbed(structure, scores)
        found[f"draw {type(generator).__name__}"] = law.sample((2,), generator=generator)
    for regularizer in case.regularizers:
        rules = (ag.Implicit(), ag.Unrolled(), ag.FiniteDifference())
        for rule in rules[:1] if isinstance(regularizer, ag.SuccessiveSoftmax) else rules:
            x = scores.clone().requires_grad_()
            soft = structure.relax(x, 0.5, regularizer=regularizer, backward=rule, mask=mask)
            found[f"{regularizer} {rule}"] = torch.autograd.grad(soft.square().sum(), x)[0]
    if structure.has_log_partition:
        x = scores.clone().requires_grad_()
        q = ag.Gibbs(structure, x, mask=mask)
        total = q.entropy() + q.log_prob(q.sample(generator=torch.Generator().manual_seed(0)))
        found["gibbs"] = torch.autograd.grad(total.sum(), x)[0]
    return found


@CASES
def test_another_default_device_does_not_matter(case):
    """`torch.set_default_device("cuda")` and scores on the CPU; here with meta as the default."""
    scores = make_scores(case, 2).float()
    expected = answers(case, scores)
    with torch.device("meta"):
        found = answers(case, scores)
    for name, tensor in expected.items():
        assert found[name].device.type == "cpu", name
        torch.testing.assert_close(found[name], tensor, msg=lambda m, name=name: f"{name}: {m}")


def test_traces_with_another_default_device():
    scores, race = torch.randn(2, 4, 4), ag.ExponentialRace()
    laws = [
        lambda: ag.Perturbed(ag.Arborescence(), scores, noise=race),
        lambda: ag.Perturbed(ag.SpanningTree(), scores),
        lambda: ag.Perturbed(ag.Subset(2), scores),
    ]
    with torch.device("meta"):
        for law in laws:
            assert law().trace(generator=torch.Generator().manual_seed(0)).log_prob.device.type == "cpu"


@PARTITION
def test_gibbs_distribution(case):
    scores = make_scores(case, 2, 3).requires_grad_()
    q = ag.Gibbs(case.structure, scores)
    assert q.batch_shape == (2, 3)
    assert q.event_shape == case.event
    p = ag.Gibbs(case.structure, make_scores(case, 2, 3, seed=5))
    z = q.enumerate_support()
    log_q, log_p = q.log_prob(z), p.log_prob(z)
    torch.testing.assert_close(
        log_q.logsumexp(0), torch.zeros(2, 3, dtype=torch.float64), atol=1e-9, rtol=0
    )
    kl = (log_q.exp() * (log_q - log_p)).sum(0)
    torch.testing.assert_close(torch.distributions.kl_divergence(q, p), kl, atol=1e-9, rtol=1e-8)
    joint = q.independent(1)
    assert joint.batch_shape == (2,)
    torch.testing.assert_close(joint.entropy(), q.entropy().sum(-1))
    torch.testing.assert_close(joint.log_prob(z), log_q.sum(-1))
    torch.testing.assert_close(q.expand((4, 2, 3)).entropy()[1], q.entropy())


@PARTITION
@pytest.mark.parametrize("noise", ["natural"])
@pytest.mark.statistical
def test_trace_score_is_unbiased(case, noise):
    """The mean of f(z) grad log p(trace) is the gradient of E f, by two independent routes."""
    if case.structure.count(case.event) == 1:
        return  # nothing random
    scores = make_scores(case).requires_grad_()
    q = ag.Perturbed(case.structure, scores)
    weights = make_scores(case, seed=11)
    many = q.expand((40_000,))
    leaf = many.scores.detach().clone().requires_grad_()
    trace = many.with_scores(leaf).trace(generator=torch.Generator().manual_seed(2))
    cost = (trace.hard * weights).flatten(1).sum(-1)
    (score,) = torch.autograd.grad(trace.log_prob.sum(), leaf)
    # the score has mean zero, and a constant cost has gradient zero
    assert_mean(score.flatten(1), 0.0)
    gradient = score * (cost - cost.mean()).reshape(-1, *(1,) * len(case.event))
    step = 0.05
    for direction_seed in range(2):
        d = make_scores(case, seed=20 + direction_seed)
        d = d / d.norm()
        plus, minus = (
            (
                ag.Perturbed(case.structure, (scores + s * step * d).detach()).sample(
                    (40_000,), generator=torch.Generator().manual_seed(3)
                )
                * weights
            )
            .flatten(1)
            .sum(-1)
            for s in (1, -1)
        )  # common random numbers
        finite = (plus - minus) / (2 * step)
        own = (gradient * d).flatten(1).sum(-1)
        n = len(own)
        z = (own.mean() - finite.mean()) / ((own.var() + finite.var()) / n).sqrt()
        # the finite difference itself is off by O(step^2), far below its standard error here
        assert abs(z.item()) < 5.5


def test_an_oracle_answers_what_a_solver_can():
    solve = ag.OneHot().argmax
    oracle = ag.Oracle(solve)
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.equal(oracle.argmax(scores), ag.OneHot().argmax(scores))
    q = ag.Perturbed(oracle, scores)
    same = ag.Perturbed(ag.OneHot(), scores)
    draws = [law.sample((5,), generator=torch.Generator().manual_seed(1)) for law in (q, same)]
    assert torch.equal(*draws)
    for estimator in (
        ag.PerturbedOptimizer(20),
        ag.Imle(),
        ag.Blackbox(),
        ag.Identity(),
        ag.LeaveOneOut(4),
    ):
        estimate = estimator.evaluate(lambda z: (z * z.new_tensor([0.0, 1.0, 2.0, 3.0])).sum(-1), q)
        assert bool(torch.isfinite(estimate.scores_grad).all())
    for refused in (
        oracle.log_partition,
        oracle.marginals,
        oracle.entropy,
        oracle.sample,
        oracle.relax,
    ):
        with pytest.raises(ag.UnsupportedError, match="arg max only"):
            refused(scores)
    for question in (
        lambda: oracle.count((4,)),
        lambda: oracle.contains(scores),
        lambda: oracle.enumerate((4,)),
    ):
        with pytest.raises(ag.UnsupportedError, match="arg max only"):
            question()
    with pytest.raises(ag.InputError, match="must return a tensor of the scores' shape"):
        ag.Oracle(lambda s: s[..., :1]).argmax(scores)
    with pytest.raises(ag.InputError, match="must be a function"):
        ag.Oracle(3)  # type: ignore[arg-type]


@CASES
def test_an_empty_event_has_nothing_to_enumerate(case):
    with pytest.raises(ag.InputError, match="at least one item to choose"):
        case.structure.enumerate((0,) * len(case.event))


def test_no_node_no_tree():
    trees = (ag.SpanningTree(), ag.Arborescence(root=None), ag.Arborescence())
    assert [tree.count((n, n)) for tree in trees for n in (0, 1)] == [0, 1] * 3


def test_permutations_refuse_what_is_hard_and_say_what_to_do():
    scores = torch.zeros(3, 3)
    for refused in (ag.Permutation().log_partition, ag.Permutation().sample, ag.Permutation().entropy):
        with pytest.raises(ag.UnsupportedError, match=r"#P-hard.*Perturbed"):
            refused(scores)
    with pytest.raises(ag.UnsupportedError, match="#P-hard"):
        ag.Matching().marginals(scores)
    with pytest.raises(ag.UnsupportedError, match="trace"):
        ag.Perturbed(ag.Subset(2), torch.zeros(4)).log_prob(torch.tensor([1.0, 1.0, 0.0, 0.0]))


def test_k_can_differ_by_row():
    scores = make_scores(STRUCTURES[3], 3)
    k = torch.tensor([1, 2, 4])
    many = ag.Subset(k)
    for name in ("argmax", "marginals", "log_partition", "entropy"):
        rows = [getattr(ag.Subset(int(ki)), name)(s) for ki, s in zip(k, scores, strict=True)]
        torch.testing.assert_close(getattr(many, name)(scores), torch.stack(rows), atol=1e-9, rtol=1e-9)
    for regularizer in (
        ag.ExponentialFamily(),
        ag.Euclidean(),
        ag.Entropy(),
        ag.BinaryEntropy(),
        ag.Tsallis(1.5),
    ):
        soft = many.relax(scores, 0.5, regularizer=regularizer)
        torch.testing.assert_close(soft.sum(-1), k.double(), atol=1e-8, rtol=0)
    z = many.sample(scores, (100,), generator=torch.Generator().manual_seed(0))
    assert bool((z.sum(-1) == k).all())


def test_seven_relaxations_of_k_subsets_side_by_side():
    """The seven rows of the seed's table, each from public parts, on the same scores."""
    scores = make_scores(STRUCTURES[3], 2)
    g = {"generator": ag.CounterRNG(0)}
    perturbed = ag.Perturbed(ag.Subset(2), scores)
    rows = {
        "L2X": ag.presets.l2x(scores, 2, 0.5, **g),
        "SoftSub": ag.presets.softsub(scores, 2, 0.5, **g),
        "Euclidean": perturbed.rsample(tau=0.5, regularizer=ag.Euclidean(), **g),
        "categorical entropy": perturbed.rsample(tau=0.5, regularizer=ag.Entropy(), **g),
        "binary entropy": perturbed.rsample(tau=0.5, regularizer=ag.BinaryEntropy(), **g),
        "exponential family": perturbed.rsample(tau=0.5, regularizer=ag.ExponentialFamily(), **g),
        "correlated": ag.presets.correlated_topk(
            torch.cat([scores, torch.zeros(2, 4)], -1), 2, 0.5, **g
        )[..., :5],
    }
    for name, z in rows.items():
        assert z.shape == (2, 5), name
        assert bool(((z >= 0) & (z <= 1 + 1e-9)).all()), name
        if name not in ("L2X", "SoftSub"):
            torch.testing.assert_close(z.sum(-1), torch.full((2,), 2.0, dtype=torch.float64))


def test_fenchel_young_losses():
    for case in STRUCTURES:
        scores = make_scores(case, 2).requires_grad_()
        target = case.structure.argmax(make_scores(case, 2, seed=8))
        for regularizer in case.regularizers:
            if isinstance(regularizer, ag.SuccessiveSoftmax):
                continue
            loss = ag.FenchelYoung(case.structure, regularizer, tau=0.7)
            value = loss(scores, target)
            assert bool((value >= -1e-9).all()), (case.name, regularizer)
            (grad,) = torch.autograd.grad(value.sum(), scores)
            soft = case.structure.relax(scores, 0.7, regularizer=regularizer)
            expected = case.structure.inner_weight * (soft - target)
            torch.testing.assert_close(grad, expected.detach(), atol=1e-7, rtol=1e-6)
        if case.structure.count(case.event) > 1:
            sampled = ag.PerturbedFenchelYoung(case.structure, num_samples=4000)
            (grad,) = torch.autograd.grad(
                sampled(scores, target, generator=torch.Generator().manual_seed(0)).sum(), scores
            )
            assert grad.abs().max() <= 1 + 1e-9


def test_bits_whose_scores_have_no_finite_sum_have_a_probability() -> None:
    """A fuzz run found inf - inf."""
    scores = torch.tensor([2e38, 0.1, 2e38], requires_grad=True)
    value = ag.Bits().log_prob(torch.tensor([1.0, 0.0, 1.0]), scores)
    value.backward()
    torch.testing.assert_close(value, torch.nn.functional.logsigmoid(torch.tensor(-0.1)))
    torch.testing.assert_close(scores.grad, torch.tensor([0.0, -torch.sigmoid(torch.tensor(0.1)), 0.0]))
    alone = ag.Bits().entropy(torch.tensor([0.1]))
    torch.testing.assert_close(
        ag.Bits().entropy(torch.tensor([1e38, 0.1, -math.inf, 1e38, 1e38, 1e38])), alone
    )
