"""Was one call answered as it should be: by a right answer or by a sentence."""

from __future__ import annotations

import dataclasses
import enum
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import argrad as ag
from fuzz.inputs import Draw

Target = Callable[[Draw], Any]


class Verdict(enum.StrEnum):
    """What became of a call; the last ones are failures."""

    ANSWER = "answer"
    SENTENCE = "sentence"
    NAN = "silent NaN"
    ERROR = "error that is not a sentence"
    OTHER = "another answer for another layout or device"


GOOD = (Verdict.ANSWER, Verdict.SENTENCE)


@dataclasses.dataclass
class Finding:
    """A verdict and what led to it."""

    verdict: Verdict
    text: str = ""


def judge(
    target: Target, seed: random.Random, *, twin: str = "", also: tuple[type[Exception], ...] = ()
) -> Finding:
    """Make the call; with `twin`, once more with plain strides ("layout") or on no device at all ("meta").

    `also`: errors that count as sentences.
    """
    state = seed.getstate() if twin else None
    finding, out, draw = _attempt(target, Draw(seed), also)
    if finding.verdict not in GOOD or not twin:
        return finding
    seed.setstate(state)
    options = {"plain": True} if twin == "layout" else {"device": "meta"}
    again, other, _ = _attempt(target, Draw(seed, **options), also)
    if again.verdict not in GOOD:
        again.text = f"{twin}: {again.text}"
        return again
    if finding.verdict is Verdict.ANSWER and again.verdict is Verdict.ANSWER:
        difference = compare(out, other, values=twin == "layout")
        if difference:
            return Finding(Verdict.OTHER, f"{twin}: {difference}\n{_described(draw)}")
    elif twin == "layout" and finding.verdict is not again.verdict:
        return Finding(Verdict.OTHER, f"{twin}: {finding} and {again}\n{_described(draw)}")
    return finding


def _attempt(
    target: Target, draw: Draw, also: tuple[type[Exception], ...]
) -> tuple[Finding, Any, Draw]:
    torch.default_generator.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = target(draw)
            place = first_nan(out)
            if not place:
                place = first_nan(_gradients(out, draw.leaves))
                place = place and f"gradient of {place}"
    except (ag.ArgradError, *also) as error:
        return Finding(Verdict.SENTENCE, str(error)), None, draw
    except Exception as error:  # whatever else comes is what we look for
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})\n{_described(draw)}"
        return Finding(Verdict.ERROR, text), None, draw
    if place:
        return Finding(Verdict.NAN, f"in {place}\n{_described(draw)}"), out, draw
    return Finding(Verdict.ANSWER), out, draw


def _described(draw: Draw) -> str:
    return "\n".join(
        f"    {x.dtype}{list(x.shape)} strides {x.stride()} {x.flatten()[:8].tolist()}"
        for x in draw.made
    )


def _gradients(out: Any, leaves: list[Tensor]) -> dict[str, Tensor]:
    ends = [t for _, t in tensors(out) if t.requires_grad]
    if not ends or not leaves:
        return {}
    ones = [torch.ones_like(t) for t in ends]
    found = torch.autograd.grad(ends, leaves, ones, allow_unused=True)
    return {f"leaf {i}": g for i, g in enumerate(found) if g is not None}


def tensors(value: Any, name: str = "result") -> Iterator[tuple[str, Tensor]]:
    """All tensors inside, with where they are; floats count too."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, float):
        yield name, torch.tensor(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from tensors(inner, f"{name}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", range(len(value)))
        for key, inner in zip(names, value, strict=True):
            yield from tensors(inner, f"{name}.{key}")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors(getattr(value, field.name), f"{name}.{field.name}")


def first_nan(value: Any) -> str:
    """Where, or nothing."""
    for name, t in tensors(value):
        if not t.is_meta and (t.is_floating_point() or t.is_complex()) and bool(torch.isnan(t).any()):
            return name
    return ""


def compare(a: Any, b: Any, *, values: bool) -> str:
    """How two answers differ, or nothing: in shape and dtype, and in numbers beyond rounding."""
    ours, theirs = list(tensors(a)), list(tensors(b))
    if len(ours) != len(theirs):
        return f"{len(ours)} and {len(theirs)} tensors"
    for (name, x), (_, y) in zip(ours, theirs, strict=True):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            return f"{name}: {x.dtype}{list(x.shape)} and {y.dtype}{list(y.shape)}"
        if values and not _close(x, y):
            return f"{name}: {x.tolist()} and {y.tolist()}"
    return ""


# Sums in another order. Where scores are large, their noise and differences keep fewer digits, so the size of the
# whole answer counts, not that of an entry.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}


def _close(x: Tensor, y: Tensor) -> bool:
    if not x.is_floating_point():
        return torch.equal(x, y)
    finite = torch.isfinite(x)
    if not torch.equal(finite, torch.isfinite(y)) or not torch.equal(x[~finite], y[~finite]):
        return False
    x, y, limit = x[finite].double(), y[finite].double(), _TOLERANCE.get(x.dtype, 1e-3)
    scale = max(1.0, x.abs().max().item() if x.numel() else 0.0)
    return bool(((x - y).abs() <= limit * scale).all()) and math.isfinite(scale)
