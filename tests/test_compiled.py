"""Compiled gradients: what eager autograd gives, from the same random numbers; what is read afresh, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from benchmarks.lines.three_bits import METHODS, product_cost
from torch import Tensor, nn

import argrad as ag

BITS = torch.tensor([0.3, -0.5, 0.8])


def eager(loss: Any, wrt: Sequence[Tensor], *args: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    value = loss(*args)
    return value.detach(), torch.autograd.grad(value, wrt, allow_unused=True)


def agree(a: tuple, b: tuple) -> None:
    for x, y in zip([a[0], *a[1]], [b[0], *b[1]], strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert not x.requires_grad
            torch.testing.assert_close(x, y)


class Case:
    """A loss with random numbers, an argument and a tensor that it does not use; compiled once for all tests."""

    def __init__(self) -> None:
        self.scores, self.unused = BITS.clone().requires_grad_(), torch.ones(2, requires_grad=True)
        self.wrt = [self.scores, self.unused]
        self.target = torch.tensor([[0.2, 0.6, 0.4]])
        self.step = ag.compile_gradient(self.loss, self.wrt, self.target)

    def loss(self, target: Tensor) -> Tensor:
        return ag.LeaveOneOut(4)(
            lambda z: ((z - target[0]) ** 2).sum(-1), ag.Gibbs(ag.Bits(), self.scores)
        )


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


def test_gives_what_autograd_gives_from_the_same_random_numbers(case: Case) -> None:
    other = torch.randn(3, 1).mT  # has other strides
    for target in (case.target, torch.randn(1, 3), other, torch.zeros(1, 3, requires_grad=True)):
        torch.manual_seed(3)
        found = case.step(target)
        torch.manual_seed(3)
        agree(found, eager(case.loss, case.wrt, target))
    assert found[1][1] is None


def test_draws_anew_and_sees_changes_in_place(case: Case) -> None:
    first, second = (case.step(case.target)[1][0] for _ in range(2))
    assert not torch.equal(first, second)
    with torch.no_grad():
        case.scores.add_(1.0)
    torch.manual_seed(5)
    found = case.step(case.target)
    torch.manual_seed(5)
    agree(found, eager(case.loss, case.wrt, case.target))


def test_trains(case: Case) -> None:
    """Bits that are to be (0, 1, 0)."""
    optimizer, target = torch.optim.SGD([case.scores], 0.5), torch.tensor([[0.0, 1.0, 0.0]])
    for _ in range(300):
        case.scores.grad = case.step(target)[1][0]
        optimizer.step()
    assert bool(((case.scores > 2) == target[0].bool()).all())
    assert bool((case.scores.abs() > 2).all())


def test_refuses_what_it_was_not_compiled_for(case: Case) -> None:
    with pytest.raises(
        ag.InputError,
        match=r"like the example, torch.float32 of shape \(1, 3\) on cpu; got float32\[3\]",
    ):
        case.step(torch.zeros(3))
    with pytest.raises(ag.InputError, match=r"got float64\[1, 3\]"):
        case.step(torch.zeros(1, 3).double())
    with pytest.raises(ag.InputTypeError, match="takes 1 tensors, as its examples; got 0"):
        case.step()


def test_refuses_bad_arguments() -> None:
    x = torch.zeros(2)
    with pytest.raises(ag.InputTypeError, match="tensors that require grad"):
        ag.compile_gradient(lambda: x.sum(), [x])
    with pytest.raises(ag.InputTypeError, match="tensors that require grad"):
        ag.compile_gradient(lambda: x.sum(), x.clone().requires_grad_())  # type: ignore[arg-type]
    w = torch.zeros(2, requires_grad=True)
    losses: list[Callable[[], Any]] = [lambda: 2 * w, lambda: x.sum(), lambda: 1.0]
    for loss in losses:
        with pytest.raises(ag.InputError, match="must return a scalar tensor that depends on `wrt`"):
            ag.compile_gradient(loss, [w])
    with pytest.raises(ag.InputTypeError, match="must be tensors; got float"):
        ag.compile_gradient(lambda a: (a * w).sum(), [w], 1.0)  # type: ignore[arg-type]
    with pytest.raises(ag.InputError, match="a tensor on the meta device"):
        ag.compile_gradient(lambda a: (a * w).sum(), [w], x.to("meta"))
    with pytest.raises(ag.InputTypeError, match="must not be tensors of `wrt`"):
        ag.compile_gradient(lambda a: (a * w).sum(), [w], w)


def test_results_that_share_memory_and_views_of_each_other() -> None:
    """Gradients G and its transpose, three times, in one buffer: each is right, and each can be scaled by itself."""
    w, v, u = (torch.randn(3, 3, requires_grad=True) for _ in range(3))
    x = torch.randn(3, 3)

    def loss(x: Tensor) -> Tensor:
        return ((w + v.mT + u) @ x).square().sum()

    step = ag.compile_gradient(loss, [w, v, u], x)
    found = step(x)
    agree(found, eager(loss, [w, v, u], x))
    for gradient in found[1]:
        gradient *= 2.0
    wanted = eager(loss, [w, v, u], x)
    agree(found, (wanted[0], tuple(2.0 * g for g in wanted[1])))


def test_an_example_may_be_any_tensor() -> None:
    """One with the memory of a parameter, and twice the same; arguments may be views that negate."""
    w, data = torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.ones(3)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return (w * (x - data)).sum() + (w.square() * y.exp()).sum()

    shared = w.detach()
    step = ag.compile_gradient(loss, [w], shared, shared)
    x, y = torch.arange(3.0), torch.zeros(3)
    agree(step(x, y), eager(loss, [w], x, y))
    agree(step(x, x), eager(loss, [w], x, x))
    negated = torch._neg_view(x)  # pyright: ignore[reportPrivateImportUsage]
    agree(step(negated, y), eager(loss, [w], -x, y))
    with pytest.raises(ag.InputError, match=r"like the example, .*; got list"):
        step([0.0, 1.0, 2.0], y)


def test_draws_of_other_types_stay_what_they_are() -> None:
    """Bits are drawn before the call, as int64; a loss may draw small integers of its own."""
    w = torch.ones(64, requires_grad=True)

    def loss() -> Tensor:
        return (w * torch.randint(1, 5, (64,), generator=None, dtype=torch.int32)).sum()

    _, (drawn,) = ag.compile_gradient(loss, [w])()
    assert set(drawn.tolist()) == {1.0, 2.0, 3.0, 4.0}


def test_says_that_torch_does_not_compile() -> None:
    w = torch.zeros(2, requires_grad=True)
    with (
        torch.compiler.set_stance("force_eager"),
        pytest.raises(ag.UnsupportedError, match="switched off"),
    ):
        ag.compile_gradient(lambda: w.sum(), [w])


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_kind_of_estimator(name: str) -> None:
    """Three calls in a row, from one seed, with the estimator's own parameters and state."""

    def calls(compiled: bool) -> tuple[list, dict[str, Tensor]]:
        scores, estimator = BITS.clone().requires_grad_(), METHODS[name][0]()
        module = estimator if isinstance(estimator, nn.Module) else nn.Identity()
        start = {key: value.clone() for key, value in module.state_dict().items()}
        wrt = [scores, *module.parameters()]

        def loss() -> Tensor:
            return estimator(product_cost, ag.Gibbs(ag.Bits(), scores))

        step = ag.compile_gradient(loss, wrt) if compiled else lambda: eager(loss, wrt)
        module.load_state_dict(start)  # compiling calls it, too
        torch.manual_seed(0)
        return [step() for _ in range(3)], module.state_dict()

    (found, state), (wanted, other) = calls(True), calls(False)
    for a, b in zip(found, wanted, strict=True):
        agree(a, b)
    for key, value in other.items():
        torch.testing.assert_close(state[key], value)


@pytest.mark.slow
def test_a_network() -> None:
    """Products of matrices, whose kernels write into outputs; a batch of choices; parameters of both sides."""
    torch.manual_seed(0)
    encoder, decoder = nn.Linear(6, 8), nn.Linear(8, 6)
    wrt = [*encoder.parameters(), *decoder.parameters()]

    def loss(x: Tensor) -> Tensor:
        q = ag.Gibbs(ag.OneHot(), encoder(x).unflatten(-1, (2, 4))).independent(1)
        return ag.ReinMax()(lambda z: ((decoder(z.flatten(-2)) - x) ** 2).sum(-1), q).mean()

    step = ag.compile_gradient(loss, wrt, torch.randn(5, 6))
    loss_in_halves = torch.compile(loss, backend="aot_eager")  # eager code draws choices in another way
    for seed in (1, 2):
        x = torch.randn(5, 6)
        torch.manual_seed(seed)
        found = step(x)
        torch.manual_seed(seed)
        agree(found, eager(loss_in_halves, wrt, x))
