"""Inside everything torch does to functions: compile, export, vmap, grad, jvp, threads, forks, copies."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import argrad as ag
from argrad.testing import assert_frequencies

Function = Callable[..., Tensor]


def relaxed(kind) -> Function:
    def density(x: Tensor, generator=None) -> Tensor:
        q = kind(0.7, logits=x)
        y = q.rsample(generator=generator)
        return y + q.log_prob(y)[..., None]

    return density


def observed(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:-1], dtype=torch.int64, device=x.device)


# Differentiable functions of logits `(..., n)` with a tensor of the same batch as result.
SMOOTH: dict[str, Function] = {
    "gumbel_softmax": lambda x, generator=None: ag.gumbel_softmax(x, 0.7, generator=generator),
    "topk.log_prob": lambda x, generator=None: ag.gumbel_topk(x, 2, generator=generator).log_prob,
    "given_max": lambda x, generator=None: ag.gumbel_given_max(x, x.sum(-1), generator=generator),
    "truncated": lambda x, generator=None: ag.truncated_gumbel(
        x, x.mean(-1, keepdim=True), generator=generator
    ),
    "posterior": lambda x, generator=None: ag.gumbel_posterior(x, observed(x), generator=generator),
    "RelaxedOneHot": relaxed(ag.RelaxedOneHot),
    "RelaxedBits": relaxed(ag.RelaxedBits),
}
HARD: dict[str, Function] = {
    "straight_through": lambda x, generator=None: ag.gumbel_softmax(x, hard=True, generator=generator),
    "gumbel_max": lambda x, generator=None: ag.gumbel_max(x, generator=generator),
    "topk.indices": lambda x, generator=None: ag.gumbel_topk(x, 2, generator=generator).indices,
    "topk.perturbed": lambda x, generator=None: ag.gumbel_topk(x, 2, generator=generator).perturbed,
    "GumbelSoftmax": lambda x, generator=None: ag.GumbelSoftmax(0.5, logits=x).rsample(
        generator=generator
    ),
}
ALL = {**SMOOTH, **HARD}
smooth = pytest.mark.parametrize("function", SMOOTH.values(), ids=SMOOTH)
every = pytest.mark.parametrize("function", ALL.values(), ids=ALL)
NOISES = [
    ag.Gumbel(),
    ag.Logistic(),
    ag.Normal(),
    ag.NegExponential(),
    ag.SumOfGamma(2, 3),
    ag.NoNoise(),
]


def fixed(function: Function, seed: int = 0) -> Function:
    """The same noise at each call."""
    return lambda x: function(x, generator=ag.CounterRNG(seed))


def normal(*shape: int, requires_grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_(requires_grad)


# ---- derivatives ---------------------------------------------------------------------------------


@smooth
def test_first_and_second_derivatives(function: Function) -> None:
    """Through the kernel, with reverse and forward mode."""
    x = normal(2, 4, requires_grad=True)
    assert gradcheck(fixed(function), x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(fixed(function), x)


@smooth
def test_torch_func_agrees_with_autograd(function: Function) -> None:
    x, f = normal(3, 4), fixed(function)
    expected = torch.autograd.functional.jacobian(f, x)
    torch.testing.assert_close(jacrev(f)(x), expected)
    torch.testing.assert_close(jacfwd(f)(x), expected)
    tangent = normal(3, 4).flip(0)
    torch.testing.assert_close(
        jvp(f, (x,), (tangent,))[1], torch.tensordot(expected, tangent, dims=([-2, -1], [0, 1]))
    )


@smooth
def test_second_order_torch_func(function: Function) -> None:
    x = normal(4)

    def cost(x: Tensor) -> Tensor:
        return fixed(function)(x).sin().sum()

    torch.testing.assert_close(hessian(cost)(x), torch.autograd.functional.hessian(cost, x))


@every
def test_gradients_under_vmap_in_either_order(function: Function) -> None:
    """`requires_grad` is False inside `grad(vmap)`: nothing may decide by it."""
    x = normal(3, 4)
    if not function(x).is_floating_point():
        assert function(x).shape[0] == 3
        return

    def cost(row: Tensor) -> Tensor:
        y = fixed(function)(row)
        return (y * torch.arange(1.0, 1 + y.numel(), dtype=y.dtype)).sum()

    inside = vmap(grad(cost))(x)
    outside = grad(lambda x: vmap(cost)(x).sum())(x)
    leaf = x.clone().requires_grad_()
    expected = torch.autograd.grad(sum(cost(row) for row in leaf), leaf)[0]
    torch.testing.assert_close(inside, expected)
    torch.testing.assert_close(outside, expected)


def test_hard_samples_have_the_soft_gradient_under_grad() -> None:
    x, weight = normal(3, 4), normal(3, 4)
    soft, hard = (
        grad(lambda x, h=h: (ag.gumbel_softmax(x, 0.5, h, generator=ag.CounterRNG(0)) * weight).sum())(
            x
        )
        for h in (False, True)
    )
    torch.testing.assert_close(soft, hard)


def test_temperature_under_torch_func() -> None:
    x, tau = normal(3, 4), torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)

    def cost(tau: Tensor) -> Tensor:
        return ag.gumbel_softmax(x, tau, generator=ag.CounterRNG(0)).square().sum()

    leaf = tau.clone().requires_grad_()
    torch.testing.assert_close(grad(cost)(tau), torch.autograd.grad(cost(leaf), leaf)[0])


# ---- vmap ----------------------------------------------------------------------------------------


@every
def test_vmap_is_a_loop(function: Function) -> None:
    x = normal(5, 3, 4)
    mapped = vmap(fixed(function))(x)
    torch.testing.assert_close(mapped, torch.stack([fixed(function)(row) for row in x]))


@every
def test_vmap_with_different_randomness_is_a_loop_with_one_generator(function: Function) -> None:
    x = normal(5, 3, 4)
    one, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    mapped = vmap(lambda row: function(row, generator=one), randomness="different")(x)
    if function in (SMOOTH["posterior"],):  # two draws a call: a vmap takes all first ones first
        assert mapped.shape == x.shape
        return
    if function is HARD["gumbel_max"]:  # one uniform a row outside of a transform, a race inside
        assert mapped.shape == (5, 3)
        return
    torch.testing.assert_close(mapped, torch.stack([function(row, generator=other) for row in x]))


@pytest.mark.statistical
def test_randomness_different_and_same() -> None:
    x = torch.zeros(20_000, 4)
    different = vmap(lambda row: ag.gumbel_max(row), randomness="different")(x)
    assert_frequencies(torch.bincount(different, minlength=4), torch.full((4,), 0.25))
    same = vmap(lambda row: ag.gumbel_max(row), randomness="same")(x)
    assert (same == same[0]).all()
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda row: ag.gumbel_max(row))(x)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_noise_under_vmap(noise: ag.Noise) -> None:
    draw = vmap(lambda x: noise.like(x), randomness="different")(torch.zeros(6, 3, 5))
    assert draw.shape == (6, 3, 5)
    assert draw.isfinite().all()
    assert noise == ag.NoNoise() or draw.unique().numel() == draw.numel()


# ---- compile -------------------------------------------------------------------------------------


@every
def test_one_graph(function: Function, fresh_compiler) -> None:
    """No graph breaks; the same numbers as eager code for the same counters."""
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    x = normal(3, 4, requires_grad=True)
    for seed in (0, 1, 2**63, -1):  # a new seed is not a new graph
        y = compiled(x, ag.CounterRNG(seed))
        expected = function(x, ag.CounterRNG(seed))
        torch.testing.assert_close(y, expected)
        if y.requires_grad:
            weight = torch.randn_like(y)
            a, b = (torch.autograd.grad((z * weight).sum(), x)[0] for z in (y, expected))
            torch.testing.assert_close(a, b)
    assert compiled(x.detach()).shape == function(x.detach()).shape
    assert (
        torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    )  # with, without noise; no gradient


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_noise_compiles(noise: ag.Noise, fresh_compiler) -> None:
    compiled = torch.compile(lambda x: noise.like(x), fullgraph=True, backend="aot_eager")
    a, b = compiled(torch.zeros(3, 5)), compiled(torch.zeros(3, 5))
    assert a.shape == (3, 5)
    assert noise == ag.NoNoise() or not torch.equal(a, b)


@pytest.mark.parametrize("shape", [(300, 7), (40, 30)], ids=str)
@pytest.mark.parametrize("kind", ["gumbel", "exponential", "logistic", "uniform", "normal"])
def test_compiled_noise_of_many_numbers_is_the_eager_noise(
    kind: str, shape: tuple[int, int], fresh_compiler
) -> None:
    """Compiled code calls the kernel then, one operator a draw."""
    draw = getattr(ag.random, kind)
    compiled = torch.compile(
        lambda rng: draw(shape, generator=rng), fullgraph=True, backend="aot_eager"
    )
    for rng in (ag.CounterRNG(3), ag.CounterRNG(4).shift(rows=5, columns=2)):
        assert torch.equal(compiled(rng), draw(shape, generator=rng))
    fresh = torch.compile(lambda: draw(shape), fullgraph=True, backend="aot_eager")
    assert not torch.equal(fresh(), fresh())


def test_compiled_vmap_gives_many_numbers_of_their_own_to_each_instance(fresh_compiler) -> None:
    def draw(x: Tensor) -> Tensor:
        return x + ag.random.gumbel((64, 32), dtype=x.dtype)

    x = torch.zeros(3, 1, 1)
    mapped = torch.compile(vmap(draw, randomness="different"), fullgraph=True, backend="aot_eager")(x)
    assert mapped.shape == (3, 64, 32)
    assert len(mapped.unique()) > 0.999 * mapped.numel()
    slope = torch.compile(torch.func.grad(lambda x: draw(x).sum()), fullgraph=True, backend="aot_eager")
    assert slope(torch.zeros(1, 1)).item() == 64 * 32


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_sums_of_gammas_are_the_eager_ones(backend: str, fresh_compiler) -> None:
    noise = ag.SumOfGamma(3)
    compiled = torch.compile(noise.like, fullgraph=True, backend=backend)
    x = torch.zeros(4, 50, dtype=torch.float64)
    for seed in (0, 1):
        rng = ag.CounterRNG(seed, 2, 3)
        torch.testing.assert_close(compiled(x, rng), noise.like(x, rng))
    # a compiled draw a term would take a minute to trace; one for all takes as many operations as four draws
    graphs = torch._dynamo.utils.counters["stats"]
    assert graphs["calls_captured"] < 700


def test_annealing_does_not_compile_again(fresh_compiler) -> None:
    layer = ag.nn.GumbelSoftmax(ag.schedules.Linear(1.0, 0.1, 20), hard=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 4)
    for step in range(20):
        z = compiled(x, generator=ag.CounterRNG(step))
        assert torch.equal(z, layer(x, generator=ag.CounterRNG(step)))
        layer.step()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    soft = torch.compile(ag.nn.GumbelSoftmax(layer.schedule), fullgraph=True, backend="aot_eager")
    for _ in range(3):
        soft._orig_mod.step()
    expected = ag.gumbel_softmax(x, layer.schedule(3), generator=ag.CounterRNG(0))
    torch.testing.assert_close(soft(x, generator=ag.CounterRNG(0)), expected)


@pytest.mark.parametrize("tau", ["float", "tensor", "learnable"])
def test_temperatures_compile(tau: str, fresh_compiler) -> None:
    compiled = torch.compile(ag.gumbel_softmax, fullgraph=True, backend="aot_eager")
    x, rng = torch.randn(3, 4), ag.CounterRNG(0)
    for value in (1.0, 0.7, 0.5, 0.3):
        if tau == "learnable":
            t = torch.tensor(value, requires_grad=True)
        else:
            t = value if tau == "float" else torch.full((3,), value)
        torch.testing.assert_close(
            compiled(x, t, generator=rng), ag.gumbel_softmax(x, t, generator=rng)
        )


def test_other_options_compile(fresh_compiler) -> None:
    def f(x: Tensor, mask: Tensor, k: int) -> Tensor:
        return ag.gumbel_topk(x, k, dim=0, mask=mask, generator=ag.CounterRNG(1).fold(k)).perturbed

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
    for n, k in ((6, 2), (9, 3)):
        x = torch.randn(n, 3)
        mask = torch.rand(n, 3) < 0.9
        mask[:k] = True
        torch.testing.assert_close(compiled(x, mask, k), f(x, mask, k))


def test_double_backward_of_a_graph_made_of_plain_operations(fresh_compiler) -> None:
    """Compiled code cannot be differentiated twice by torch; `make_fx` shows that ours could."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x = normal(3, 4)
    graph = make_fx(
        grad(lambda x: ag.gumbel_softmax(x, 0.5, generator=ag.CounterRNG(0)).square().sum())
    )(x)
    expected = grad(lambda x: ag.gumbel_softmax(x, 0.5, generator=ag.CounterRNG(0)).square().sum())(x)
    torch.testing.assert_close(graph(x), expected)


def test_a_generator_outside_of_one_graph(fresh_compiler) -> None:
    """torch cannot put a `torch.Generator` into a graph; with graph breaks allowed it works, and is used."""
    compiled = torch.compile(lambda x, g: ag.gumbel_softmax(x, generator=g) + 0, backend="aot_eager")
    x, before = torch.zeros(3, 4), torch.get_rng_state()
    a, b = (compiled(x, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(a, b)
    assert torch.equal(torch.get_rng_state(), before)


def test_inductor(fresh_compiler) -> None:
    """Real code generation: integers that wrap around, full tails, fresh noise at each call."""

    def f(x: Tensor, rng: ag.CounterRNG) -> tuple[Tensor, Tensor, Tensor]:
        constant = ag.random.uniform(
            x.shape, generator=ag.CounterRNG(4)
        )  # its integers are known to C++
        rare = (ag.random.exponential((1000, 4000)) < 1e-6).sum()
        return ag.gumbel_softmax(x, 0.5, generator=rng), constant, rare

    compiled = torch.compile(f, fullgraph=True)
    x, hits = torch.randn(6, 33), []
    for step in range(5):
        rng = ag.CounterRNG(7, row=3).fold(step)
        y, constant, rare = compiled(x, rng)
        expected = f(x, rng)
        torch.testing.assert_close(y, expected[0], rtol=1e-5, atol=1e-6)  # another logarithm
        assert torch.equal(constant, expected[1])
        hits.append(int(rare))
    assert len(set(hits)) > 1  # 5 x 4e6 draws below 1e-6
    low, high = stats.poisson.cdf(sum(hits), 20), stats.poisson.sf(sum(hits) - 1, 20)
    assert min(low, high) > 5e-7, hits


def test_export() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ag.gumbel_softmax(x, 0.5, hard=True)

    program = torch.export.export(Model(), (torch.randn(3, 4),)).module()
    x = torch.zeros(3, 4)
    draws = torch.stack([program(x) for _ in range(50)])
    assert torch.equal(draws.sum(-1), torch.ones(50, 3))
    assert draws.argmax(-1).unique().numel() == 4  # fresh noise at each call


def test_fake_tensors_and_meta() -> None:
    with torch._subclasses.FakeTensorMode():
        assert ag.gumbel_softmax(torch.zeros(2, 3)).shape == (2, 3)
        assert ag.gumbel_topk(torch.zeros(2, 3), 2).kappa.shape == (2,)
    for function in ALL.values():
        meta = torch.zeros(2, 3, device="meta")
        assert function(meta).device.type == "meta"


def test_another_default_device_does_not_matter() -> None:
    """`torch.set_default_device("cuda")` and a tensor on the CPU; here with meta as the default."""
    x, cpu = torch.randn(2, 3), torch.device("cpu")
    with torch.device("meta"):
        for function in ALL.values():
            for generator in (None, ag.CounterRNG(0)):
                assert function(x, generator=generator).device == cpu
        mapped = vmap(lambda row: ag.gumbel_softmax(row), randomness="different")(x)
        assert mapped.device == cpu
        for noise in NOISES:
            assert noise.like(x).device == cpu
            assert noise.sample((2,)).device == cpu
        layer = ag.nn.GumbelSoftmax(ag.schedules.Linear())
        assert layer.steps.is_meta
    layer.load_state_dict(ag.nn.GumbelSoftmax().state_dict(), assign=True)
    assert layer(x).device == cpu


# ---- processes, threads, copies ------------------------------------------------------------------


class Draws(torch.utils.data.Dataset):
    """Draws in whatever process the loader puts it."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        rng = ag.CounterRNG(0).shift(rows=index)
        large = ag.gumbel_softmax(
            torch.zeros(300, 700), generator=rng.fold(index)
        )  # wakes the thread pool
        return (
            ag.gumbel_max(torch.zeros(1, 1000), generator=rng)[0],
            large.sum(),
            int(ag.gumbel_max(torch.zeros(1000))),
        )


def test_loader_workers(threads) -> None:
    """A fork after the thread pool was made: the child makes its own; counters do not care who draws."""
    with threads(2):
        expected = [Draws()[i][0] for i in range(8)]
        loader = torch.utils.data.DataLoader(
            Draws(), batch_size=2, num_workers=2, multiprocessing_context="fork"
        )
        batches = list(loader)
    assert torch.equal(torch.cat([b[0] for b in batches]), torch.stack(expected))
    assert torch.cat([b[2] for b in batches]).unique().numel() > 4  # workers have different seeds


def test_threads_do_not_disturb_each_other(threads) -> None:
    x = torch.randn(400, 500)

    def work(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.stack([ag.gumbel_softmax(x, 0.5, generator=generator) for _ in range(3)])

    expected = [work(i) for i in range(6)]
    with threads(2), ThreadPoolExecutor(6) as pool:
        assert all(map(torch.equal, pool.map(work, range(6)), expected))


@pytest.mark.parametrize(
    "part",
    [ag.CounterRNG(3, 4, 5), ag.Gumbel(), ag.SumOfGamma(3), ag.schedules.Exponential()],
    ids=repr,
)
def test_parts_are_values(part: object) -> None:
    assert pickle.loads(pickle.dumps(part)) == copy.deepcopy(part) == part


def test_results_pickle() -> None:
    top = ag.gumbel_topk(torch.randn(2, 5), 3)
    for a, b in zip(pickle.loads(pickle.dumps(top)), top, strict=True):
        assert torch.equal(a, b)


def test_checkpointing_draws_the_same_noise_again() -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(3, 4, requires_grad=True)

    def f(x: Tensor) -> Tensor:
        return ag.gumbel_softmax(x, 0.5).square()

    torch.manual_seed(1)
    expected = torch.autograd.grad(f(x).sum(), x)[0]
    torch.manual_seed(1)
    again = torch.autograd.grad(checkpoint(f, x, use_reentrant=False).sum(), x)[0]
    assert torch.equal(again, expected)


def test_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = torch.randn(3, 4) @ torch.randn(4, 5)
        assert x.dtype == torch.bfloat16
        assert ag.gumbel_softmax(x, 0.5).dtype == torch.bfloat16


def test_a_training_loop_sharpens_the_right_item() -> None:
    logits = torch.zeros(16, 5, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.2)
    reward = torch.tensor([0.0, 1.0, 3.0, 2.0, 0.5])
    for _ in range(60):
        optimizer.zero_grad()
        (-(ag.gumbel_softmax(logits, 0.7, hard=True) * reward).sum()).backward()
        optimizer.step()
    assert (logits.argmax(-1) == 2).all()
    assert math.isfinite(logits.abs().max().item())
