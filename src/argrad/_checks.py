"""Every input check, and so every error sentence, in one place.

A sentence has three parts: what must hold, what came, what to do. `call(argument=...)` names the
function and argument the way the user typed them.

Checks of type, shape and dtype always run. Checks that must read tensor values (NaN, rows with
nothing to choose) run on the CPU, where they are cheap, and elsewhere only inside `debug()`, because
reading a value waits for the device. Under `torch.compile` and `torch.func` transforms values
cannot be read; results for invalid values are then NaN, never a plausible number.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TypeGuard

import torch
from torch import Tensor
from torch.autograd import forward_ad

from argrad._errors import InputError, InputTypeError

_debug: ContextVar[bool] = ContextVar("argrad_debug", default=False)


@contextlib.contextmanager
def debug(enabled: bool = True) -> Iterator[None]:
    """Check tensor values on every device, at the price of waiting for the device.

    Examples:
        >>> import torch, argrad as ag
        >>> with ag.debug():
        ...     z = ag.gumbel_softmax(torch.zeros(2, 3))
    """
    token = _debug.set(enabled)
    try:
        yield
    finally:
        _debug.reset(token)


def is_transformed() -> bool:
    """Under `torch.compile`, `torch.func`, forward AD or a dispatch mode: plain torch operations only."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0  # fake tensors, `make_fx`, counters of operations
        or torch._C._functorch.maybe_current_level() is not None  # pyright: ignore[reportAttributeAccessIssue]
        or forward_ad._current_level >= 0
    )


def can_read(*tensors: Tensor) -> bool:
    """Whether the values of these tensors may be looked at now."""
    if is_transformed():
        return False
    return all(t.is_cpu or (_debug.get() and not t.is_meta) for t in tensors)


def all_finite(x: Tensor) -> bool:
    """Whether no entry is NaN or infinite; for small tensors the price is that of one sum."""
    # a finite sum has finite terms; an infinite one may be an overflow
    return math.isfinite(x.detach().sum().item()) or bool(torch.isfinite(x).all())


def describe(value: object) -> str:
    """`float32[8, 10], from -3 to 2, 1 NaN` for a tensor, `repr` for anything else."""
    if not isinstance(value, Tensor):
        return repr(value)
    if value.dim() == 0 and can_read(value):
        return str(value.item())
    kind = str(value.dtype).removeprefix("torch.")
    text = f"{kind}[{', '.join(map(str, value.shape))}]"
    if value.numel() == 0 or not can_read(value) or value.dtype == torch.bool or value.is_complex():
        return text
    nan = int(torch.isnan(value).sum())
    rest = value[~torch.isnan(value)]
    if rest.numel():
        text += f", from {rest.min().item():.4g} to {rest.max().item():.4g}"
    return text + (f", {nan} NaN" if nan else "")


def fail(call: str, argument: str, rule: str, got: object, advice: str) -> InputError:
    """Build (not raise) the standard sentence; `got` is the value itself, or words if it is a string."""
    words = got if isinstance(got, str) else describe(got)
    return InputError(f"`{call}({argument}=...)` {rule}; got {words}. {advice}".rstrip())


def check_floating(call: str, name: str, value: object) -> None:
    """A tensor of floating dtype, or a sentence."""
    if not isinstance(value, Tensor):
        raise InputTypeError(
            f"`{call}({name}=...)` must be a tensor; got {type(value).__name__}. "
            f"Wrap it in `torch.tensor(...)` or `torch.as_tensor(...)`."
        )
    if not value.is_floating_point():
        raise InputTypeError(
            f"`{call}({name}=...)` must be floating point; got {describe(value)}. "
            f"Call `.float()` if these are meant as real-valued {name}."
        )


def check_event(call: str, name: str, value: Tensor, event_dims: int = 1) -> None:
    """Enough dimensions, and something to choose from."""
    if value.dim() < event_dims:
        raise fail(
            call,
            name,
            f"must have at least {event_dims} dimension{'s' if event_dims > 1 else ''}",
            f"a tensor of shape {tuple(value.shape)}",
            "The last ones hold what is chosen, those before are the batch.",
        )
    if 0 in value.shape[value.dim() - event_dims :]:
        raise nothing_offered(call, name, value.shape)


def nothing_offered(call: str, name: str, shape: torch.Size) -> InputError:
    """The sentence for an event of size 0."""
    advice = "Nothing can be chosen from an empty set."
    return fail(call, name, "must offer at least one item to choose", f"shape {tuple(shape)}", advice)


def _is_integer(value: object) -> TypeGuard[int]:
    """An int, or what numpy and torch pass for one; True and False are not numbers here."""
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, torch.SymInt, numbers.Integral))


def check_dim(call: str, dim: object, ndim: int) -> int:
    """`dim` as a non-negative int."""
    if not _is_integer(dim) or not -ndim <= dim < ndim:
        raise fail(
            call,
            "dim",
            f"must be an integer from {-ndim} to {ndim - 1}",
            describe(dim),
            "It names the dimension that holds the items.",
        )
    return int(dim) % ndim


def check_scores(call: str, name: str, value: Tensor) -> None:
    """No NaN and no +inf; `-inf` is legal and means "never chosen"."""
    if value.numel() == 0 or not can_read(value):
        return
    # One pass: the maximum is NaN if any value is NaN, +inf if any is +inf.
    peak = value.detach().amax().item()
    if not (peak < math.inf):
        raise bad_values(call, name, value)


def bad_values(call: str, name: str, value: Tensor) -> InputError:
    """The sentence for NaN or +inf, with the first place."""
    bad = torch.isnan(value) | (value == math.inf)
    first = tuple(int(i) for i in bad.nonzero()[0])
    return fail(
        call,
        name,
        "must not hold NaN or +inf",
        value,
        f"The first is at index {first} ({value[first].item()}). "
        "-inf is allowed and means probability 0; look for an overflow or 0/0 upstream.",
    )


def fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a tensor of this shape broadcasts to the wanted one."""
    try:
        return torch.broadcast_shapes(shape, wanted) == torch.Size(wanted)
    except RuntimeError:
        return False


def check_finite(call: str, name: str, value: Tensor) -> None:
    """No NaN and no infinity."""
    if value.numel() and can_read(value) and not all_finite(value):
        raise fail(call, name, "must be finite", value, "Look for an overflow or 0/0 upstream.")


def check_no_nan(call: str, name: str, value: Tensor) -> None:
    """Infinities are fine."""
    if value.numel() and can_read(value) and bool(torch.isnan(value).any()):
        raise fail(call, name, "must not hold NaN", value, "Look for 0/0 upstream.")


def check_no_overflow(call: str, name: str, given: Tensor, result: Tensor) -> None:
    """No NaN came out of numbers that were themselves in order: then they were too large."""
    if result.numel() and can_read(result) and bool(torch.isnan(result.detach()).any()):
        rule = "must not be so large that sums of them overflow"
        raise fail(
            call, name, rule, given, "Scale them, or subtract a constant where only differences count."
        )


def check_mask(call: str, mask: object, shape: torch.Size) -> None:
    """A bool tensor that broadcasts to `shape`."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise InputTypeError(
            f"`{call}(mask=...)` must be a bool tensor, True = allowed; got "
            f"{describe(mask) if isinstance(mask, Tensor) else type(mask).__name__}. "
            "Call `.bool()` if 1 means allowed."
        )
    if not fits(mask.shape, shape):
        raise fail(
            call,
            "mask",
            f"must broadcast to the scores' shape {tuple(shape)}",
            f"shape {tuple(mask.shape)}",
            "Add the missing dimensions with `mask[..., None, :]` or `expand`.",
        )


def nothing_allowed(
    call: str, empty: Tensor, advice: str = "Allow at least one item a row"
) -> InputError:
    """The sentence for rows in which nothing can be chosen; `empty` is True there."""
    rows = empty.reshape(-1)
    count, first = int(rows.sum()), int(rows.nonzero()[0])
    where = (
        f"{count} of {rows.numel()} rows (first: row {first})" if rows.numel() > 1 else "the only row"
    )
    return InputError(
        f"`{call}`: `mask` or -inf scores remove every choice in {where}, so nothing can be chosen "
        f"there. {advice}, or drop those rows."
    )


def too_few_allowed(call: str, k: int, valid: Tensor) -> InputError:
    """The sentence for rows that offer fewer than k items; `valid` is `(*batch, k)`."""
    counts = valid.reshape(-1, k).sum(-1)
    first = int((counts < k).nonzero()[0])
    return InputError(
        f"`{call}(k=...)` must not exceed the number of allowed items; got k={k}, but row {first} "
        f"allows {int(counts[first])}. Lower k, or allow more items with `mask`."
    )


def check_square(call: str, name: str, value: Tensor) -> None:
    """The last two dimensions have the same size."""
    if value.shape[-1] != value.shape[-2]:
        raise fail(
            call,
            name,
            "must end in a square matrix, entry [head, child] for each arc",
            f"shape {tuple(value.shape)}",
            "Give all pairs of nodes; the diagonal is ignored, and -inf forbids an arc.",
        )


def check_square_event(call: str, event_shape: torch.Size, advice: str) -> None:
    """One item's scores are a square matrix."""
    if event_shape[-1] != event_shape[-2]:
        raise fail(call, "scores", "must end in a square matrix", f"shape {tuple(event_shape)}", advice)


def no_tree_allowed(call: str, empty: Tensor) -> InputError:
    """The sentence for graphs that no tree spans; `empty` is True there."""
    rows = empty.reshape(-1)
    count, first = int(rows.sum()), int(rows.nonzero()[0])
    where = (
        f"{count} of {rows.numel()} graphs (first: graph {first})" if rows.numel() > 1 else "the graph"
    )
    return InputError(
        f"`{call}`: `mask` or -inf scores leave no tree that reaches every node in {where}. "
        "Allow arcs that connect all nodes to the root, or drop those graphs."
    )


def check_log_probs(call: str, log_p: object, *, drawn: bool = False) -> None:
    """Log-probabilities `(*batch, k)`, not above 0 but for rounding; none is `-inf` if all were `drawn`."""
    check_floating(call, "log_p", log_p)
    assert isinstance(log_p, Tensor)
    check_event(call, "log_p", log_p)
    if not log_p.numel() or not can_read(log_p):
        return
    if not bool((log_p <= 0.01).all()) or (drawn and not all_finite(log_p)):
        rule = "must be log-probabilities, at most 0" + (" and finite" if drawn else "")
        advice = "Call `log_softmax(-1)` on logits" + (
            ", and leave out what cannot be drawn." * drawn or "."
        )
        raise fail(call, "log_p", rule, log_p, advice)


def check_any_allowed(call: str, scores: Tensor) -> None:
    """Each row of masked scores `(*batch, n)` has an item above -inf."""
    if scores.numel() == 0 or not can_read(scores):
        return
    empty = scores.detach().amax(-1) == -math.inf
    if bool(empty.any()):
        raise nothing_allowed(call, empty)


def check_possible(call: str, log_partition: Tensor) -> None:
    """The set that masked scores leave is not empty, so that its members have a probability."""
    if log_partition.numel() and can_read(log_partition):
        empty = log_partition.detach() == -math.inf
        if bool(empty.any()):
            raise nothing_allowed(call, empty, "Allow at least one object an item")


def check_quotient(call: str, scores: Tensor, tau: float | Tensor, event_dims: int = 1) -> None:
    """The best of each item's `scores / tau` does not overflow; others may (-inf: never chosen)."""
    if (isinstance(tau, float) and tau >= 1) or not scores.numel() or not can_read(scores):
        return
    peak = scores.detach().flatten(scores.dim() - event_dims).amax(-1)
    least = tau.detach().amin() if isinstance(tau, Tensor) else tau
    if bool(((peak / least).isinf() & peak.isfinite()).any()):
        rule = f"must not be so small that scores such as {peak[peak.isfinite()].abs().max().item():.3g} overflow"
        raise fail(call, "tau", rule, tau, TAU_ADVICE)


_LARGEST_COUNT = 2**63 - 1  # what a size can be


def check_count(call: str, name: str, value: object, low: int, high: int | None, advice: str) -> int:
    """An int from `low` to `high`."""
    most = _LARGEST_COUNT if high is None else high
    if not _is_integer(value) or value < low or (not isinstance(value, torch.SymInt) and value > most):
        rule = f"must be an integer of at least {low}"
        if high is not None or (_is_integer(value) and value >= low):
            rule = f"must be an integer from {low} to {most}"
        raise fail(call, name, rule, describe(value), advice)
    return value if isinstance(value, torch.SymInt) else int(value)


def check_shape(call: str, name: str, shape: object) -> torch.Size:
    """A `torch.Size` of sizes that are not negative."""
    try:
        sizes = torch.Size(shape)  # type: ignore[arg-type]
    except (TypeError, RuntimeError, OverflowError):
        sizes = None
    if sizes is None or any(not isinstance(n, torch.SymInt) and n < 0 for n in sizes):
        advice = "Write `(3,)` for three, `()` for one without a dimension of its own."
        raise fail(call, name, "must be a tuple of sizes that are not negative", repr(shape), advice)
    return sizes


def refuse_meta(call: str, name: str, *tensors: Tensor) -> None:
    """A sentence where the answer's very shape, or the next step, depends on values that are not there."""
    if any(t.is_meta for t in tensors):
        raise fail(
            call,
            name,
            "must have values",
            "a tensor on the meta device",
            "What happens next depends on them; run it on the CPU or an accelerator.",
        )


def check_positive(call: str, name: str, value: object, advice: str = "") -> None:
    """A positive and finite number; a tensor without dimensions passes for one."""
    if isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point():
        if not can_read(value):
            return
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, numbers.Real)):
        raise InputTypeError(
            f"`{call}({name}=...)` must be a positive number; got {type(value).__name__}. {advice}".rstrip()
        )
    if not 0 < float(value) < math.inf:
        raise fail(call, name, "must be positive and finite", value, advice)


TAU_ADVICE = "For a hard sample use `gumbel_max` or `hard=True`; anneal to about 0.1, not to 0."


def check_tau(
    call: str, tau: object, batch_shape: torch.Size, event_dims: int = 1, *, any_positive: bool = False
) -> float | Tensor:
    """A positive float, or a positive tensor ready to broadcast against scores.

    A tensor may have any shape that broadcasts over the batch, or the scores' number of dimensions
    with size 1 in place of the event (what `keepdim=True` returns). `any_positive` lets numbers pass that
    have no inverse in float32.
    """
    if isinstance(tau, Tensor):
        return _check_tau_tensor(call, tau, batch_shape, event_dims, any_positive)
    if isinstance(tau, bool) or not isinstance(tau, (int, float, numbers.Real)):
        raise InputTypeError(
            f"`{call}(tau=...)` must be a positive number or tensor; got {type(tau).__name__}. "
            "Write `tau=0.5`, or a tensor for one temperature a row."
        )
    number = float(tau)
    is_positive = 0 < number < math.inf
    if not is_positive or not (any_positive or _LEAST_TAU <= number <= _LARGEST_TAU):
        raise _bad_tau(call, tau, is_positive)
    return number


# what has an inverse in float32, in which half precision is computed too
_LEAST_TAU, _LARGEST_TAU = torch.finfo(torch.float32).smallest_normal, torch.finfo(torch.float32).max


def _bad_tau(call: str, tau: object, is_positive: bool) -> InputError:
    got = tau if isinstance(tau, Tensor) else float(tau)  # type: ignore[arg-type]
    if not is_positive:
        return fail(call, "tau", "must be positive and finite", got, TAU_ADVICE)
    rule = f"must be from {_LEAST_TAU:.2g} to {_LARGEST_TAU:.2g}, so that dividing by it is possible"
    return fail(call, "tau", rule, got, TAU_ADVICE)


def _check_tau_tensor(
    call: str, tau: Tensor, batch_shape: torch.Size, event_dims: int, any_positive: bool
) -> float | Tensor:
    if tau.is_complex():
        raise InputTypeError(f"`{call}(tau=...)` must be real; got {describe(tau)}. Take `.real`.")
    if not tau.is_floating_point():
        tau = tau.to(torch.get_default_dtype())
    if can_read(tau) and tau.numel():
        low, high = (t.item() for t in torch.aminmax(tau.detach()))
        is_positive = low > 0 and high < math.inf
        if not is_positive or not (any_positive or (low >= _LEAST_TAU and high <= _LARGEST_TAU)):
            raise _bad_tau(call, tau, is_positive)
    if tau.dim() == 0:
        return tau
    event = (1,) * event_dims
    if tau.dim() == len(batch_shape) + event_dims and tau.shape[-event_dims:] == event:
        tau = tau.reshape(tau.shape[:-event_dims])
    if not fits(tau.shape, batch_shape):
        raise fail(
            call,
            "tau",
            f"must be a number or broadcast over the batch shape {tuple(batch_shape)}",
            f"shape {tuple(tau.shape)}",
            "One temperature a row: a tensor of the batch's shape.",
        )
    return tau.reshape(tau.shape + event)


def check_labels(call: str, name: str, labels: object, logits: Tensor) -> None:
    """Integers from 0 to `classes` - 1, one for each row of logits `(*batch, classes)`."""
    classes = logits.shape[-1]
    if not isinstance(labels, Tensor) or not is_integral(labels):
        raise InputTypeError(
            f"`{call}({name}=...)` must be a tensor of integers; got "
            f"{describe(labels) if isinstance(labels, Tensor) else type(labels).__name__}. "
            "Call `.long()` if these are class numbers, `.argmax(-1)` if they are one-hot."
        )
    if labels.shape != logits.shape[:-1]:
        rule = f"must have one label for each row of the logits, shape {tuple(logits.shape[:-1])}"
        raise fail(
            call, name, rule, f"shape {tuple(labels.shape)}", "The last dimension holds the classes."
        )
    if can_read(labels) and labels.numel():
        low, high = (int(x) for x in torch.aminmax(labels))
        if low < 0 or high >= classes:
            advice = "Drop rows without a label (such as -100) first."
            raise fail(call, name, f"must be class numbers from 0 to {classes - 1}", labels, advice)


def is_integral(value: Tensor) -> bool:
    """Whole numbers; bool is not."""
    return not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)


def check_size(call: str, k: object, scores: Tensor, at_most: bool = False) -> int | Tensor:
    """How many of the n items to choose: an int, or an int64 tensor of shape `(*batch, 1)`."""
    n, batch = scores.shape[-1], scores.shape[:-1]
    if not isinstance(k, Tensor):
        advice = f"It is the number of items to choose out of {n}."
        return check_count(call, "k", k, 0, None if at_most else n, advice)
    if k.is_floating_point() or k.is_complex() or k.dtype == torch.bool:
        raise InputTypeError(
            f"`{call}(k=...)` must be an int or an integer tensor; got {describe(k)}. "
            "Call `.long()` if these are whole numbers."
        )
    k = _over_batch(call, "k", k, batch, "One k a row: a tensor of the batch's shape.")
    if can_read(k) and k.numel() and int(k.amin()) < 0:
        raise negative_size(call, k)
    return k.to(scores.device, torch.int64).expand(*batch, 1)


def negative_size(call: str, k: Tensor) -> InputError:
    """The sentence for a k below 0."""
    return fail(call, "k", "must not be negative", k, "It is the number of items to choose.")


def check_allowed(call: str, k: int | Tensor, scores: Tensor) -> None:
    """Each row of `(*batch, n)` has at least k items above -inf; k as `check_size` returns it."""
    if scores.numel() == 0 or not can_read(scores):
        return
    allowed = (scores.detach() > -math.inf).sum(-1, keepdim=True)
    short = (allowed < k).reshape(-1)
    if bool(short.any()):
        row = int(short.nonzero()[0])
        most = k if isinstance(k, int) else int(k.expand(allowed.shape).reshape(-1)[row])
        raise InputError(
            f"`{call}(k=...)` must not exceed the number of allowed items; got k={most}, but row {row} "
            f"allows {int(allowed.reshape(-1)[row])}. Lower k, or allow more items."
        )


def check_alpha(call: str, alpha: object, scores: Tensor) -> float | Tensor:
    """A float of at least 1, or a tensor of such ready to broadcast against scores `(*batch, n)`."""
    if isinstance(alpha, Tensor):
        check_floating(call, "alpha", alpha)
        low, high = (1.0, 1.0) if not (can_read(alpha) and alpha.numel()) else _range(alpha)
    elif isinstance(alpha, (int, float)) and not isinstance(alpha, bool):
        low = high = alpha
    else:
        raise InputTypeError(
            f"`{call}(alpha=...)` must be a float or a tensor; got {type(alpha).__name__}."
        )
    if not (low >= 1 and high < math.inf):
        raise bad_alpha(call, alpha)
    if not isinstance(alpha, Tensor):
        return float(alpha)
    advice = "One alpha a row: a tensor of the batch's shape."
    return _over_batch(call, "alpha", alpha, scores.shape[:-1], advice).to(scores)


def bad_alpha(call: str, alpha: object) -> InputError:
    """The sentence for an order below 1, NaN or infinite."""
    advice = "1 is softmax, 1.5 is entmax, 2 is sparsemax; larger is sparser."
    return fail(call, "alpha", "must be at least 1 and finite", alpha, advice)


def _range(value: Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(value.detach())
    return low.item(), high.item()


def _over_batch(call: str, name: str, value: Tensor, batch: torch.Size, advice: str) -> Tensor:
    """`value` with a last dimension of size 1, if it broadcasts over the batch shape."""
    if value.dim() == len(batch) + 1 and value.shape[-1] == 1:
        value = value[..., 0]
    if not fits(value.shape, batch):
        rule = f"must be a number or broadcast over the batch shape {tuple(batch)}"
        raise fail(call, name, rule, f"shape {tuple(value.shape)}", advice)
    return value[..., None]
