"""Every reparameterised law: its law against scipy, its gradients against closed forms, its four kinds of noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import kl_divergence

import argrad as ag
from argrad import reparam as r
from argrad.testing import assert_cdf, assert_frequencies, assert_mean
from argrad.testing.parts import check_generator_contract

N = 20_000
KINDS = ["iid", "antithetic", "sobol", "stratified"]


@dataclass(frozen=True)
class Case:
    """A law with a loc-like and a scale-like parameter, and a function whose mean is known."""

    make: Callable[[Tensor, Tensor], r.Reparameterized]
    theta: tuple[float, float]
    scipy: Callable[[float, float], object]
    f: Callable[[Tensor], Tensor]  # with a finite variance of the pathwise gradient
    mean: Callable[[Tensor, Tensor], Tensor]  # E f as a function of the parameters

    def law(self, dtype=torch.float64, grad: bool = False) -> tuple[r.Reparameterized, Tensor]:
        theta = torch.tensor(self.theta, dtype=dtype, requires_grad=grad)
        return self.make(*theta), theta


def square(z):
    return z**2


GAUSS = (
    lambda a, b: stats.norm(a, b),
    square,
    lambda m, s: m**2 + s**2,
)
LAPLACE = (lambda a, b: stats.laplace(a, b), square, lambda m, b: m**2 + 2 * b**2)
CASES = {
    "Normal": Case(r.Normal, (1.5, 0.7), *GAUSS),
    "BoxMuller": Case(r.BoxMuller, (1.5, 0.7), *GAUSS),
    "LogNormal": Case(
        r.LogNormal,
        (0.3, 0.4),
        lambda a, b: stats.lognorm(b, scale=math.exp(a)),
        square,
        lambda m, s: torch.exp(2 * m + 2 * s**2),
    ),
    "Laplace": Case(r.Laplace, (-0.5, 1.3), *LAPLACE),
    "LogRatioLaplace": Case(r.LogRatioLaplace, (-0.5, 1.3), *LAPLACE),
    # no moments; the density of a second Cauchy has the mean that their sum has as density
    "Cauchy": Case(
        r.Cauchy,
        (0.4, 0.8),
        lambda a, b: stats.cauchy(a, b),
        lambda z: 1 / (1 + z**2),
        lambda m, g: (1 + g) / ((1 + g) ** 2 + m**2),
    ),
    "Logistic": Case(
        r.Logistic,
        (0.4, 0.8),
        lambda a, b: stats.logistic(a, b),
        square,
        lambda m, s: m**2 + s**2 * math.pi**2 / 3,
    ),
    "Gumbel": Case(
        r.Gumbel,
        (0.4, 0.8),
        lambda a, b: stats.gumbel_r(a, b),
        square,
        lambda m, b: (m + 0.5772156649015329 * b) ** 2 + math.pi**2 / 6 * b**2,
    ),
    "Exponential": Case(
        lambda a, b: r.Exponential(a * b),
        (0.7, 2.0),
        lambda a, b: stats.expon(scale=1 / (a * b)),
        square,
        lambda a, b: 2 / (a * b) ** 2,
    ),
    "Weibull": Case(
        r.Weibull,
        (1.4, 2.2),
        lambda a, b: stats.weibull_min(b, scale=a),
        square,
        lambda a, k: a**2 * torch.exp(torch.lgamma(1 + 2 / k)),
    ),
    "InverseGamma": Case(
        r.InverseGamma,
        (6.0, 2.0),
        lambda a, b: stats.invgamma(a, scale=b),
        lambda z: z,
        lambda a, b: b / (a - 1),
    ),
    "Kumaraswamy": Case(
        r.Kumaraswamy,
        (1.7, 2.4),
        lambda a, b: Kumaraswamy(a, b),
        square,
        lambda a, b: (
            b * torch.exp(torch.lgamma(1 + 2 / a) + torch.lgamma(b) - torch.lgamma(1 + 2 / a + b))
        ),
    ),
}


@dataclass(frozen=True)
class Kumaraswamy:
    """Scipy has none."""

    a: float
    b: float

    def cdf(self, x):
        return 1 - (1 - x**self.a) ** self.b

    def logpdf(self, x):
        import numpy as np

        return np.log(self.a * self.b * x ** (self.a - 1) * (1 - x**self.a) ** (self.b - 1))


every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def seed(n: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(n)


def test_every_law_is_a_case():
    laws = {name for name in r.__all__ if name[0].isupper() and name != "Reparameterized"}
    assert laws == {*CASES, "MultivariateNormal", "Rademacher"}  # which have tests of their own


# ---- the law ---------------------------------------------------------------------------------------


@every_case
@pytest.mark.statistical
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_samples_have_the_law_of_scipy(case, dtype):
    law, _ = case.law(dtype)
    z = law.sample((N,), generator=seed())
    assert z.dtype == dtype
    assert_cdf(z, case.scipy(*case.theta).cdf)


@every_case
@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS[1:])
def test_each_sample_of_a_design_has_the_law(case, kind):
    """One sample (the third of eight) of many coordinates, which are scrambled independently."""
    law, _ = case.law()
    z = law.expand((2000,)).sample((8,), kind=kind, generator=seed(1))[2]
    assert_cdf(z, case.scipy(*case.theta).cdf)


@every_case
def test_density_is_that_of_scipy(case):
    law, _ = case.law()
    z = law.sample((100,), generator=seed())
    expected = torch.from_numpy(case.scipy(*case.theta).logpdf(z.numpy()))
    assert torch.allclose(law.log_prob(z), expected, rtol=1e-9, atol=1e-9)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_noise_and_back(case, dtype):
    law, _ = case.law(dtype)
    eps = law.noise((1000,), generator=seed())
    z = law.transform(eps)
    back = law.transform(law.noise_of(z, generator=seed(1)))
    # the round trip goes through a probability, whose last digits are the first of a quantile near the median
    close = 1e-4 if dtype == torch.float32 else 1e-9
    assert torch.allclose(back, z, rtol=close, atol=close)
    if not law.noise_dims:
        assert torch.allclose(law.noise_of(z), eps, rtol=50 * close, atol=50 * close)


@every_case
@pytest.mark.statistical
def test_recovered_noise_has_the_law_of_noise(case):
    """Where two numbers make one, the noise given z is drawn; together they must be noise again."""
    law, _ = case.law()
    recovered = law.noise_of(law.sample((N,), generator=seed()), generator=seed(1))
    for column in recovered.reshape(N, -1).unbind(-1):
        if law.noise_dims:
            assert_cdf(column, stats.uniform.cdf)
        elif isinstance(law, (r.Normal, r.LogNormal)):
            assert_cdf(column, stats.norm.cdf)
        else:
            assert_cdf(column, stats.uniform(-1, 2).cdf)
    if law.noise_dims:  # and the two are independent
        a, b = (recovered * 4).floor().clamp(max=3).long().unbind(-1)
        assert_frequencies(torch.bincount(4 * a + b, minlength=16), torch.full((16,), 1 / 16))


@pytest.mark.parametrize("b", [0.3, 1.0, 2.4])
@pytest.mark.parametrize("a", [0.19, 1.0, 2.0])
def test_density_of_shares_at_both_ends(a, b):
    """Where 1 - z^a and z^a are lost in float32; the formula in 60 digits."""
    for z in (1.2e-38, 1e-30, 1e-7, 0.5, 1 - 1e-5, 1 - 2.0**-24):
        value = torch.tensor(z, requires_grad=True)
        with mpmath.workdps(60):
            exact, (ea, eb) = (
                mpmath.mpf(value.item()),
                (mpmath.mpf(torch.tensor(x).item()) for x in (a, b)),
            )
            wanted = mpmath.log(ea * eb) + (ea - 1) * mpmath.log(exact)
            wanted += (eb - 1) * mpmath.log(1 - exact**ea)
        got = r.Kumaraswamy(a, b).log_prob(value)
        assert got.item() == pytest.approx(float(wanted), rel=1e-6, abs=1e-6)
        assert torch.autograd.grad(got, value)[0].isfinite()


def test_float32_reaches_both_tails():
    """Two-sided noise: 1e-30 from either end is an ordinary float32."""
    eps = torch.tensor([1e-30, -1e-30])
    assert torch.allclose(r.Logistic(0.0, 1.0).transform(eps), torch.tensor([69.77, -69.77]), atol=0.01)
    assert torch.allclose(r.Laplace(0.0, 1.0).transform(eps), torch.tensor([69.08, -69.08]), atol=0.01)
    assert torch.allclose(r.Gumbel(0.0, 1.0).transform(eps), torch.tensor([69.77, -4.245]), atol=0.01)
    assert r.Exponential(1.0).transform(eps)[1] == pytest.approx(5e-31, rel=1e-5)
    # and uniform noise knows nothing of it: 1 - 5e-31 is 1
    assert 1 - torch.tensor(5e-31) == 1


def test_two_sided_noise_and_uniforms():
    u = torch.rand(1000, dtype=torch.float64)
    assert torch.allclose(r.uniform_of(r.two_sided(u)), u)
    law = r.Gumbel(torch.zeros((), dtype=torch.float64), 1.0)
    rising = law.transform(r.two_sided(u.sort().values))
    assert bool((rising.diff() > 0).all())


# ---- gradients -------------------------------------------------------------------------------------


@every_case
@pytest.mark.statistical
def test_pathwise_gradient_is_the_gradient_of_the_mean(case):
    law, theta = case.law(grad=True)
    z = law.rsample((N,), generator=seed())
    jacobian = per_sample_gradients(case, N, seed())
    exact = torch.autograd.grad(case.mean(*theta), theta)[0]
    assert_mean(jacobian, exact)
    assert_mean(case.f(z.detach())[:, None], case.mean(*theta).detach())


def per_sample_gradients(case: Case, n: int, generator) -> Tensor:
    """d f(transform(eps_i)) / d theta for each i, by giving every sample its own copy of theta."""
    theta = torch.tensor(case.theta, dtype=torch.float64).repeat(n, 1).requires_grad_()
    law = case.make(*theta.unbind(-1))
    total = case.f(law.transform(law.noise(generator=generator))).sum()
    return torch.autograd.grad(total, theta)[0]


@every_case
def test_transform_is_differentiable(case):
    law, theta = case.law(grad=True)
    eps = law.noise((6,), generator=seed())
    assert torch.autograd.gradcheck(lambda t: case.make(*t).transform(eps), theta)
    if not isinstance(law, r.InverseGamma):
        assert torch.autograd.gradgradcheck(lambda t: case.make(*t).transform(eps), theta)


def test_inverse_gamma_differentiates_its_noise_too():
    law = r.InverseGamma(torch.tensor(2.5, dtype=torch.float64), 1.5)
    eps = torch.tensor([0.3, -0.3, 0.9, -0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(law.transform, eps)
    shapes = torch.tensor([0.5, 2.5, 9.0], dtype=torch.float64)
    looped = torch.stack([r.InverseGamma(a, 1.5).transform(eps) for a in shapes])
    mapped = torch.vmap(lambda a: r.InverseGamma(a, 1.5, validate_args=False).transform(eps))(shapes)
    assert torch.allclose(mapped, looped)


# ---- kinds of noise --------------------------------------------------------------------------------


def spread(case: Case, kind: str, n: int = 64, repeats: int = 100) -> Tensor:
    """Variance over repeats of the gradient estimated from n samples."""
    g = seed(2)
    theta = torch.tensor(case.theta, dtype=torch.float64).repeat(repeats, 1).requires_grad_()
    noise = [case.law()[0].noise((n,), kind=kind, generator=g) for _ in range(repeats)]
    law = case.make(*theta.unbind(-1))
    mean = case.f(law.transform(torch.stack(noise, 1))).mean(0)
    return torch.autograd.grad(mean.sum(), theta)[0].var(0).sum()


@every_case
def test_arranged_noise_lowers_the_variance(case):
    iid = spread(case, "iid")
    # one number a sample: cells and Sobol points beat independence by far; two numbers: only Sobol does both
    assert spread(case, "sobol") < 0.3 * iid
    assert spread(case, "stratified") < 0.75 * iid


def test_antithetic_pairs_cancel_what_is_odd():
    """For f = z^2 the gradient 2 z is odd about the mean: pairs have no variance at all for the location."""
    for name in ("Normal", "BoxMuller", "Laplace", "LogRatioLaplace", "Logistic"):
        case = CASES[name]
        law, theta = case.law(grad=True)
        mean = case.f(law.rsample((64,), kind="antithetic", generator=seed())).mean()
        grad = torch.autograd.grad(mean, theta)[0]
        assert grad[0].item() == pytest.approx(2 * case.theta[0], abs=1e-12)


def test_antithetic_noise_is_mirrored():
    for case in CASES.values():
        law, _ = case.law()
        z = law.sample((10, 4), kind="antithetic", generator=seed())
        first, second = z.reshape(-1)[:20], z.reshape(-1)[20:]
        cdf = case.scipy(*case.theta).cdf
        lower, upper = torch.as_tensor(cdf(first.numpy())), torch.as_tensor(cdf(second.numpy()))
        assert torch.allclose(lower + upper, torch.ones(20, dtype=torch.float64))


def test_stratified_noise_has_one_sample_a_cell():
    law = r.Exponential(torch.ones(3, dtype=torch.float64))
    u = r.uniform_of(law.noise((50,), kind="stratified", generator=seed()))
    cells = (u * 50).floor().long()
    assert bool((cells.sort(0).values == torch.arange(50)[:, None]).all())


def test_sobol_noise_fills_the_square():
    """16 points in two dimensions: one in each of the 16 boxes, of every shape of 2^-a x 2^-(4-a)."""
    law = r.Logistic(torch.zeros(2, dtype=torch.float64), 1.0)
    u = r.uniform_of(law.noise((16,), kind="sobol", generator=seed()))
    for a in range(5):
        box = (u[:, 0] * 2**a).floor() * 2 ** (4 - a) + (u[:, 1] * 2 ** (4 - a)).floor()
        assert len(box.unique()) == 16


@pytest.mark.parametrize("kind", KINDS)
def test_generators(kind):
    law = r.Gumbel(torch.zeros(3), torch.ones(3))
    check_generator_contract(lambda g: law.noise((4,), kind=kind, generator=g))
    assert law.noise((0,), kind=kind).shape == (0, 3)
    assert law.noise((2, 3), kind=kind).shape == (2, 3, 3)


def test_common_random_numbers():
    """The same noise through two laws: their difference has far less variance than with noise of its own."""
    one, other = r.Weibull(torch.tensor(1.0), 2.0), r.Weibull(torch.tensor(1.0), 2.1)
    eps = one.noise((1000,), generator=seed())
    coupled = (one.transform(eps) - other.transform(eps)).var()
    apart = (one.sample((1000,), generator=seed(1)) - other.sample((1000,), generator=seed(2))).var()
    assert coupled < 0.01 * apart


# ---- the two that are not a pair of numbers --------------------------------------------------------


def test_multivariate_normal():
    g = seed()
    root = torch.randn(3, 3, generator=g, dtype=torch.float64)
    covariance = root @ root.mT + torch.eye(3, dtype=torch.float64)
    law = r.MultivariateNormal(torch.arange(3.0, dtype=torch.float64), covariance)
    z = law.sample((N,), generator=g)
    assert torch.allclose(law.transform(law.noise_of(z)), z)
    assert_mean(z, law.loc)
    centred = z - law.loc
    assert_mean(centred[:, :, None] * centred[:, None, :], covariance)
    expected = stats.multivariate_normal(law.loc.numpy(), covariance.numpy()).logpdf(z[:50].numpy())
    assert torch.allclose(law.log_prob(z[:50]), torch.from_numpy(expected))
    assert law.noise((8,), kind="sobol").shape == (8, 3)
    factor = law.scale_tril.clone().requires_grad_()
    wide = law.expand((4,))
    assert isinstance(wide, r.MultivariateNormal)
    assert wide.rsample((2,)).shape == (2, 4, 3)
    # E |z|^2 = |m|^2 + |L|^2, so its gradient for L is 2 L
    q = r.MultivariateNormal(law.loc, scale_tril=factor)
    mean = q.rsample((2**14,), kind="sobol", generator=g).square().sum(-1).mean()
    grad = torch.autograd.grad(mean, factor)[0]
    assert torch.allclose(
        grad, 2 * factor.detach().tril(), atol=0.02
    )  # 2^14 Sobol points: errors below 1 %


def test_rademacher():
    law = r.Rademacher((3,))
    z = law.sample((N,), generator=seed())
    assert_frequencies((z > 0).sum(0).repeat(2), torch.ones(6))
    assert set(z.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(law.transform(law.noise_of(z)), z)
    assert law.log_prob(torch.tensor([1.0, -1.0, 0.0])).exp().tolist() == [0.5, 0.5, 0.0]
    assert law.expand((2, 3)).sample().shape == (2, 3)
    for kind in KINDS[1:]:  # exact balance
        assert law.sample((64,), kind=kind, generator=seed()).sum(0).tolist() == [0, 0, 0]
    assert kl_divergence(law, law).tolist() == [0, 0, 0]


# ---- divergences -----------------------------------------------------------------------------------

P = torch.distributions
PAIRS = [
    (r.Weibull(1.3, 2.0), r.Weibull(0.8, 3.1)),
    (P.Weibull(1.3, 0.7), P.Weibull(2.0, 0.9)),  # torch's own class has it now as well
    (r.Weibull(1.3, 2.0), r.Exponential(0.6)),
    (r.Exponential(0.6), r.Weibull(1.3, 2.0)),
    (r.Weibull(1.3, 2.0), P.Gamma(2.0, 1.5)),
    (r.Logistic(0.3, 1.0), r.Logistic(-0.5, 1.0)),
    (r.Logistic(0.3, 0.5), r.Logistic(-0.5, 2.0)),
    (r.Logistic(0.3, 3.0), r.Logistic(-0.5, 0.2)),
    (r.Logistic(0.3, 3.0), r.Logistic(20.0, 0.01)),
    (r.Logistic(0.3, 0.5), r.Normal(1.0, 2.0)),
    (r.Kumaraswamy(2.0, 3.0), r.Kumaraswamy(2.0, 1.5)),
    (r.Kumaraswamy(2.0, 3.0), r.Kumaraswamy(0.7, 1.5)),
    (r.Kumaraswamy(0.4, 0.6), r.Kumaraswamy(3.0, 2.5)),
    (r.Kumaraswamy(2.0, 3.0), P.Beta(1.5, 2.5)),
    (r.Kumaraswamy(0.5, 4.0), P.Beta(3.0, 0.7)),
    # from torch, by inheritance
    (r.Laplace(0.0, 1.0), r.Laplace(1.0, 2.0)),
    (r.Normal(0.0, 1.0), r.BoxMuller(1.0, 2.0)),
    (r.Gumbel(0.0, 1.0), r.Gumbel(1.0, 2.0)),
    (r.Exponential(1.0), r.Exponential(2.0)),
    (r.LogNormal(0.0, 1.0), r.LogNormal(0.5, 1.5)),
    (r.InverseGamma(3.0, 1.0), r.InverseGamma(2.0, 1.5)),
    (r.Cauchy(0.0, 1.0), r.Cauchy(1.0, 2.0)),
]


def in_float64(law):
    names = ("loc", "scale", "rate", "concentration", "concentration1", "concentration0")
    values = {n: getattr(law, n).double() for n in names if hasattr(law, n)}
    return type(law)(**values)


@pytest.mark.parametrize(("p", "q"), PAIRS, ids=lambda law: f"{type(law).__name__}")
def test_divergences_match_an_integral(p, q):
    """int_0^1 (log p - log q)(F^-1(u)) du, with the quantiles of the explicit noise."""
    p, q = in_float64(p), in_float64(q)
    kl = kl_divergence(p, q)
    explicit = p if isinstance(p, r.Reparameterized) else r.Weibull(p.scale, p.concentration)
    assert kl.item() > 0
    if isinstance(explicit, (r.Normal, r.LogNormal)):
        assert_mean((p.log_prob(z := p.sample((N,))) - q.log_prob(z)), kl)
        return
    if isinstance(p, P.Kumaraswamy):  # whose density near 1 needs more digits than z has
        assert kl.item() == pytest.approx(by_mpmath(p, q), rel=1e-9)
        return

    def integrand(log_eps: float, sign: float) -> float:
        eps = sign * torch.tensor(math.exp(log_eps), dtype=torch.float64)
        z = explicit.transform(eps)
        return (p.log_prob(z) - q.log_prob(z)).item() * 0.5 * math.exp(log_eps)

    points = [-1e-6, -1e-3, -0.1, -1.0]
    parts = [
        integrate.quad(integrand, -36, 0, args=(s,), limit=400, points=points)[0] for s in (-1.0, 1.0)
    ]
    assert kl.item() == pytest.approx(sum(parts), rel=1e-7, abs=1e-8)  # quad's own tolerance


def by_mpmath(p, q) -> float:
    import mpmath as mp

    a, b, c, d = (mp.mpf(x.item()) for law in (p, q) for x in (law.concentration1, law.concentration0))

    def log_p(x):
        return mp.log(a * b) + (a - 1) * mp.log(x) + (b - 1) * mp.log(1 - x**a)

    def log_q(x):
        if isinstance(q, P.Beta):
            return (c - 1) * mp.log(x) + (d - 1) * mp.log(1 - x) - mp.log(mp.beta(c, d))
        return mp.log(c * d) + (c - 1) * mp.log(x) + (d - 1) * mp.log(1 - x**c)

    with mp.workdps(40):
        integral = mp.quad(lambda x: mp.exp(log_p(x)) * (log_p(x) - log_q(x)), [0, 0.01, 0.5, 0.99, 1])
    return float(integral)


def test_divergences_are_zero_for_equal_laws_and_differentiable():
    for p in (r.Weibull, r.Logistic, r.Kumaraswamy):
        theta = torch.tensor([1.3, 0.8], dtype=torch.float64, requires_grad=True)
        assert kl_divergence(p(*theta), p(*theta)).item() == pytest.approx(0, abs=1e-12)
        other = p(*torch.tensor([0.5, 1.1], dtype=torch.float64))
        assert torch.autograd.gradcheck(lambda t, p=p, q=other: kl_divergence(p(*t), q), theta)


def test_logistic_divergence_of_equal_scales_is_closed():
    shift = torch.tensor([0.0, 0.01, 1.0, 30.0], dtype=torch.float64)
    kl = kl_divergence(r.Logistic(shift, 1.0), r.Logistic(torch.zeros(4, dtype=torch.float64), 1.0))
    assert torch.allclose(kl, ag.Logistic().kl(shift), atol=1e-12)


# ---- contract --------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(case, dtype):
    law, _ = case.law(dtype)
    eps = law.noise((50,), generator=seed())
    assert eps.dtype == torch.float32
    z = law.transform(eps)
    assert z.dtype == dtype
    wide = case.make(*torch.tensor(case.theta).to(dtype).float())
    assert torch.allclose(z.float(), wide.transform(eps), rtol=0.02, atol=0.02)  # 2^-8 for bfloat16


@every_case
def test_shapes(case):
    a, b = torch.tensor(case.theta[0]).expand(4, 1), torch.tensor(case.theta[1]).expand(3)
    law = case.make(a, b)
    assert law.batch_shape == (4, 3)
    eps = law.noise((5, 2))
    assert eps.shape == (5, 2, 4, 3, *law.noise_dims)
    assert law.transform(eps).shape == law.rsample((5, 2)).shape == (5, 2, 4, 3)
    wide = law.expand((2, 4, 3))
    assert isinstance(wide, type(law))
    assert wide.sample().shape == (2, 4, 3)
    assert law.log_prob(law.sample()).shape == (4, 3)


WRONG = [
    (
        lambda: r.Normal(0.0, 1.0).noise((4,), kind="halton"),
        '`Normal.noise(kind=...)` must be one of "iid", "antithetic", "sobol", "stratified"; got halton',
    ),
    (
        lambda: r.Normal(0.0, 1.0).noise((3,), kind="antithetic"),
        "`Normal.noise(sample_shape=...)` must be an even number; got 3",
    ),
    (
        lambda: r.Normal(torch.zeros(30_000), 1.0).noise((2,), kind="sobol"),
        'can be "sobol" up to 21201 numbers a sample; got 30000 numbers a sample',
    ),
    (
        lambda: r.Laplace(0.0, 1.0).transform(0.5),
        "`Laplace.transform(eps=...)` must be a tensor; got float",
    ),
    (
        lambda: r.BoxMuller(0.0, 1.0).transform(torch.rand(5)),
        "must end in (2,), the numbers that make one sample; got shape (5,)",
    ),
    (lambda: r.Normal(0.0, 1.0).noise((2,), generator=3), "must be a `torch.Generator`"),
]


@pytest.mark.parametrize(("call", "sentence"), WRONG)
def test_wrong_input_gets_a_sentence(call, sentence):
    with pytest.raises(ag.ArgradError) as caught:
        call()
    assert sentence in str(caught.value)


def test_wrong_parameters_are_refused_by_torch():
    with pytest.raises(ValueError, match="Expected parameter scale"):
        r.Laplace(0.0, -1.0, validate_args=True)  # torch.compile turns the default off


def test_an_inverse_gamma_has_no_density_at_its_ends() -> None:
    """A fuzz run drew infinity from a tiny shape, and got NaN."""
    law = ag.reparam.InverseGamma(
        torch.tensor([0.003, 3.0]), torch.tensor([6.0, 2.0]), validate_args=False
    )
    ends = law.log_prob(torch.tensor([[math.inf], [0.0]]))
    assert (ends == -math.inf).all()
    z = torch.tensor([0.4, 0.9], dtype=torch.float64)
    law = ag.reparam.InverseGamma(torch.tensor([0.5, 3.0]).double(), torch.tensor([6.0, 2.0]).double())
    truth = stats.invgamma([0.5, 3.0], scale=[6.0, 2.0]).logpdf(z.numpy())
    torch.testing.assert_close(law.log_prob(z), torch.from_numpy(truth))


def test_a_weibull_has_no_density_at_infinity() -> None:
    """Another draw of infinity that a fuzz run made."""
    law = ag.reparam.Weibull(
        torch.tensor([8.3, 3.0, 2.0]), torch.tensor([0.005, 1.0, 4.0]), validate_args=False
    )
    assert (law.log_prob(torch.tensor(math.inf)) == -math.inf).all()
    assert law.log_prob(torch.tensor(0.0)).tolist() == [
        math.inf,
        pytest.approx(-math.log(3.0)),
        -math.inf,
    ]
    z, wide = (
        torch.tensor([0.4, 0.9]).double(),
        (torch.tensor([0.5, 3.0]).double(), torch.tensor([1.0, 2.0]).double()),
    )
    truth = stats.weibull_min(wide[1].numpy(), scale=wide[0].numpy()).logpdf(z.numpy())
    torch.testing.assert_close(ag.reparam.Weibull(*wide).log_prob(z), torch.from_numpy(truth))
