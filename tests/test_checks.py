"""Every wrong input gets a sentence, word for word; and no wrong input gets a number."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
import torch

import argrad as ag
from argrad import _checks, random

INF, NAN = math.inf, math.nan
ONES = torch.ones(2, 3)
BOOL = torch.ones(2, 3, dtype=torch.bool)
ROW_1_EMPTY = torch.tensor([[True, True, True], [False, False, False]])
HOT = (
    "must be positive and finite; got {}. For a hard sample use `gumbel_max` or `hard=True`; "
    "anneal to about 0.1, not to 0."
)
EMPTY = (
    "`{}`: `mask` or -inf scores remove every choice in {}, so nothing can be chosen there. "
    "Allow at least one item a row, or drop those rows."
)
BAD = (
    "`{}(logits=...)` must not hold NaN or +inf; got float32[2, 3], {}. The first is at index {}. "
    "-inf is allowed and means probability 0; look for an overflow or 0/0 upstream."
)


def with_entry(value: float, *place: int) -> torch.Tensor:
    x = torch.zeros(2, 3)
    x[place] = value
    return x


# (call, type, sentence)
GOLDEN = [
    # tau
    (lambda: ag.gumbel_softmax(ONES, 0.0), ValueError, "`gumbel_softmax(tau=...)` " + HOT.format(0.0)),
    (lambda: ag.gumbel_softmax(ONES, -1), ValueError, "`gumbel_softmax(tau=...)` " + HOT.format(-1.0)),
    (
        lambda: ag.gumbel_softmax(ONES, NAN),
        ValueError,
        "`gumbel_softmax(tau=...)` " + HOT.format("nan"),
    ),
    (
        lambda: ag.gumbel_softmax(ONES, INF),
        ValueError,
        "`gumbel_softmax(tau=...)` " + HOT.format("inf"),
    ),
    (
        lambda: ag.gumbel_softmax(ONES, torch.tensor([1.0, 0.0])),
        ValueError,
        "`gumbel_softmax(tau=...)` " + HOT.format("float32[2], from 0 to 1"),
    ),
    (
        lambda: ag.gumbel_softmax(ONES, torch.tensor([1.0, NAN])),
        ValueError,
        "`gumbel_softmax(tau=...)` " + HOT.format("float32[2], from 1 to 1, 1 NaN"),
    ),
    (
        lambda: ag.gumbel_softmax(ONES, "hot"),
        TypeError,
        "`gumbel_softmax(tau=...)` must be a positive number or tensor; got str. "
        "Write `tau=0.5`, or a tensor for one temperature a row.",
    ),
    (
        lambda: ag.gumbel_softmax(ONES, torch.ones(3)),
        ValueError,
        "`gumbel_softmax(tau=...)` must be a number or broadcast over the batch shape (2,); "
        "got shape (3,). One temperature a row: a tensor of the batch's shape.",
    ),
    # logits
    (
        lambda: ag.gumbel_softmax([1.0, 2.0]),
        TypeError,
        "`gumbel_softmax(logits=...)` must be a tensor; got list. "
        "Wrap it in `torch.tensor(...)` or `torch.as_tensor(...)`.",
    ),
    (
        lambda: ag.gumbel_max([1.0, 2.0]),
        TypeError,
        "`gumbel_max(logits=...)` must be a tensor; got list. "
        "Wrap it in `torch.tensor(...)` or `torch.as_tensor(...)`.",
    ),
    (
        lambda: ag.gumbel_softmax(torch.tensor([[1, 2, 3]])),
        TypeError,
        "`gumbel_softmax(logits=...)` must be floating point; got int64[1, 3], from 1 to 3. "
        "Call `.float()` if these are meant as real-valued logits.",
    ),
    (
        lambda: ag.gumbel_topk(ONES + 0j, 1),
        TypeError,
        "`gumbel_topk(logits=...)` must be floating point; got complex64[2, 3]. "
        "Call `.float()` if these are meant as real-valued logits.",
    ),
    (
        lambda: ag.gumbel_max(torch.tensor(1.0)),
        ValueError,
        "`gumbel_max(logits=...)` must have at least 1 dimension; got a tensor of shape (). "
        "The last ones hold what is chosen, those before are the batch.",
    ),
    (
        lambda: ag.gumbel_softmax(torch.zeros(4, 0)),
        ValueError,
        "`gumbel_softmax(logits=...)` must offer at least one item to choose; got shape (4, 0). "
        "Nothing can be chosen from an empty set.",
    ),
    (
        lambda: ag.gumbel_softmax(with_entry(NAN, 1, 2)),
        ValueError,
        BAD.format("gumbel_softmax", "from 0 to 0, 1 NaN", "(1, 2) (nan)"),
    ),
    (
        lambda: ag.gumbel_max(with_entry(INF, 0, 1)),
        ValueError,
        BAD.format("gumbel_max", "from 0 to inf", "(0, 1) (inf)"),
    ),
    (
        lambda: ag.gumbel_softmax(with_entry(NAN, 1, 2), torch.tensor(1.0, requires_grad=True)),
        ValueError,
        BAD.format("gumbel_softmax", "from 0 to 0, 1 NaN", "(1, 2) (nan)"),
    ),
    # dim
    (
        lambda: ag.gumbel_softmax(ONES, dim=2),
        ValueError,
        "`gumbel_softmax(dim=...)` must be an integer from -2 to 1; got 2. "
        "It names the dimension that holds the items.",
    ),
    (
        lambda: ag.gumbel_max(ONES, dim="last"),
        ValueError,
        "`gumbel_max(dim=...)` must be an integer from -2 to 1; got 'last'. "
        "It names the dimension that holds the items.",
    ),
    # mask
    (
        lambda: ag.gumbel_softmax(ONES, mask=ROW_1_EMPTY),
        ValueError,
        EMPTY.format("gumbel_softmax", "1 of 2 rows (first: row 1)"),
    ),
    (
        lambda: ag.gumbel_max(torch.full((3,), -INF)),
        ValueError,
        EMPTY.format("gumbel_max", "the only row"),
    ),
    (
        lambda: ag.gumbel_softmax(ONES, mask=torch.ones(2, 3)),
        TypeError,
        "`gumbel_softmax(mask=...)` must be a bool tensor, True = allowed; got float32[2, 3], from 1 to 1. "
        "Call `.bool()` if 1 means allowed.",
    ),
    (
        lambda: ag.gumbel_softmax(ONES, mask=[True, False, True]),
        TypeError,
        "`gumbel_softmax(mask=...)` must be a bool tensor, True = allowed; got list. "
        "Call `.bool()` if 1 means allowed.",
    ),
    (
        lambda: ag.gumbel_softmax(ONES, mask=BOOL[:, :2]),
        ValueError,
        "`gumbel_softmax(mask=...)` must broadcast to the scores' shape (2, 3); got shape (2, 2). "
        "Add the missing dimensions with `mask[..., None, :]` or `expand`.",
    ),
    (
        lambda: ag.gumbel_softmax(ONES, mask=BOOL.expand(4, 2, 3)),
        ValueError,
        "`gumbel_softmax(mask=...)` must broadcast to the scores' shape (2, 3); got shape (4, 2, 3). "
        "Add the missing dimensions with `mask[..., None, :]` or `expand`.",
    ),
    # k
    (
        lambda: ag.gumbel_topk(ONES, 4),
        ValueError,
        "`gumbel_topk(k=...)` must be an integer from 1 to 3; got 4. There are 3 items to draw from along `dim`.",
    ),
    (
        lambda: ag.gumbel_topk(ONES, 0),
        ValueError,
        "`gumbel_topk(k=...)` must be an integer from 1 to 3; got 0. There are 3 items to draw from along `dim`.",
    ),
    (
        lambda: ag.gumbel_topk(ONES, 1.0),
        ValueError,
        "`gumbel_topk(k=...)` must be an integer from 1 to 3; got 1.0. There are 3 items to draw from along `dim`.",
    ),
    (
        lambda: ag.gumbel_topk(ONES, 3, mask=with_entry(1, 1, 0) == 0),
        ValueError,
        "`gumbel_topk(k=...)` must not exceed the number of allowed items; got k=3, but row 1 allows 2. "
        "Lower k, or allow more items with `mask`.",
    ),
    # generator
    (
        lambda: ag.gumbel_max(ONES, generator=42),
        TypeError,
        "`gumbel_max(generator=...)` must be a `torch.Generator`, an `argrad.CounterRNG` or None; got int. "
        "Write `generator=torch.Generator().manual_seed(0)` for a seed.",
    ),
    # conditional Gumbels
    (
        lambda: ag.gumbel_given_max(ONES, 2.0),
        TypeError,
        "`gumbel_given_max(maximum=...)` must be a tensor; got float. "
        "Wrap it in `torch.tensor(...)` or `torch.as_tensor(...)`.",
    ),
    (
        lambda: ag.gumbel_given_max(ONES, torch.zeros(3)),
        ValueError,
        "`gumbel_given_max(maximum=...)` must have the logits' shape without `dim`, (2,); got shape (3,). "
        "One number a row.",
    ),
    (
        lambda: ag.gumbel_given_max(ONES, torch.zeros(2), mask=ROW_1_EMPTY),
        ValueError,
        EMPTY.format("gumbel_given_max", "1 of 2 rows (first: row 1)"),
    ),
    (
        lambda: ag.truncated_gumbel(ONES, torch.tensor(NAN)),
        ValueError,
        "`truncated_gumbel(upper=...)` must not hold NaN; got nan. +inf means no bound.",
    ),
    (
        lambda: ag.truncated_gumbel(ONES, torch.zeros(2)),
        ValueError,
        "`truncated_gumbel(upper=...)` must broadcast to the logits' shape (2, 3); got shape (2,). "
        "One bound an item, or one for all.",
    ),
    (
        lambda: ag.gumbel_posterior(ONES, torch.tensor([0, 3])),
        ValueError,
        "`gumbel_posterior(observed=...)` must hold indices from 0 to 2; got int64[2], from 0 to 3. "
        "They count along `dim`, from 0.",
    ),
    (
        lambda: ag.gumbel_posterior(ONES, torch.eye(3)[:2]),
        TypeError,
        "`gumbel_posterior(observed=...)` must be an integer tensor; got torch.float32. "
        "Give indices, not one-hot vectors: `z.argmax(-1)`.",
    ),
    (
        lambda: ag.gumbel_posterior(ONES, torch.tensor([0, 0]), mask=with_entry(1, 1, 0) == 0),
        ValueError,
        "`gumbel_posterior(observed=...)` names an item of probability 0 (`mask` or a logit of -inf forbids "
        "it), so it cannot have been observed. Check the mask, or the logits it was drawn from.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "sentence"), GOLDEN, ids=[s[:60] for _, _, s in GOLDEN])
def test_golden_sentences(call, kind: type, sentence: str) -> None:
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == sentence
    assert isinstance(error.value, ag.ArgradError)


# ---- no wrong input gets a number ----------------------------------------------------------------

DRAWS = {
    "softmax": lambda x, **o: ag.gumbel_softmax(x, **o),
    "hard": lambda x, **o: ag.gumbel_softmax(x, hard=True, **o),
    "trained": lambda x, **o: ag.gumbel_softmax(x, torch.tensor(1.0, requires_grad=True), **o),
    "max": lambda x, **o: ag.gumbel_max(x, **o),
    "max-counter": lambda x, **o: ag.gumbel_max(x, generator=ag.CounterRNG(0), **o),
    "topk": lambda x, **o: ag.gumbel_topk(x, 1, **o),
    "given_max": lambda x, **o: ag.gumbel_given_max(x, torch.zeros(getattr(x, "shape", ())[:-1]), **o),
    "posterior": lambda x, **o: ag.gumbel_posterior(
        x, torch.zeros(getattr(x, "shape", ())[:-1]).long(), **o
    ),
    "truncated": lambda x, **o: ag.truncated_gumbel(x, torch.tensor(0.0), **o),
}
every = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
ELEMENTWISE = {DRAWS["truncated"]}  # each item on its own: nothing competes


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [NAN, INF])
def test_nan_and_infinity(draw, dtype: torch.dtype, value: float) -> None:
    for shape in ((3,), (4, 3), (2, 4, 300)):
        x = torch.zeros(shape, dtype=dtype)
        x.view(-1)[-1] = value
        with pytest.raises(ag.InputError, match=r"must not hold NaN or \+inf"):
            draw(x)


@every
def test_rows_without_items(draw) -> None:
    if draw in ELEMENTWISE:
        return
    x = torch.zeros(4, 3)
    x[2] = -INF
    with pytest.raises(ag.InputError, match=r"1 of 4 rows \(first: row 2\)"):
        draw(x)
    with pytest.raises(ag.InputError, match="the only row"):
        draw(torch.zeros(3), mask=torch.zeros(3, dtype=torch.bool))


@every
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.uint8])
def test_not_floating(draw, dtype: torch.dtype) -> None:
    with pytest.raises(ag.InputTypeError, match="must be floating point"):
        draw(torch.zeros(2, 3).to(dtype))


@every
def test_no_classes_and_no_rows(draw) -> None:
    with pytest.raises(ag.InputError, match="must offer at least one item"):
        draw(torch.zeros(2, 0))
    draw(torch.zeros(0, 3))
    with pytest.raises(ag.InputTypeError, match="must be a tensor"):
        draw(None)


@every
@pytest.mark.parametrize("mask", [torch.ones(3), torch.ones(4, dtype=torch.bool), True, None])
def test_masks(draw, mask: object) -> None:
    if mask is None:
        draw(torch.zeros(2, 3), mask=mask)
        return
    with pytest.raises(ag.ArgradError, match=r"\(mask=...\)` must"):
        draw(torch.zeros(2, 3) if not isinstance(mask, bool) else torch.zeros(3), mask=mask)


# ---- numbers from numpy --------------------------------------------------------------------------


def test_numpy_numbers_are_numbers() -> None:
    x = torch.randn(2, 3)
    for tau in (np.float32(0.5), np.float64(0.5), np.int64(1)):
        assert ag.gumbel_softmax(x, tau).isfinite().all()
    assert ag.gumbel_topk(x, np.int64(2)).indices.shape == (2, 2)
    assert ag.gumbel_softmax(x, dim=np.int64(0)).sum(0).sum().item() == pytest.approx(3)
    for bad in (np.float32(0), np.float64(NAN)):
        with pytest.raises(ag.InputError, match="must be positive and finite"):
            ag.gumbel_softmax(x, bad)


# ---- where values can be read --------------------------------------------------------------------


def test_values_are_not_read_where_they_cannot_be() -> None:
    meta = torch.empty(2, 3, device="meta")
    assert not _checks.can_read(meta)
    assert ag.gumbel_softmax(meta).shape == (2, 3)
    assert "meta" not in _checks.describe(meta)
    with ag.debug():
        assert not _checks.can_read(meta)
    assert _checks.can_read(torch.zeros(1))
    seen = []
    torch.vmap(lambda x: seen.append(_checks.can_read(x)) or x)(torch.zeros(2))
    torch.func.grad(lambda x: seen.append(_checks.can_read(x)) or x)(torch.tensor(0.0))
    torch.func.jvp(
        lambda x: seen.append(_checks.can_read(x)) or x, (torch.zeros(1),), (torch.zeros(1),)
    )
    with torch._subclasses.FakeTensorMode():
        seen.append(_checks.can_read(torch.zeros(1)))
    assert seen == [False] * 4


def test_debug_belongs_to_its_thread_and_nests() -> None:
    with ag.debug():
        assert _checks._debug.get()
        with ag.debug(False):
            assert not _checks._debug.get()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(_checks._debug.get()))
        thread.start()
        thread.join()
        assert seen == [False]
        assert _checks._debug.get()
    assert not _checks._debug.get()


def test_invalid_values_that_cannot_be_read_become_nan() -> None:
    """Never a plausible number: under a transform a row without items, or with NaN, is all NaN."""
    x = torch.tensor([[0.0, 1.0], [-INF, -INF], [0.0, NAN]])
    y = torch.vmap(lambda row: ag.gumbel_softmax(row), randomness="different")(x)
    assert y[0].isfinite().all()
    assert y[1:].isnan().all()


def test_descriptions() -> None:
    assert _checks.describe(torch.tensor([1.0, NAN, -2.5])) == "float32[3], from -2.5 to 1, 1 NaN"
    assert _checks.describe(torch.tensor([NAN])) == "float32[1], 1 NaN"
    assert _checks.describe(torch.zeros(0, 2)) == "float32[0, 2]"
    assert _checks.describe(torch.tensor(3)) == "3"
    assert _checks.describe(BOOL) == "bool[2, 3]"
    assert _checks.describe("a") == "'a'"
    assert str(_checks.fail("f", "x", "must be odd", 2, "")) == "`f(x=...)` must be odd; got 2."


def test_generators_are_checked_before_they_are_used() -> None:
    state = torch.get_rng_state()
    with pytest.raises(ag.InputTypeError):
        random.gumbel((2,), generator="seed")
    assert torch.equal(torch.get_rng_state(), state)
