"""Long runs, many threads, forked workers, deterministic algorithms, and numbers that must not change."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from benchmarks.memory import status
from torch import Tensor

import argrad as ag
import golden


@pytest.mark.parametrize("name", golden.CASES)
def test_golden_values(name: str) -> None:
    """`python tests/golden.py --write` after a change on purpose, and a line under Numerics in the changelog."""
    wanted = json.loads(golden.FILE.read_text(encoding="utf-8"))[name]
    got = golden.CASES[name]().detach().flatten().tolist()
    # float64; other versions of libm differ in the last bits, float32 noise (widened) in its own
    assert got == pytest.approx(wanted, rel=2e-6 if "float32" in name else 1e-9, abs=1e-12)


def test_every_golden_value_has_a_case() -> None:
    assert set(json.loads(golden.FILE.read_text(encoding="utf-8"))) == set(golden.CASES)


# ---- long runs -----------------------------------------------------------------------------------------


def training_step(scores: Tensor, step: int) -> None:
    rng = ag.CounterRNG(0).fold(step)
    q = ag.Gibbs(ag.Subset(2), scores)
    loss = ag.LeaveOneOut(2)(lambda z: z[..., 0] * 2 - z[..., 1], q, generator=rng).mean()
    soft = ag.gumbel_softmax(scores, 0.5, hard=True, generator=rng)
    tree = ag.SpanningTree().relax(scores[:3, :3], 0.5)
    (loss + soft.square().sum() + tree.sum()).backward()
    scores.grad = None
    ag.GumbelTopKStream(4, step).update(0, scores.detach().reshape(-1)).result()


def grows(steps: int) -> tuple[int, float]:
    """Tensors and megabytes that are there after as many steps more."""
    scores = torch.randn(4, 5, requires_grad=True)
    for step in range(50):  # caches fill, numba loads
        training_step(scores, step)
    gc.collect()
    before, memory = len([o for o in gc.get_objects() if type(o) is Tensor]), status("VmRSS")
    for step in range(steps):
        training_step(scores, step)
    gc.collect()
    return len([o for o in gc.get_objects() if type(o) is Tensor]) - before, status("VmRSS") - memory


def test_nothing_is_left_behind() -> None:
    tensors, _ = grows(100)
    assert tensors <= 0


@pytest.mark.slow
def test_memory_stays_over_10_000_steps() -> None:
    tensors, megabytes = grows(10_000)
    assert tensors <= 0
    assert megabytes < 8  # of the allocator; a leak of one small tensor a step would be 10 and more


# ---- threads and forked processes ------------------------------------------------------------------


def draws(seed: int) -> list[Tensor]:
    """Kernels of every kind, from one seed."""
    rng, x = ag.CounterRNG(seed), golden.scores(6, 5)
    return [
        rng.gumbel(30, 40),
        ag.gumbel_softmax(x, 0.5, generator=rng),
        ag.gumbel_topk(x, 3, generator=rng).perturbed,
        ag.Subset(2).sample(x, (4,), generator=rng),
        ag.Arborescence().sample(x[:4, :4], (5,), generator=rng),
        ag.Permutation().argmax(rng.gumbel(4, 4)),
        ag.SumOfGamma(3).sample((50,), generator=rng),
        ag.AliasTable([1.0, 2.0, 3.0]).sample((100,), generator=rng),
        ag.linear_gumbel_topk(x, golden.scores(300, 5), 4, generator=rng).perturbed,
        ag.GumbelTopKStream(5, seed).update(0, golden.scores(2000)).result().perturbed,
    ]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_threads_draw_what_one_thread_draws(threads: Callable) -> None:
    """One `CounterRNG` for all, kernels that release the interpreter, each with threads of its own."""
    wanted = [draws(seed) for seed in range(4)]
    with threads(2), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(draws, [seed for seed in range(4) for _ in range(4)]))
    for i, got in enumerate(found):
        assert same(got, wanted[i // 4]), f"seed {i // 4}"


def test_threads_have_generators_of_their_own() -> None:
    """Eight threads on torch generators with one seed: all the same, none disturbed by another."""
    found: dict[int, Tensor] = {}

    def work(i: int) -> None:
        g = torch.Generator().manual_seed(5)
        found[i] = torch.stack([ag.random.gumbel((20,), generator=g) for _ in range(50)])

    crew = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert all(torch.equal(found[i], found[0]) for i in range(8))


class Noisy(torch.utils.data.Dataset):
    """An item that is drawn where it is asked for: in a forked worker."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> list[Tensor]:
        return draws(i)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_workers_draw_what_the_parent_draws(threads: Callable) -> None:
    with threads(2):
        wanted = [draws(i) for i in range(6)]  # threads and kernels are in use before the fork
        loader = torch.utils.data.DataLoader(
            Noisy(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60
        )
        found = list(loader)
    assert len(found) == 6
    assert all(same(got, want) for got, want in zip(found, wanted, strict=True))


class Global(Noisy):
    """Torch's own generator, which a loader seeds differently in each worker."""

    def __getitem__(self, i: int) -> Tensor:
        return ag.random.gumbel((4,))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_workers_do_not_repeat_each_other() -> None:
    loader = torch.utils.data.DataLoader(Global(), batch_size=None, num_workers=2, timeout=60)
    found = torch.stack(list(loader))
    assert len(found.unique(dim=0)) == 6


# ---- determinism -----------------------------------------------------------------------------------


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("name", golden.CASES)
def test_deterministic_algorithms(name: str) -> None:
    first, second = (golden.CASES[name]() for _ in range(2))
    assert torch.equal(first, second)
