"""The tables of Jang et al. and of the ReinMax paper: models against enumeration, smoke runs, columns."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import argrad as ag
from argrad.recipes import columns, reinmax_vae, sbn, vae
from argrad.recipes.bench import Cell, CellResult, Summary
from argrad.recipes.columns import WAYS, Layer
from argrad.recipes.likelihood import bernoulli_nll
from smoke_run import smoke

G = torch.Generator


def all_codes(layer: Layer) -> Tensor:
    """Every flat sample of a layer, shape `(codes, size)`."""
    if layer.classes == 2:
        return torch.tensor(list(itertools.product((0.0, 1.0), repeat=layer.variables)))
    rows = itertools.product(torch.eye(layer.classes), repeat=layer.variables)
    return torch.stack([torch.cat(row) for row in rows])


def log_probs(layer: Layer, scores: Tensor, codes: Tensor) -> Tensor:
    """By the definition of independent variables, shape `(codes, batch)`."""
    if layer.classes == 2:
        p = scores.sigmoid()
        return (codes[:, None] * p.log() + (1 - codes[:, None]) * (1 - p).log()).sum(-1)
    log_p = scores.unflatten(-1, (layer.variables, layer.classes)).log_softmax(-1).flatten(-2)
    return codes @ log_p.mT


LAYERS = [Layer(3, 2), Layer(2, 3)]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_kl_is_exact(layer: Layer) -> None:
    scores = torch.randn(4, layer.size, generator=G().manual_seed(0))
    codes = all_codes(layer)
    log_q = log_probs(layer, scores, codes)
    exact = (log_q.exp() * (log_q + layer.variables * math.log(layer.classes))).sum(0)
    torch.testing.assert_close(layer.kl_to_uniform(layer.law(scores)), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_vae_bound_estimates_what_it_says(layer: Layer) -> None:
    """Its first part is the ELBO; its second is the log-likelihood once all codes are in many samples."""
    torch.manual_seed(0)
    model = vae.Vae(layer, 6, None, torch.full((6,), 0.4))
    x = (torch.rand(2, 6, generator=G().manual_seed(1)) > 0.5).float()
    with torch.no_grad():
        codes = all_codes(layer)
        log_q = log_probs(layer, model.encode(x), codes)
        joint = -model.cost(codes[:, None].expand(-1, len(x), -1), x) - layer.variables * math.log(
            layer.classes
        )
        elbo = (log_q.exp() * (joint - log_q)).sum(0)
        evidence = joint.logsumexp(0)
    ours, multi = vae.bound(model, x, 40_000, G().manual_seed(2))
    torch.testing.assert_close(
        ours, elbo, rtol=0, atol=0.02
    )  # 40000 draws, deviation below 0.6: 5 sigma
    torch.testing.assert_close(multi, evidence, rtol=0, atol=0.02)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_sbn_bound_is_the_likelihood_for_many_samples(layer: Layer) -> None:
    torch.manual_seed(0)
    model = sbn.Sbn(layer, torch.full((8,), 0.4))
    pixels = (torch.rand(2, 8, generator=G().manual_seed(1)) > 0.5).float()
    with torch.no_grad():
        x, y = pixels.chunk(2, -1)
        codes = all_codes(layer)
        first = log_probs(layer, model.scores(x), codes)  # (codes, batch)
        second = log_probs(layer, model.second(codes), codes)  # (codes of h2, codes of h1)
        cost = model.cost(codes[:, None].expand(-1, len(y), -1), y)  # (codes of h2, batch)
        exact = (first[:, None] + second.mT[..., None] - cost).logsumexp((0, 1))
    ours = sbn.bound(model, pixels, 40_000, G().manual_seed(2))
    torch.testing.assert_close(ours, exact, rtol=0, atol=0.02)


def test_nested_estimators_give_the_gradient_of_the_sbn() -> None:
    """Exact inside exact is the gradient of the enumerated bound; leave-one-out twice agrees with it on average."""
    layer = Layer(2, 3)
    torch.manual_seed(0)
    model = sbn.Sbn(layer, torch.full((8,), 0.4))
    x, y = (torch.rand(2, 8, generator=G().manual_seed(1)) > 0.5).float().chunk(2, -1)

    def gradient(estimator: ag.Estimator, repeats: int) -> Tensor:
        way = columns.Way(lambda step: estimator)
        model.zero_grad()
        many = (x.repeat(repeats, 1), y.repeat(repeats, 1))
        sbn.expected_cost(model, (way, way), *many, 0, G().manual_seed(3)).mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    codes = all_codes(layer)
    first = log_probs(layer, model.scores(x), codes).exp()
    second = log_probs(layer, model.second(codes), codes).exp()
    bound = torch.einsum(
        "ab,ca,cb->b", first, second, model.cost(codes[:, None].expand(-1, len(y), -1), y)
    ).mean()
    model.zero_grad()
    bound.backward()
    exact = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradient(ag.Exact(), 1), exact, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(gradient(ag.LeaveOneOut(4), 20_000), exact, rtol=0, atol=0.01)


@pytest.mark.parametrize("scale", [1.0, 300.0])  # with large scores some codes are left out
def test_the_exact_column_is_the_exact_estimator(scale: float) -> None:
    layer = Layer(2, 3)
    torch.manual_seed(0)
    model = reinmax_vae.Vae(layer, 6, (5,)).double()
    x = torch.rand(4, 6, dtype=torch.float64, generator=G().manual_seed(1))
    scores = scale * model.encoder(x)
    ours = model.exact_cost(scores, x)
    theirs = ag.Exact()(lambda z: partial(model.cost, x=x)(layer.flat(z)), layer.law(scores))
    torch.testing.assert_close(ours, theirs)
    gradients = [
        torch.autograd.grad(value.sum(), [*model.parameters()], retain_graph=True)
        for value in (ours, theirs)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_claims_of_the_small_vae() -> None:
    values = {"ST Gumbel-softmax": 131.0, "ReinMax": 128.0, reinmax_vae.EXACT: 121.0}

    def claims() -> list[bool]:
        results = [
            CellResult(Cell("8x4", name), {"-ELBO": [value]}, 1.0, "-ELBO")
            for name, value in values.items()
        ]
        recipe = reinmax_vae.RECIPE
        summary = Summary(recipe, "default", recipe.config, "", [0], results, [])
        return [c.holds for c in reinmax_vae.claims(summary)]

    assert claims() == [True, True]
    values["ReinMax"] = 120.0
    assert claims() == [True, False]
    del values[reinmax_vae.EXACT], values["ST Gumbel-softmax"]
    assert claims() == []


def test_columns_that_list_all_values_are_left_out_where_these_are_too_many() -> None:
    few, many, bits = (
        set(columns.columns((), layer)) for layer in (Layer(3, 4), Layer(20, 10), Layer(200, 2))
    )
    assert few - many == set(columns.LISTED) and set(columns.BITS_ONLY) <= bits
    assert not bits & set(columns.LISTED)


def test_momentum_trains_too(tmp_path: Path) -> None:
    """By the other optimizer: better than a model that does not move."""

    def bound(rate: str) -> float:
        options = ("--columns", "ST", "--rows", "categorical", "--optimizer", "momentum")
        results, _ = smoke("vae", tmp_path / rate, *options, "--learning-rate", rate)
        return results["cells"][0]["mean"]

    assert bound("0.03") < bound("1e-12") - 0.1


@pytest.mark.parametrize("name", WAYS)
def test_every_column_trains_a_small_layer(name: str) -> None:
    """One step of each gives finite gradients for encoder and decoder."""
    layer = Layer(4, 2) if name in columns.BITS_ONLY else Layer(3, 4)
    torch.manual_seed(0)
    model = vae.Vae(layer, 6, None, torch.full((6,), 0.4))
    x = (torch.rand(5, 6, generator=G().manual_seed(1)) > 0.5).float()
    cost = WAYS[name](layer, 100).expected(
        partial(model.cost, x=x), layer, layer.law(model.encode(x)), 7, G()
    )
    assert cost.shape == (5,)
    cost.mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_unknown_columns_and_sizes_are_named() -> None:
    with pytest.raises(ag.InputError, match="there is no column 'LAX'; there are SF, DARN"):
        vae.cells(replace(vae.Config(), columns=("LAX",)))
    with pytest.raises(ag.InputError, match="there is no size '9x9'; there are 8x4"):
        reinmax_vae.cells(replace(reinmax_vae.Config(), sizes=("9x9",)))
    with pytest.raises(ag.InputError, match="there is no column 'x'; there are ST,"):
        reinmax_vae.cells(replace(reinmax_vae.Config(), columns=("x",)))


def test_arm_is_left_out_where_it_is_not_defined() -> None:
    names = {(c.row, c.column) for c in vae.cells(vae.Config())}
    assert ("bernoulli", "ARM") in names and ("categorical", "ARM") not in names
    assert ("bernoulli", "UnorderedSet(4)") not in names


@pytest.mark.parametrize("name", ["vae", "sbn", "reinmax-vae"])
def test_smoke(name: str, tmp_path: Path) -> None:
    smoke(name, tmp_path)


# ---- the likelihood of the pixels ------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 64), (2, 3, 785), (2, 1, 7000)], ids=str)
def test_pixel_likelihood_is_the_cross_entropy(shape: tuple[int, ...]) -> None:
    g = G().manual_seed(0)
    logits = 20 * torch.randn(shape, generator=g)
    x = torch.rand(shape[-2:], generator=g)
    exact = binary_cross_entropy_with_logits(
        logits.double(), x.double().expand(shape), reduction="none"
    ).sum(-1)
    for dtype in (torch.float32, torch.float64):
        leaf = logits.to(dtype, copy=True).requires_grad_()
        value = bernoulli_nll(leaf, x.to(dtype))
        value.sum().backward()
        assert leaf.grad is not None
        rounding = 1e-6 if dtype == torch.float32 else 1e-14
        torch.testing.assert_close(value.double(), exact, rtol=rounding, atol=0)
        slope = logits.to(dtype).sigmoid() - x.to(dtype)
        torch.testing.assert_close(leaf.grad, slope, rtol=0, atol=rounding)


def test_pixel_likelihood_is_differentiable_twice_and_keeps_nan() -> None:
    x = torch.rand(2, 3, dtype=torch.float64, generator=G().manual_seed(0))
    leaf = torch.randn(4, 2, 3, dtype=torch.float64, generator=G().manual_seed(1)).requires_grad_()
    torch.autograd.gradcheck(lambda z: bernoulli_nll(z, x), leaf)
    torch.autograd.gradgradcheck(lambda z: bernoulli_nll(z, x), leaf)
    assert bernoulli_nll(torch.tensor([[0.0, math.nan]]), torch.zeros(1, 2)).isnan().all()


def test_pixel_likelihood_in_transforms_and_other_types() -> None:
    x = (torch.rand(2, 5, generator=G().manual_seed(0)) > 0.5).float()
    logits = torch.randn(3, 2, 5, generator=G().manual_seed(1))
    expected = bernoulli_nll(logits, x)
    torch.testing.assert_close(torch.func.vmap(lambda z: bernoulli_nll(z, x))(logits), expected)
    half = bernoulli_nll(logits.bfloat16(), x.bfloat16())
    torch.testing.assert_close(half.float(), expected, rtol=0.02, atol=0.02)
    assert bernoulli_nll(logits[:0], x).shape == (0, 2)
