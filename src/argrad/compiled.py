r"""A loss and its gradient as compiled code with next to nothing around it.

A step on a few bits takes some microseconds, and `torch.compile` spends several times that around it: guards, the
checks of its runtime, the backward engine. Where shapes stay as they are all that can be left out: value and gradient
are traced as one graph, and from then on its code is called with the tensors it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from argrad._checks import describe, fail, refuse_meta
from argrad._errors import InputTypeError, UnsupportedError

__all__ = ["compile_gradient"]

_CALL = "compile_gradient"
_DRAW = torch.ops.aten.randint.low_generator  # the one way in which argrad asks torch for random bits
_BITS = ("cpu", torch.int64)


def compile_gradient(
    loss: Callable[..., Tensor], wrt: Sequence[Tensor], *args: Tensor
) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]:
    r"""Compile $\ell(x)$ and $\nabla_\theta \ell(x)$ for tensors of these shapes, to be called at once.

    What `torch.compile` makes of it, without guards and without autograd at run time: for small problems several
    times faster. Nothing is checked but the arguments, so

    - tensors that `loss` closes over (and those in `wrt`) are read where they are now: changes in place are seen, such
      as an optimizer's steps; assigning others is not;
    - everything else (numbers, temperatures, the training mode) stays as it was when this was called;
    - random numbers are new at each call, from torch's own generator;
    - buffers that `loss` changes in place are changed; what it assigns (as `AdaptiveImle` does) is not.

    Args:
        loss: a function of tensors, with a scalar as its value; one graph, which `torch.compile(fullgraph=True)` takes.
            It is called twice here, too.
        wrt: the tensors to differentiate for, which require grad.
        args: examples of what `loss` will be called with.

    Returns:
        A function of as many tensors as there were examples, of their shapes and dtypes: `(value, gradients)`, one
        gradient for each of `wrt`, None where the loss does not depend on it.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(3, requires_grad=True)
        >>> def loss(target):
        ...     return ag.Exact()(lambda z: ((z - target) ** 2).sum(-1), ag.Gibbs(ag.Bits(), scores))
        >>> step = ag.compile_gradient(loss, [scores], torch.ones(3))  # doctest: +SKIP
        >>> value, (gradient,) = step(torch.ones(3))  # doctest: +SKIP
        >>> gradient  # doctest: +SKIP
        tensor([-0.2500, -0.2500, -0.2500])
    """
    _check(wrt, args)
    wrt = list(wrt)
    args = tuple(x.detach().clone() for x in args)  # memory of their own, by which they are known again
    with torch.enable_grad():
        _check_value(loss(*args))  # what is wrong with the loss itself is said before torch compiles it

    def step(*args: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            value = loss(*args)
            found = torch.autograd.grad(value, wrt, allow_unused=True)
        return value.detach(), *found

    step.__code__ = step.__code__.replace()  # its own: torch counts how often it compiles one
    graph, results = _trace(step, args)
    return _Step(graph, args, results)


class _Graph:
    """Compiled code, the tensors it was first called with, and the random bits that are drawn before."""

    def __init__(self) -> None:
        self.run: Callable[[list[Any]], Sequence[Any]]
        self.inputs: list[Any] = []
        self.outputs: Sequence[Any] = ()
        self.draws: list[tuple[Any, ...]] = []

    def compile(self, module: torch.fx.GraphModule, examples: Sequence[Any], **options: Any) -> Any:
        """For inductor: compile the graph, with its random bits as inputs (an operator call in it is slower)."""
        from torch._inductor.compile_fx import compile_fx_inner

        examples = [*examples, *self._take_draws(module)]
        run = compile_fx_inner(module, examples, **options)

        def first(inputs: list[Any]) -> Sequence[Any]:
            # without history: the kernels write into what they are given
            self.inputs = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
            inputs.clear()
            self.run, self.outputs = run, run([*self.inputs, *self.draw()])
            return self.outputs

        first._boxed_call = True  # type: ignore[attr-defined]
        return first

    def draw(self) -> list[Tensor]:
        return [torch.randint(*draw) for draw in self.draws]

    def _take_draws(self, module: torch.fx.GraphModule) -> list[Any]:
        """Turn the graph's draws into inputs behind the others, and return what they look like."""
        nodes = list(module.graph.nodes)
        body = next(node for node in nodes if node.op != "placeholder")
        found = []
        for node in [n for n in nodes if n.target is _DRAW]:
            like = node.meta["val"]
            if node.kwargs.get("generator") is None and (like.device.type, like.dtype) == _BITS:
                with module.graph.inserting_before(body):
                    bits = module.graph.placeholder(f"bits_{len(found)}")
                bits.meta = dict(node.meta)
                node.replace_all_uses_with(bits)
                found.append(like)
                self.draws.append(node.args)
        module.graph.eliminate_dead_code()
        module.recompile()
        return found


def _trace(step: Callable[..., Any], args: tuple[Tensor, ...]) -> tuple[_Graph, tuple[Any, ...]]:
    """Compile a function and call it once."""
    from torch._dynamo import config as dynamo
    from torch._functorch import config as functorch
    from torch._inductor.compile_fx import compile_fx

    if not hasattr(dynamo, "trace_autograd_ops"):
        raise UnsupportedError(
            f"`{_CALL}` needs a torch that compiles `torch.autograd.grad`; this is {torch.__version__}. "
            "Use `torch.compile(torch.func.grad_and_value(...))`, or a newer torch."
        )
    graph = _Graph()

    def backend(module: torch.fx.GraphModule, examples: list[Any]) -> Any:
        return compile_fx(module, examples, inner_compile=graph.compile)  # type: ignore[arg-type]

    compiled = torch.compile(step, fullgraph=True, dynamic=False, backend=backend)
    with (
        torch.no_grad(),
        dynamo.patch(trace_autograd_ops=True),
        functorch.patch(enable_autograd_cache=False),  # which would skip what is recorded here
    ):
        results = compiled(*args)
    if not hasattr(graph, "run"):
        raise UnsupportedError(
            f"`{_CALL}`: `torch.compile` is switched off. Call the loss and `backward()`."
        )
    return graph, results


class _Step:
    """What `compile_gradient` returns."""

    def __init__(self, graph: _Graph, args: tuple[Tensor, ...], results: tuple[Any, ...]) -> None:
        self._graph, self._inputs = graph, graph.inputs
        self._args: list[Any] = [
            (_place(x, graph.inputs), x.shape, x.stride(), x.dtype, x.device) for x in args
        ]
        # for each result where it is, and whether one before has its memory; None for None
        self._outputs: list[Any] = []
        seen = set()
        for x in results:
            place = None if x is None else _place(x, graph.outputs)
            if place is None and x is not None:
                raise UnsupportedError(
                    f"`{_CALL}`: a result of the loss is one of the tensors it was given. Return a new one."
                )
            memory = None if x is None else x.untyped_storage().data_ptr()
            self._outputs.append(None if x is None else (place, memory in seen))
            seen.add(memory)
        graph.outputs = ()
        for place, *_ in self._args:
            if place is not None:
                self._inputs[place] = None  # no need to keep the examples

    def __call__(self, *args: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The value and the gradients."""
        if len(args) != len(self._args):
            raise InputTypeError(
                f"a step of `{_CALL}` takes {len(self._args)} tensors, as its examples; got {len(args)}."
            )
        inputs = self._inputs.copy()
        for x, (place, *like) in zip(args, self._args, strict=True):
            x = _alike(x, *like)
            if place is not None:
                inputs[place] = x
        inputs += self._graph.draw()
        outputs = self._graph.run(inputs)
        found: list[Any] = [None if x is None else outputs[x[0]] for x in self._outputs]
        for i, x in enumerate(self._outputs):
            if x is not None and x[1]:  # gradients are scaled and clipped in place
                found[i] = found[i].clone()
        return found[0], tuple(found[1:])


def _alike(
    x: Tensor, shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The tensor without its history, laid out as the example was."""
    if not (isinstance(x, Tensor) and x.shape == shape and x.dtype is dtype and x.device == device):
        rule = f"must be like the example, {dtype} of shape {tuple(shape)} on {device}"
        got = f"{describe(x)} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
        raise fail(_CALL, "args", rule, got, "Compile another step for these.")
    x = (x.detach() if x.requires_grad else x).resolve_conj().resolve_neg()
    if x.layout is torch.strided and x.stride() == stride:
        return x
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(x.to_dense())


def _place(x: Tensor, among: Sequence[Any]) -> int | None:
    """Where the same view of the same memory is in a list of tensors; None if it is not there."""
    for i, y in enumerate(among):
        same = isinstance(y, Tensor) and y.dtype == x.dtype
        if (
            same
            and (y.shape, y.stride()) == (x.shape, x.stride())
            and (y is x or (x.numel() and y.data_ptr() == x.data_ptr()))
        ):
            return i
    return None


def _check_value(value: object) -> None:
    if isinstance(value, Tensor):
        got = f"shape {tuple(value.shape)}" + ("" if value.requires_grad else " without a gradient")
    else:
        got = describe(value)
    if not isinstance(value, Tensor) or value.dim() or not value.requires_grad:
        rule = "must return a scalar tensor that depends on `wrt`"
        raise fail(_CALL, "loss", rule, got, "Call `.mean()` or `.sum()`.")


def _check(wrt: object, args: tuple[Any, ...]) -> None:
    ready = isinstance(wrt, Sequence) and all(isinstance(x, Tensor) and x.requires_grad for x in wrt)
    if not ready or not wrt:
        raise InputTypeError(
            f"`{_CALL}(wrt=...)` must be a list of tensors that require grad; got {type(wrt).__name__} of "
            f"{[describe(x) for x in wrt] if isinstance(wrt, Sequence) else describe(wrt)}. "
            "Call `.requires_grad_()`, or write `list(model.parameters())`."
        )
    if not all(isinstance(x, Tensor) for x in args):
        raise InputTypeError(
            f"`{_CALL}(args=...)` must be tensors; got {', '.join(type(x).__name__ for x in args)}. "
            "Close over everything else."
        )
    refuse_meta(_CALL, "args", *wrt, *args)  # type: ignore[arg-type]
    if any(x is w for x in args for w in wrt):  # type: ignore[attr-defined]
        raise InputTypeError(
            f"`{_CALL}(args=...)` must not be tensors of `wrt`, which are read where they are. Close over them."
        )
