"""Every estimator against enumeration: flagged unbiased ones are, the others are shown not to be."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import argrad as ag
from argrad._diagnose import replicate_gradients
from argrad.testing import assert_mean, z_bound, z_scores
from estimator_cases import ESTIMATORS, EstimatorCase

F64 = torch.float64


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def costs(size: int) -> dict[str, ag.estimators.base.Cost]:
    """Linear, quadratic, product and tanh-network costs of a flattened event."""
    c, A = seeded(size, seed=1), seeded(size, size, seed=2) / size**0.5
    W, v = seeded(size, 6, seed=3), seeded(6, seed=4)
    return {
        "linear": lambda x: x @ c + 2.0,
        "quadratic": lambda x: ((x @ A) * x).sum(-1) + x @ c,
        "product": lambda x: (1.0 + 0.5 * x * c).prod(-1),
        "tanh": lambda x: torch.tanh(x @ W) @ v,
    }


def flattened(cost, q):
    dims = len(q.event_shape)
    return lambda z: cost(z.flatten(z.dim() - dims))


LAWS = {
    "categorical": lambda: ag.Gibbs(ag.OneHot(), seeded(5, seed=10)),
    "categoricals": lambda: ag.Gibbs(ag.OneHot(), seeded(3, 3, seed=11)).independent(1),
    "bits": lambda: ag.Gibbs(ag.Bits(), seeded(4, seed=12)),
    "subset": lambda: ag.Gibbs(ag.Subset(2), seeded(5, seed=13)),
    "tree": lambda: ag.Gibbs(ag.SpanningTree(), seeded(4, 4, seed=14)),
    "arborescence": lambda: ag.Gibbs(ag.Arborescence(), seeded(4, 4, seed=15)),
    "chain": lambda: ag.Gibbs(ag.Chain(), seeded(2, 2, 2, seed=16)),
    "perturbed categorical": lambda: ag.Perturbed(ag.OneHot(), seeded(4, seed=17)),
}


@pytest.mark.statistical
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("case", ESTIMATORS, ids=lambda c: c.name)
def test_bias_is_as_flagged(case: EstimatorCase, law: str):
    q = LAWS[law]()
    estimator = case.make(q)
    if not estimator.works_with(q):
        with pytest.raises(ag.UnsupportedError, match="Cannot combine"):
            estimator(lambda z: z.flatten(1).sum(-1), q)
        return
    seen = []
    for i, (name, cost) in enumerate(costs(q.event_shape.numel()).items()):
        if estimator.needs_differentiable_f and name == "product" and not estimator.is_unbiased:
            continue
        f = flattened(cost, q)
        exact = ag.Exact().evaluate(f, q).scores_grad.flatten()
        g = torch.Generator().manual_seed(100 + i)
        grads, _, _ = replicate_gradients(estimator, f, q, case.replicates, g)
        grads = grads.flatten(1)
        along = grads @ exact / exact.dot(exact)
        z = z_scores(grads, exact).abs().max().item()
        z_along = z_scores(along, 1.0).abs().item()
        seen.append(max(z, z_along))
        if estimator.is_unbiased and not isinstance(estimator, ag.Vimco):
            # z < 5.5: false alarm below 1e-6 over the coordinates of one case
            assert z < max(5.5, z_bound(len(exact))), f"{name}: max |z| = {z:.1f}"
            assert z_along < 5.0, f"{name}: along the gradient z = {z_along:.1f}"
            if along.std() / math.sqrt(len(along)) < 0.006:  # enough samples to see 5 % for sure
                assert z_scores(0.95 * along, 1.0).abs().item() > 5.0, f"{name}: no power"
    if not estimator.is_unbiased and not case.may_look_unbiased:
        assert max(seen) > 6.0, f"no bias seen: {seen}"


@pytest.mark.statistical
def test_power_check_rejects_a_shrunken_gradient():
    """The statistics above must be able to fail: 0.95 times an exact estimator is rejected."""
    q = LAWS["categoricals"]()
    f = flattened(costs(9)["tanh"], q)
    exact = ag.Exact().evaluate(f, q).scores_grad.flatten()
    grads, _, _ = replicate_gradients(
        ag.LocalExpectation(), f, q, 20_000, torch.Generator().manual_seed(0)
    )
    along = grads.flatten(1) @ exact / exact.dot(exact)
    assert z_scores(along, 1.0).abs().item() < 5
    assert z_scores(0.95 * along, 1.0).abs().item() > 5


def test_reinmax_is_exact_for_quadratic_costs():
    q = LAWS["categorical"]()
    f = flattened(costs(5)["quadratic"], q)
    exact = ag.Exact().evaluate(f, q).scores_grad
    p = q.mean
    # no sampling: the expectation of the estimator, summed over the samples it can draw
    total = torch.zeros_like(exact)
    for i in range(5):
        hard = torch.eye(5, dtype=F64)[i]
        point = hard.clone().requires_grad_()
        (slope,) = torch.autograd.grad(f(point[None])[0], point)
        middle = 0.5 * (hard + p)
        for weight, pi in ((2.0, middle), (-0.5, p)):
            total += p[i] * weight * (pi * (slope - pi @ slope))
    torch.testing.assert_close(total, exact, atol=1e-12, rtol=1e-12)
    drawn = ag.ReinMax(num_samples=1)
    grads, _, _ = replicate_gradients(drawn, f, q, 60_000, torch.Generator().manual_seed(0))
    assert_mean(grads, exact)


@pytest.mark.statistical
@pytest.mark.parametrize("law", ["permutation", "subset", "tree", "arborescence", "race"])
def test_score_function_through_traces(law: str):
    """Perturbed laws without a probability: against finite differences with common random numbers."""
    q = {
        "permutation": ag.Perturbed(ag.Permutation(), seeded(4, 4, seed=20)),
        "subset": ag.Perturbed(ag.Subset(2), seeded(5, seed=21)),
        "tree": ag.Perturbed(ag.SpanningTree(), seeded(4, 4, seed=22)),
        "arborescence": ag.Perturbed(ag.Arborescence(), seeded(4, 4, seed=23)),
        "race": ag.Perturbed(
            ag.Arborescence(), 0.5 * seeded(4, 4, seed=24), noise=ag.ExponentialRace()
        ),
    }[law]
    f = flattened(costs(q.event_shape.numel())["tanh"], q)
    n = 60_000
    g = torch.Generator().manual_seed(0)
    grads, _, _ = replicate_gradients(ag.LeaveOneOut(2), f, q, n, g)
    for seed in range(3):
        d = seeded(*q.scores.shape, seed=30 + seed)
        d = d / d.norm()
        step = 0.1
        ends = [
            f(
                q.with_scores(q.scores + s * step * d).sample(
                    (4 * n,), generator=torch.Generator().manual_seed(9)
                )
            )
            for s in (1, -1)
        ]
        finite = (ends[0] - ends[1]) / (2 * step)
        own = (grads * d).flatten(1).sum(-1)
        error = (own.var() / n + finite.var() / (4 * n)).sqrt()
        # the finite difference is off by O(step^2 |f'''|), about 1e-3 here
        assert abs((own.mean() - finite.mean()).item()) < 5 * error.item() + 2e-3


def test_vimco_objective_and_gradient():
    q = LAWS["categorical"]()
    f = flattened(costs(5)["tanh"], q)
    scores = q.scores.clone().requires_grad_()
    p = scores.softmax(-1)
    values = f(torch.eye(5, dtype=F64))
    pairs = torch.logaddexp(values[:, None], values[None]) - math.log(2.0)
    (exact,) = torch.autograd.grad((p[:, None] * p[None] * pairs).sum(), scores)
    grads, _, _ = replicate_gradients(ag.Vimco(2), f, q, 100_000, torch.Generator().manual_seed(0))
    assert_mean(grads, exact)
    value = ag.Vimco(2)(
        f, q.with_scores(scores.expand(100_000, 5)), generator=torch.Generator().manual_seed(1)
    )
    assert_mean(value.detach(), (p[:, None] * p[None] * pairs).sum().detach())


NESTED = [
    (ag.Exact(), ag.Reinforce()),
    (ag.Reinforce(), ag.Reinforce()),
    (ag.LeaveOneOut(2), ag.LeaveOneOut(2)),
    (ag.LeaveOneOut(2), ag.Rebar(train=False)),
    (ag.Rebar(train=False), ag.Exact()),
    (ag.MuProp(), ag.LocalExpectation()),
]


@pytest.mark.statistical
@pytest.mark.parametrize("pair", NESTED, ids=lambda p: f"{type(p[0]).__name__}-{type(p[1]).__name__}")
def test_nested_estimators_are_unbiased_for_all_parameters(pair):
    """z1 -> z2 | z1 -> cost: gradients for the first scores, the map between, and the cost's weights."""
    first, second = pair
    replicates, K = 20_000, 3
    base = [seeded(K, seed=1), seeded(K, K, seed=2), seeded(2 * K, 4, seed=3)]
    v = seeded(4, seed=5)

    def loss(parameters, outer, inner, g=None):
        theta, M, W = parameters

        def top(z1, z2):
            both = torch.cat([z1.expand(z2.shape[:-1] + (K,)), z2], -1)
            return torch.tanh(torch.einsum("...i,...ij->...j", both, W)) @ v

        def after_first(z1):
            q2 = ag.Gibbs(ag.OneHot(), torch.einsum("...i,...ij->...j", z1, M.expand(z1.shape + (K,))))
            return inner(lambda z2: top(z1, z2), q2, generator=g)

        return outer(after_first, ag.Gibbs(ag.OneHot(), theta), generator=g)

    exact_parameters = [p.clone().requires_grad_() for p in base]
    exact = torch.autograd.grad(loss(exact_parameters, ag.Exact(), ag.Exact()), exact_parameters)
    many = [p.expand(replicates, *p.shape).clone().requires_grad_() for p in base]
    total = loss(many, first, second, torch.Generator().manual_seed(0)).sum()
    for estimate, truth in zip(torch.autograd.grad(total, many), exact, strict=True):
        assert_mean(estimate.flatten(1), truth.flatten())


def test_gradients_of_parameters_inside_f_and_value():
    weight = seeded(4, seed=1).requires_grad_()
    q = ag.Gibbs(ag.OneHot(), seeded(50_000, 4, seed=2)[:1].expand(50_000, 4).clone().requires_grad_())
    for estimator in (
        ag.LeaveOneOut(2),
        ag.Reinforce(),
        ag.Rebar(),
        ag.MuProp(),
        ag.UnorderedSet(2),
        ag.Darn(),
    ):
        wide = weight.detach().expand(50_000, 4).clone().requires_grad_()
        value = estimator(
            lambda z, wide=wide: (z * wide).sum(-1) ** 2, q, generator=torch.Generator().manual_seed(0)
        )
        (grad,) = torch.autograd.grad(value.sum(), wide)
        p = q.mean[0].detach()
        assert_mean(value.detach(), (p * weight.detach() ** 2).sum())
        assert_mean(grad, 2 * p * weight.detach())


@pytest.mark.parametrize("scale", [1e3, 1e18, 1e300])
@pytest.mark.parametrize("estimator", [ag.SumAndSample(3), ag.UnorderedSet(3)], ids=str)
def test_distinct_samples_of_huge_scores_have_probabilities_that_sum_to_one(estimator, scale):
    """Where the log-partition is rounded by more than every probability's logarithm."""
    scores = (scale * seeded(100, 5, seed=3)).requires_grad_()
    value = estimator(lambda z: z.sum(-1), ag.Gibbs(ag.Subset(2), scores), generator=ag.CounterRNG(0))
    assert (value - 2.0).abs().max() < 1e-9
    assert torch.autograd.grad(value.sum(), scores)[0].isfinite().all()


def test_same_generator_same_numbers_and_no_global_randomness():
    for case in ESTIMATORS:
        q = LAWS["bits"]() if case.name in ("Arm",) else LAWS["categorical"]()
        estimator = case.make(q)
        if not estimator.works_with(q):
            continue
        f = flattened(costs(q.event_shape.numel())["quadratic"], q)
        before = torch.get_rng_state()
        for source in (lambda: torch.Generator().manual_seed(4), lambda: ag.CounterRNG(4)):
            if isinstance(estimator, nn.Module):
                estimator.eval()
            one, two = (estimator.evaluate(f, q, generator=source()).scores_grad for _ in range(2))
            assert torch.equal(one, two), case.name
        assert torch.equal(before, torch.get_rng_state()), case.name


def test_masks_never_choose_and_never_train_forbidden_items():
    mask = torch.tensor([True, True, False, True])
    for case in ESTIMATORS:
        structure = ag.Bits() if case.name == "Arm" else ag.OneHot()
        q = ag.Gibbs(structure, seeded(7, 4, seed=3), mask=mask)
        estimator = case.make(q)
        if not estimator.works_with(q):
            continue
        f = flattened(costs(4)["quadratic"], q)
        estimate = estimator.evaluate(f, q, generator=torch.Generator().manual_seed(0))
        assert bool((estimate.scores_grad[..., 2] == 0).all()), case.name
        assert bool(torch.isfinite(estimate.scores_grad).all()), case.name
        for z in estimate.samples:
            assert bool((z[..., 2] == 0).all()), case.name


def test_bad_input_gets_sentences():
    q = ag.Gibbs(ag.OneHot(), torch.zeros(3, 4, requires_grad=True))
    est = ag.LeaveOneOut(2)
    with pytest.raises(ag.InputError, match=r"independent\(1\)"):
        est(lambda z: z.sum((-2, -1)), q)
    with pytest.raises(ag.InputError, match="finite costs"):
        est(lambda z: torch.log(z.sum(-1) - 1), q)
    with pytest.raises(ag.InputTypeError, match="must return a tensor"):
        est(lambda z: 1.0, q)
    with pytest.raises(ag.InputTypeError, match="must be a function"):
        est(3, q)
    with pytest.raises(ag.InputTypeError, match=r"Gibbs\(OneHot"):
        est(lambda z: z, torch.distributions.Categorical(logits=torch.zeros(3)))
    with pytest.raises(ag.InputError, match="nothing here needs a gradient"):
        est(lambda z: z[..., 0], ag.Gibbs(ag.OneHot(), torch.zeros(3)))
    with torch.no_grad():
        assert est(lambda z: z[..., 0], q).shape == (3,)
    for needy in (ag.GumbelST(), ag.ReinMax(), ag.MuProp(), ag.Darn(), ag.Rebar()):
        with pytest.raises(ag.InputError, match="differentiates f"):
            needy(lambda z: z[..., 0].detach(), q)
    with pytest.raises(ag.UnsupportedError, match="Unbiased here: `LeaveOneOut`"):
        ag.Rebar()(lambda z: z.flatten(1).sum(1), ag.Gibbs(ag.SpanningTree(), torch.zeros(3, 3)))
    with pytest.raises(ag.UnsupportedError, match="Perturbed"):
        ag.LeaveOneOut()(lambda z: z.flatten(1).sum(1), ag.Gibbs(ag.Permutation(), torch.zeros(3, 3)))
    samples = torch.eye(3)[None].expand(2, 3, 3)
    with pytest.raises(ag.InputError, match="couples the items"):
        ag.check_batch_independence(lambda z: z[..., 0] - z[..., 0].mean(1, keepdim=True), samples)
    ag.check_batch_independence(lambda z: z[..., 0], samples)


def test_reinforce_and_reparameterisation_of_the_seed():
    """mu = a theta + b, z ~ N(mu, 1), f = z^2: both gradients are 2 a mu; variances by closed form."""
    a, b, theta = 2.0, 3.0, 0.4
    mu = a * theta + b
    eps = ag.random.normal((400_000,), dtype=F64, generator=torch.Generator().manual_seed(0))
    z = mu + eps
    score = z**2 * eps * a
    path = 2 * z * a
    assert_mean(score, 2 * a * mu)
    assert_mean(path, 2 * a * mu)
    variance = a**2 * (mu**4 + 14 * mu**2 + 15)
    # the variance of a variance estimate: (kurtosis - 1) / n, kurtosis below 60 here
    assert abs(score.var().item() / variance - 1) < 6 * math.sqrt(60 / len(z))
    assert abs(path.var().item() / (4 * a**2) - 1) < 6 * math.sqrt(2 / len(z))


def test_control_variates_train_to_less_variance():
    q = ag.Gibbs(ag.OneHot(), seeded(6, seed=7).expand(256, 6).clone().requires_grad_())
    f = flattened(costs(6)["tanh"], q)
    network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    with torch.no_grad():
        for p, s in zip(network.parameters(), range(10), strict=False):
            p.copy_(0.1 * seeded(*p.shape, seed=40 + s))
    est = ag.Relax(network, use_f=False)
    optimizer = torch.optim.Adam(est.parameters(), 0.02)
    g = torch.Generator().manual_seed(0)
    variances = []
    for _ in range(150):
        variances.append(est.evaluate(f, q, generator=g).scores_grad.var(0).sum().item())
        optimizer.zero_grad()
        q.scores.grad = None
        est(f, q, generator=g).mean().backward()
        optimizer.step()
    assert sum(variances[-20:]) < 0.9 * sum(variances[:20])
    assert (
        z_scores(est.evaluate(f, q, generator=g).scores_grad, ag.Exact().evaluate(f, q).scores_grad[0])
        .abs()
        .max()
        < 6
    )


def test_control_variate_gradients_do_not_leak():
    scores = seeded(5, 3, seed=1).requires_grad_()
    inside = seeded(3, seed=2).requires_grad_()
    est = ag.Rebar()
    q = ag.Gibbs(ag.OneHot(), scores)

    def f(z):
        return (z * inside).sum(-1) ** 2

    value = est(f, q, generator=torch.Generator().manual_seed(0)).sum()
    by_sample = torch.autograd.grad(value, [scores, inside, est.log_tau, est.eta])
    assert all(g is not None and bool(torch.isfinite(g).all()) for g in by_sample)
    plain = ag.Rebar(train=False)(f, q, generator=torch.Generator().manual_seed(0)).sum()
    without = torch.autograd.grad(plain, [scores, inside])
    for one, two in zip(by_sample, without, strict=False):
        torch.testing.assert_close(one, two)


def test_accumulation_equals_one_batch():
    scores, context = seeded(8, 3, seed=1), ag.CounterRNG(0)
    weight = seeded(3, seed=2)

    def run(parts):
        est = ag.Rebar()
        leaf = scores.clone().requires_grad_()
        for part in parts:
            rng = context.shift(rows=part.start)
            q = ag.Gibbs(ag.OneHot(), leaf[part])
            est(lambda z: torch.tanh(z @ weight), q, generator=rng).sum().backward()
        return leaf.grad, est.log_tau.grad * 0 + est.eta.grad

    whole, _ = run([slice(0, 8)])
    halves, _ = run([slice(0, 4), slice(4, 8)])
    torch.testing.assert_close(whole, halves, atol=1e-12, rtol=1e-12)


def test_diagnose_race_and_monitor():
    q = LAWS["categoricals"]()
    f = flattened(costs(9)["tanh"], q)
    report = ag.diagnose(
        f,
        q,
        [ag.LeaveOneOut(4), ag.StraightThrough(), ag.Arm()],
        replicates=4000,
        generator=ag.CounterRNG(1),
    )
    verdicts = [row.verdict.split(":")[0] for row in report.rows]
    assert verdicts == ["unbiased", "biased", "refused"]
    assert "enumeration" in report.table()
    assert report.to_json().startswith("{")
    outcome = ag.race(f, q, {"loo": ag.LeaveOneOut(4), "reinforce": ag.Reinforce()}, replicates=2000)
    assert outcome.best in ("loo", "reinforce")
    large = ag.Gibbs(ag.OneHot(), seeded(12, 6, seed=3)).independent(1)
    big = ag.diagnose(
        lambda z: z.flatten(-2).cumsum(-1).tanh().sum(-1), large, [ag.LeaveOneOut(4)], replicates=500
    )
    assert "local expectation" in big.oracle
    monitor = ag.GradientMonitor()
    scores = seeded(4, 3, seed=5).requires_grad_()
    for _ in range(5):
        z = ag.gumbel_softmax(monitor.watch("choice", scores, tau=0.5), 0.5)
        (z**2).sum().backward()
    figures = monitor.report()["choice"]
    assert figures["steps"] == 5
    assert 0 <= figures["starved"] <= 1
    assert "choice" in monitor.table()
