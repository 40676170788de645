"""What every exponential-family solver must pass: describe a case, inherit the tests.

A case has functions of scores alone (its k and options are bound), in the public version, which runs
the CPU kernels, and in plain torch, which other devices and transforms run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import argrad as ag
from argrad._errors import InputError

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FamilyCase:
    """One structure of one size.

    Attributes:
        name: for test ids.
        vertices: all structures, `(count, *event)`, float64.
        log_partition: public, as `marginals`; `sample(scores, shape, generator)`; `argmax` if there is one.
        plain: log-partition and marginals in torch.
        plain_sample: `(scores, uniform)` -> draws; `uniforms` a draw takes.
        closed: index of a part to forbid, such that something is left; None to skip.
        always_possible: allows something even when all parts are forbidden.
    """

    name: str
    vertices: Tensor
    log_partition: Function
    marginals: Function
    sample: Callable[..., Tensor]
    plain: tuple[Function, Function]
    plain_sample: Callable[[Tensor, Tensor], Tensor]
    uniforms: int
    argmax: Function | None = None
    closed: tuple[int, ...] | None = None
    always_possible: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def event(self) -> torch.Size:
        return self.vertices.shape[1:]

    def scores(self, *batch: int, scale: float = 1.0, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return scale * torch.randn(*batch, *self.event, dtype=torch.float64, generator=generator)

    def forbid(self, scores: Tensor) -> Tensor:
        mask = torch.zeros(self.event, dtype=torch.bool)
        if self.closed is not None:
            mask[self.closed] = True
        return scores.masked_fill(mask, -math.inf)


def law(case: FamilyCase, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """By enumeration, for one row: log Z, the probability of each vertex, marginals."""
    z = case.vertices
    total = torch.where(z == 0, 0.0, torch.where(z == 0, 0.0, scores) * z).flatten(1).sum(-1)
    log_z = total.logsumexp(0)
    p = (total - log_z).exp()
    return log_z, p, torch.tensordot(p, z, 1)


def inner(scores: Tensor, mu: Tensor) -> Tensor:
    return torch.where(mu == 0, 0.0, torch.where(mu == 0, 0.0, scores) * mu).sum()


class FamilyContract:
    """Inherit it next to a fixture `case`."""

    @pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 100.0])
    def test_enumeration(self, case: FamilyCase, scale: float) -> None:
        for scores in case.scores(3, scale=scale):
            log_z, p, mu = law(case, scores)
            entropy = -torch.special.xlogy(p, p).sum()
            for log_partition, marginals in ((case.log_partition, case.marginals), case.plain):
                # sums of up to ~30 numbers of size `scale`
                assert log_partition(scores).item() == pytest.approx(log_z.item(), rel=1e-13, abs=1e-12)
                assert torch.allclose(marginals(scores), mu, rtol=1e-9, atol=1e-13)
                found = log_partition(scores) - inner(scores, marginals(scores))
                assert found.item() == pytest.approx(entropy.item(), abs=1e-12 * (1 + scale))
            if case.argmax is not None and scale > 0:
                assert torch.equal(case.argmax(scores), case.vertices[p.argmax()])

    def test_hessian_is_covariance(self, case: FamilyCase) -> None:
        scores = case.forbid(case.scores(scale=2.0))
        _, p, mu = law(case, scores)
        z = case.vertices.flatten(1)
        covariance = (z.T * p) @ z - torch.outer(mu.flatten(), mu.flatten())
        size = math.prod(case.event)
        eager = torch.autograd.functional.jacobian(case.marginals, scores).reshape(size, size)
        assert torch.allclose(eager, covariance, atol=1e-13)
        for transform in (torch.func.jacrev, torch.func.jacfwd):
            assert torch.allclose(
                transform(case.marginals)(scores).reshape(size, size), covariance, atol=1e-13
            )
        hessian = torch.func.hessian(case.log_partition)(scores).reshape(size, size)
        assert torch.allclose(hessian, covariance, atol=1e-13)

    def test_mask_is_removal(self, case: FamilyCase) -> None:
        if case.closed is None:
            pytest.skip("nothing to forbid")
        scores = case.forbid(case.scores(scale=3.0)).requires_grad_()
        log_z, p, mu = law(case, scores.detach())
        weight = case.scores(seed=1)
        for log_partition, marginals in ((case.log_partition, case.marginals), case.plain):
            assert torch.allclose(log_partition(scores), log_z) and torch.allclose(
                marginals(scores), mu
            )
            (first,) = torch.autograd.grad(log_partition(scores), scores, create_graph=True)
            (second,) = torch.autograd.grad((first * weight).sum(), scores, create_graph=True)
            (third,) = torch.autograd.grad((second * weight).sum(), scores)
            assert torch.allclose(first, mu)
            for value in (marginals(scores), first, second, third):
                assert value[case.closed] == 0 and bool(value.isfinite().all())
        if case.argmax is not None:
            assert torch.equal(case.argmax(scores), case.vertices[p.argmax()])
        assert case.sample(scores, (50,), None)[(slice(None), *case.closed)].max() == 0

    def test_gradients(self, case: FamilyCase) -> None:
        scores = case.scores(2).requires_grad_()
        for function in (case.log_partition, case.marginals, *case.plain):
            assert gradcheck(function, scores, fast_mode=True)
            assert gradgradcheck(function, scores, fast_mode=True)

    def test_batch_is_loop(self, case: FamilyCase) -> None:
        scores = case.scores(3, 2).transpose(0, 1)
        functions = [case.log_partition, case.marginals, *case.plain]
        for function in [*functions, *([case.argmax] if case.argmax else [])]:
            loop = torch.stack([torch.stack([function(x) for x in row]) for row in scores])
            assert torch.allclose(function(scores), loop, rtol=1e-14, atol=1e-15)

    def test_empty_batch(self, case: FamilyCase) -> None:
        scores = case.scores(2, 0).requires_grad_()
        assert case.log_partition(scores).shape == (2, 0)
        assert case.marginals(scores).shape == scores.shape == case.plain[1](scores).shape
        case.marginals(scores).sum().backward()
        assert scores.grad is not None and scores.grad.shape == scores.shape
        assert case.sample(scores, (3,), None).shape == (3, *scores.shape)
        assert case.sample(case.scores(2), (0,), None).shape == (0, 2, *case.event)
        assert case.argmax is None or case.argmax(scores).shape == scores.shape

    @pytest.mark.parametrize("scale", [1.0, 10.0, 30.0, 100.0])
    def test_float32(self, case: FamilyCase, scale: float) -> None:
        scores = case.scores(5, scale=scale).float()
        right = case.marginals(scores.double())
        assert case.marginals(scores).dtype == torch.float32
        # kernels compute in float64; plain torch rounds log-weights of size `scale` a few times
        assert torch.allclose(case.marginals(scores).double(), right, rtol=0, atol=6e-8)
        assert torch.allclose(case.plain[1](scores).double(), right, rtol=0, atol=1e-6 + 3e-7 * scale)
        log_z = case.log_partition(scores.double())
        for function in (case.log_partition, case.plain[0]):
            assert torch.allclose(function(scores).double(), log_z, rtol=5e-7, atol=1e-6 * (1 + scale))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half(self, case: FamilyCase, dtype: torch.dtype) -> None:
        scores = case.scores(2).to(dtype).requires_grad_()
        wide = scores.detach().float()
        for function in (case.log_partition, case.marginals):
            assert function(scores).dtype == dtype
            assert torch.equal(function(scores), function(wide).to(dtype))
        case.marginals(scores)[0].square().sum().backward()
        assert scores.grad is not None and scores.grad.dtype == dtype
        assert case.sample(scores, (2,), None).dtype == dtype
        assert case.argmax is None or case.argmax(scores).dtype == dtype

    def test_vmap_is_loop(self, case: FamilyCase) -> None:
        scores = case.scores(4)
        functions = [case.log_partition, case.marginals, *([case.argmax] if case.argmax else [])]
        for function in functions:
            assert torch.allclose(torch.vmap(function)(scores), function(scores), atol=1e-13)
        gradient = torch.vmap(torch.func.grad(lambda x: case.marginals(x).square().sum()))(scores)
        free = scores.clone().requires_grad_()
        case.marginals(free).square().sum().backward()
        assert torch.allclose(gradient, free.grad, atol=1e-13)
        drawn = torch.vmap(lambda x: case.sample(x, (5,), None), randomness="different")(scores)
        assert bool((drawn.flatten(0, 1)[:, None] == case.vertices).flatten(2).all(-1).any(-1).all())

    def test_both_samplers(self, case: FamilyCase) -> None:
        """Chi-square against the enumerated law, alpha 1e-6 for each."""
        scores, number = case.scores(scale=1.5, seed=3), 20_000
        p = law(case, scores)[1]
        generator = torch.Generator().manual_seed(0)
        uniform = torch.rand(number, case.uniforms, dtype=torch.float64, generator=generator)
        for draws in (case.sample(scores, (number,), generator), case.plain_sample(scores, uniform)):
            same = draws.flatten(1) @ (2 * case.vertices.flatten(1) - 1).T == draws.flatten(1).sum(
                -1, True
            )
            which = same & (draws.flatten(1).sum(-1, True) == case.vertices.flatten(1).sum(-1))
            assert bool((which.sum(-1) == 1).all())
            if len(p) > 1:
                rare = p * number < 5
                counts, expected = which.sum(0), p * number
                if rare.any():
                    counts = torch.cat([counts[~rare], counts[rare].sum(0, True)])
                    expected = torch.cat([expected[~rare], expected[rare].sum(0, True)])
                assert stats.chisquare(counts.numpy(), expected.numpy()).pvalue > 1e-6

    def test_generators(self, case: FamilyCase) -> None:
        scores = case.scores(3)
        before = torch.get_rng_state()
        one = case.sample(scores, (4, 2), torch.Generator().manual_seed(5))
        two = case.sample(scores, (4, 2), torch.Generator().manual_seed(5))
        assert one.shape == (4, 2, 3, *case.event) and torch.equal(one, two)
        rng = ag.CounterRNG(7)
        assert torch.equal(case.sample(scores, (4,), rng), case.sample(scores, (4,), rng))
        assert torch.equal(torch.get_rng_state(), before)

    def test_nothing_allowed(self, case: FamilyCase) -> None:
        if case.always_possible:
            pytest.skip("something is always allowed")
        scores = torch.stack([case.scores(), torch.full(case.event, -math.inf, dtype=torch.float64)])
        scores = scores.requires_grad_()
        for log_partition in (case.log_partition, case.plain[0]):
            log_z = log_partition(scores)
            assert log_z[1] == -math.inf and log_z[0] == log_partition(scores[0])
            (first,) = torch.autograd.grad(log_z[0] + log_z[1], scores, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), scores)
            assert torch.equal(first[1], torch.zeros(case.event)) and bool(second.isfinite().all())
        for function in (case.marginals, case.argmax, lambda x: case.sample(x, (), None)):
            if function is not None:
                with pytest.raises(InputError, match=r"1 of 2 rows \(first: row 1\)"):
                    function(scores)
        functions = [case.marginals, lambda x: case.sample(x, (), ag.CounterRNG(0))]
        for function in [*functions, *([case.argmax] if case.argmax else [])]:
            result = torch.vmap(function)(scores.detach())
            assert bool(result[1].isnan().all()) and bool(result[0].isfinite().all())

    def test_refuses(self, case: FamilyCase) -> None:
        scores = case.scores()
        scores.view(-1)[0] = math.nan
        with pytest.raises(InputError, match="must not hold NaN"):
            case.log_partition(scores)
        with pytest.raises(TypeError, match="must be floating point"):
            case.marginals(torch.zeros(case.event, dtype=torch.int64))


def compiled_is_eager(case: FamilyCase, backend: str = "aot_eager") -> None:
    """Values and gradients under `torch.compile(fullgraph=True)`."""
    scores = case.scores(2).float()
    for function in (case.log_partition, case.marginals):
        a, b = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        eager, compiled = function(a), torch.compile(function, fullgraph=True, backend=backend)(b)
        assert torch.allclose(compiled, eager, atol=2e-6)  # float32 against float64 inside
        compiled.square().sum().backward()
        eager.square().sum().backward()
        assert torch.allclose(b.grad, a.grad, atol=1e-5)
    rng = ag.CounterRNG(3)
    drawn = torch.compile(lambda x: case.sample(x, (3,), rng), fullgraph=True, backend=backend)(scores)
    assert bool((drawn.flatten(0, 1)[:, None] == case.vertices).flatten(2).all(-1).any(-1).all())
    if case.argmax is not None:
        best = torch.compile(case.argmax, fullgraph=True, backend=backend)(scores)
        assert torch.equal(best, case.argmax(scores))
