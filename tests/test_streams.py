"""Streams: one race whatever the order, the batches and the shards; laws against enumeration; states; sentences."""

from __future__ import annotations

import copy
import io
import itertools
import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import argrad as ag
from argrad.streams import pool, top_k
from argrad.testing import assert_frequencies, assert_mean

INF = math.inf


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same(a: ag.NormalizedTopK, b: ag.NormalizedTopK) -> None:
    """The same sample; sums in another order differ in the last bits of float64."""
    assert torch.equal(a.indices, b.indices)
    assert torch.equal(a.valid, b.valid)
    for x, y in zip(a[1:4] + a[5:], b[1:4] + b[5:], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)


def sample(ids: object, logits: object, k: int = 20, seed: int = 3) -> ag.NormalizedTopK:
    return ag.GumbelTopKStream(k, seed).update(ids, logits).result()


# ---- one race ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [21, 256, 5000, 300_000])
def test_a_stream_is_gumbel_topk(n: int, dtype: torch.dtype) -> None:
    logits = 2 * torch.randn(n, dtype=dtype)
    top = sample(0, logits)
    whole = ag.gumbel_topk(logits, 20, generator=ag.CounterRNG(3))
    assert torch.equal(top.indices, whole.indices)
    # `gumbel_topk` answers in the dtype of the logits
    tolerance = (
        {"rtol": 1e-6, "atol": 5e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    )
    for name in ("log_prob", "perturbed", "kappa"):
        torch.testing.assert_close(getattr(top, name), getattr(whole, name).double(), **tolerance)
    torch.testing.assert_close(top.log_partition, logits.double().logsumexp(0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 256, 1000, 20_000])
def test_any_batch_size_and_order(size: int) -> None:
    n = 3000
    logits = 3 * torch.randn(n, dtype=torch.float64)
    whole = sample(0, logits)
    shuffled = ag.GumbelTopKStream(20, 3)
    for part in torch.randperm(n).split(size):
        shuffled.update(part, logits[part])
    same(shuffled.result(), whole)
    assert shuffled.count == n


def test_threads_and_small_buffers_do_not_matter(threads, monkeypatch) -> None:
    logits = (
        torch.randn(400_000, dtype=torch.float64).sort().values
    )  # rising: every item is a candidate when it comes
    whole = sample(0, logits, k=500)
    monkeypatch.setattr(pool, "_ROOM", 300)
    monkeypatch.setattr(top_k, "PIECE", 150_000)
    for count in (1, 2, 4):
        with threads(count):
            same(sample(0, logits, k=500), whole)
            same(sample(torch.arange(400_000), logits, k=500), whole)


def test_shards_merge_to_the_whole_in_any_order() -> None:
    n = 5000
    logits = 3 * torch.randn(n, dtype=torch.float64)
    whole = sample(0, logits)
    cuts = [0, 10, 1200, 1200, 4000, n]
    parts = [ag.GumbelTopKStream(20, 3).update(a, logits[a:b]) for a, b in itertools.pairwise(cuts)]
    for order in itertools.islice(itertools.permutations(range(5)), 0, None, 17):
        one = ag.GumbelTopKStream(20, 3)
        for i in order:
            one.merge(parts[i])
        same(one.result(), whole)
        assert one.count == n
    left = copy.deepcopy(parts[0]).merge(parts[1])
    right = copy.deepcopy(parts[2]).merge(parts[3]).merge(parts[4])
    same(left.merge(right).result(), whole)


def test_an_id_counts_once() -> None:
    """Overlapping shards and repeated deliveries leave the sample as it is; the largest weight counts."""
    n = 2000
    logits = 3 * torch.randn(n, dtype=torch.float64)
    whole = sample(0, logits)
    again = ag.GumbelTopKStream(20, 3).update(0, logits[:1500]).update(torch.arange(n), logits)
    again.update(whole.indices.repeat(300), logits[whole.indices].repeat(300))
    again.update(0, logits - 1).merge(again)
    assert torch.equal(again.result().indices, whole.indices)
    keys = whole.perturbed + whole.log_partition
    torch.testing.assert_close(again.result().perturbed + again.result().log_partition, keys)


@given(st.lists(st.integers(0, 400), max_size=6), st.integers(1, 30), st.integers(-(2**70), 2**70))
@settings(max_examples=40, deadline=None)
def test_any_cuts_k_and_seed(cuts: list[int], k: int, seed: int) -> None:
    logits = 5 * torch.randn(400, dtype=torch.float64, generator=seeded(1))
    whole = ag.GumbelTopKStream(k, seed).update(-7, logits).result()
    edges = [0, *sorted(cuts), 400]
    one = ag.GumbelTopKStream(k, seed)
    for a, b in itertools.pairwise(edges):
        one.update(a - 7, logits[a:b])
    same(one.result(), whole)
    assert len(whole.indices.unique()) == min(k, 400)


def test_weights_are_exponentials_of_logits() -> None:
    logits = 2 * torch.randn(4000, dtype=torch.float64)
    by_weight = ag.GumbelTopKStream(20, 3).update(0, weights=logits.exp()).result()
    same(by_weight, sample(0, logits))
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0])
    top = ag.GumbelTopKStream(4, 0).update(0, weights=weights).result()
    assert set(top.indices[top.valid].tolist()) == {1, 3}
    assert top.log_partition.exp().item() == pytest.approx(3.0)


@pytest.mark.parametrize(
    "kind", ["memmap", "readonly", "strided", "float16", "matrix", "int32", "bfloat16", "grad"]
)
def test_arrays_and_tensors_of_many_kinds(kind: str, tmp_path) -> None:
    values = np.random.default_rng(0).normal(size=5000)
    ids: object = 0
    if kind == "memmap":
        values.astype(np.float32).tofile(tmp_path / "w.bin")
        given = np.memmap(tmp_path / "w.bin", np.float32, "r")
        values = values.astype(np.float32)
    elif kind == "readonly":
        given = values.copy()
        given.flags.writeable = False
    elif kind == "strided":
        given = np.repeat(values, 3)[::3]
    elif kind == "float16":
        given = values.astype(np.float16)
        values = given.astype(np.float32)
    elif kind == "matrix":
        given, ids = values.reshape(50, 100), np.arange(5000).reshape(50, 100)
    elif kind == "int32":
        given, ids = values, torch.arange(5000, dtype=torch.int32)
    elif kind == "bfloat16":
        given = torch.from_numpy(values).bfloat16()
        values = given.float().numpy()
    else:
        given = torch.from_numpy(values).requires_grad_()
    same(sample(ids, given), sample(np.arange(5000), values))


def test_too_short_a_stream() -> None:
    empty = ag.GumbelTopKStream(3, 0)
    for top, count in ((empty.result(), 0), (empty.update(5, torch.tensor([0.0, -INF])).result(), 1)):
        assert top.valid.sum() == count
        assert top.indices.tolist() == [5] * count + [0] * (3 - count)
        assert (top.log_prob[count:] == -INF).all()
        assert top.kappa == -INF
        assert top.log_partition == (-INF if count == 0 else 0.0)
        assert top.weights().sum() == count
    assert empty.update(0, torch.zeros(0)).count == 2
    assert "of 2 items" in repr(empty)


def test_far_apart_logits() -> None:
    """From e^-5000 to e^5000: nothing overflows, and small ones are drawn when the large ones are gone."""
    logits = torch.linspace(-5000, 5000, 1001, dtype=torch.float64)[torch.randperm(1001)]
    top = sample(0, logits, k=1001)
    keys = logits + ag.CounterRNG(3).gumbel(1, 1001, dtype=torch.float64)[0]
    assert torch.equal(top.indices, keys.argsort(descending=True))
    torch.testing.assert_close(top.log_partition, logits.logsumexp(0))


# ---- laws ------------------------------------------------------------------------------------------------

WEIGHTS = torch.tensor([1.0, 2.0, 3.0, 5.0, 0.5, 8.0, 1.0], dtype=torch.float64)


def orders(k: int) -> dict[tuple[int, ...], float]:
    """Every ordered sample without replacement, and its probability."""
    p = (WEIGHTS / WEIGHTS.sum()).tolist()
    result = {}
    for order in itertools.permutations(range(len(p)), k):
        chance, left = 1.0, 1.0
        for i in order:
            chance, left = chance * p[i] / left, left - p[i]
        result[order] = chance
    return result


def inclusion(k: int) -> Tensor:
    """P(item is in the sample), by enumeration."""
    total = torch.zeros(len(WEIGHTS), dtype=torch.float64)
    for order, chance in orders(k).items():
        total[list(order)] += chance
    return total


@pytest.fixture(scope="module")
def many() -> list[ag.NormalizedTopK]:
    """Samples of three items in the order of drawing, each from two shards with its own seed."""
    results = []
    for seed in range(6_000):
        left = ag.GumbelTopKStream(3, seed).update(0, weights=WEIGHTS[:4])
        results.append(ag.GumbelTopKStream(3, seed).update(4, weights=WEIGHTS[4:]).merge(left).result())
    return results


@pytest.mark.statistical
def test_order_law(many: list[ag.NormalizedTopK]) -> None:
    expected = orders(3)
    place = {order: i for i, order in enumerate(expected)}
    seen = torch.bincount(
        torch.tensor([place[tuple(t.indices.tolist())] for t in many]), minlength=len(place)
    )
    assert_frequencies(seen, torch.tensor(list(expected.values())))


@pytest.mark.statistical
def test_inclusion_probabilities(many: list[ag.NormalizedTopK]) -> None:
    drawn = torch.stack([torch.bincount(t.indices, minlength=len(WEIGHTS)) for t in many])
    assert_mean(drawn, inclusion(3))


@pytest.mark.statistical
def test_weights_estimate_sums(many: list[ag.NormalizedTopK]) -> None:
    """Sum of w f over all items, from three of them."""
    f = torch.arange(7.0, dtype=torch.float64)
    total = torch.stack([(t.weights() * t.log_partition.exp() * f[t.indices]).sum() for t in many])
    assert_mean(total[:, None], (WEIGHTS * f).sum()[None])


@pytest.mark.statistical
def test_exact_beyond_2_to_the_24() -> None:
    """Equal weights, ids from 2^40 on: each twentieth of the stream is drawn as often, and no key ties."""
    n, k = (1 << 24) + 3_000_000, 40_000
    stream = ag.GumbelTopKStream(k, 5)
    logits, first = torch.zeros(1 << 20), 1 << 40
    for start in range(0, n, 1 << 20):
        stream.update(first + start, logits[: n - start])
    top = stream.result()
    bins = torch.bincount((top.indices - first) * 20 // n, minlength=20)
    edges = torch.arange(21) * n // 20
    assert_frequencies(bins, edges.diff().double())
    assert len(top.indices.unique()) == k
    assert len(top.perturbed.unique()) == k
    # order statistics of n Gumbels: kappa is near -log(k / n), normalised by log n
    assert top.kappa.item() == pytest.approx(-math.log(k), abs=6 / math.sqrt(k))
    assert top.log_partition.item() == pytest.approx(math.log(n), rel=1e-12)


@pytest.mark.statistical
def test_rare_items_of_a_long_stream() -> None:
    """Four million items of weight 1 and one of weight 1e6: it is drawn first with probability 0.2."""
    logits = torch.zeros(400_000)
    logits[77] = math.log(1e5)
    first = torch.tensor([int(sample(0, logits, 1, seed).indices[0] == 77) for seed in range(800)])
    p = 1e5 / (1e5 + 399_999)
    assert_frequencies(torch.bincount(first, minlength=2), torch.tensor([1 - p, p]))


# ---- states ----------------------------------------------------------------------------------------------


def through_json(state: dict[str, Tensor]) -> dict:
    return json.loads(
        json.dumps({name: value.tolist() for name, value in state.items()}, allow_nan=False)
    )


def through_safetensors(state: dict[str, Tensor]) -> dict:
    return safetensors.torch.load(safetensors.torch.save(state))


def through_npz(state: dict[str, Tensor]) -> dict:
    file = io.BytesIO()
    np.savez(file, **{name: value.numpy() for name, value in state.items()})
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def through_torch(state: dict[str, Tensor]) -> dict:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("travel", [through_json, through_safetensors, through_npz, through_torch])
@pytest.mark.parametrize("count", [0, 5, 21, 3000])
def test_states_come_back(travel, count: int) -> None:
    logits = torch.randn(count + 2000, dtype=torch.float64)
    stream = ag.GumbelTopKStream(20, -(2**65) - 3).update(2**50, logits[:count])
    again = ag.GumbelTopKStream.from_state_dict(travel(stream.state_dict()))
    for a, b in zip(again.result(), stream.result(), strict=True):
        assert torch.equal(a, b)
    assert (again.count, again.k) == (stream.count, stream.k)
    for s in (stream, again):
        s.update(2**50 + count, logits[count:])
    for a, b in zip(again.result(), stream.result(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(again.state_dict().values(), stream.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_a_stream_from_a_state_merges_with_the_original() -> None:
    stream = ag.GumbelTopKStream(4, 2**65 - 5).update(0, torch.randn(50))
    again = ag.GumbelTopKStream.from_state_dict(stream.state_dict())
    assert stream.merge(again).count == 100
    assert pickle.loads(pickle.dumps(stream)).count == 100  # for queues between one's own processes


def test_the_state_is_as_large_as_the_sample() -> None:
    stream = ag.GumbelTopKStream(100, 0)
    sizes = set()
    for start in range(0, 300_000, 50_000):
        stream.update(start, torch.randn(50_000))
        sizes.add(sum(t.numel() * t.itemsize for t in stream.state_dict().values()))
    assert sizes == {101 * 16 + 5 * 8}


# ---- sentences -------------------------------------------------------------------------------------------

ZEROS = torch.zeros(3)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((0, torch.tensor([0.0, math.nan])), {}, r"update\(logits=...\)` must not hold NaN or \+inf"),
        ((0, torch.tensor([0.0, INF])), {}, r"must not hold NaN or \+inf"),
        (
            (0,),
            {"weights": torch.tensor([1.0, -2.0])},
            "must be finite and not negative; .*first is -2.0",
        ),
        (
            (0,),
            {"weights": torch.tensor([1.0, math.nan])},
            "must be finite and not negative; .*first is nan",
        ),
        ((0,), {"weights": torch.tensor([INF])}, "must be finite and not negative; .*first is inf"),
        ((0,), {}, "either `logits` or `weights`; got neither"),
        ((0, ZEROS), {"weights": ZEROS}, "either `logits` or `weights`; got both"),
        ((torch.arange(4), ZEROS), {}, "one id for each of the 3 items; got 4 of them"),
        ((ZEROS, ZEROS), {}, "must be an integer tensor or array"),
        ((["a", "b", "c"], ZEROS), {}, "must be an integer tensor or array.*got list"),
        ((np.zeros(3, np.uint64), ZEROS), {}, "got uint64"),
        ((2**63 - 2, ZEROS), {}, "must fit into int64"),
        ((0, [0.0, 1.0]), {}, "must be a tensor; got list"),
        ((0, torch.arange(3)), {}, "must be floating point"),
        ((0, np.arange(3)), {}, "must be floating point; got an array of int64"),
    ],
)
def test_a_refused_batch_leaves_the_stream_alone(arguments, options, sentence: str) -> None:
    stream = ag.GumbelTopKStream(2, 0).update(10, torch.randn(1000))
    before = stream.state_dict()
    with pytest.raises((ag.InputError, ag.InputTypeError), match=sentence):
        stream.update(*arguments, **options)
    for a, b in zip(stream.state_dict().values(), before.values(), strict=True):
        assert torch.equal(a, b)


def test_the_first_part_of_a_refused_batch_does_not_enter(monkeypatch) -> None:
    monkeypatch.setattr(top_k, "PIECE", 100)
    stream, bad = ag.GumbelTopKStream(2, 0), torch.zeros(1000)
    bad[-1] = math.nan
    with pytest.raises(ag.InputError):
        stream.update(0, bad)
    assert stream.count == 0
    assert not stream.result().valid.any()


def test_sentences() -> None:
    stream = ag.GumbelTopKStream(3, 1)
    with pytest.raises(
        ag.InputError, match=r"GumbelTopKStream\(k=...\)` must be an integer of at least 1"
    ):
        ag.GumbelTopKStream(0, 1)
    with pytest.raises(ag.InputTypeError, match=r"seed=...\)` must be an integer; got float"):
        ag.GumbelTopKStream(3, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ag.InputError, match="streams of the same k; got 3 and 4"):
        stream.merge(ag.GumbelTopKStream(4, 1))
    with pytest.raises(ag.InputError, match="streams of the same seed; got 1 and 2"):
        stream.merge(ag.GumbelTopKStream(3, 2))
    with pytest.raises(ag.InputTypeError, match="takes another stream; got dict"):
        stream.merge(stream.state_dict())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"ids": torch.arange(9)},
        {"logits": torch.zeros(1)},
        {"log_sum": torch.tensor([math.nan, 1.0])},
        {"log_sum": torch.tensor([0.0, -1.0])},
        {"log_sum": torch.zeros(3)},
        {"count": torch.tensor(1)},
        {"k": torch.tensor(1)},
        {"k": torch.tensor(0)},
        {"logits": torch.full((4,), math.nan)},
        {"ids": "abcd"},
        {"k": None},
        {"logits": [[1.0], [2.0, 3.0]]},
        {"logits": ["1", "2", "3", "4"]},
        {"logits": [None, 1.0, 1.0, 1.0]},
    ],
)
def test_damaged_states_are_refused(change: dict[str, object]) -> None:
    state = ag.GumbelTopKStream(3, 1).update(0, torch.zeros(10)).state_dict()
    with pytest.raises(ag.InputError):
        ag.GumbelTopKStream.from_state_dict({**state, **change})
    with pytest.raises(ag.InputError, match="must have all fields; got no seed"):
        ag.GumbelTopKStream.from_state_dict({n: v for n, v in state.items() if n != "seed"})


# ---- without torch ----------------------------------------------------------------------------------

ALONE = """
import sys
import numpy as np, argrad as ag
weights = np.tile(np.arange(16, dtype=np.float32), 1 << 14)
parts = [ag.GumbelTopKStream(np.int64(1000), np.uint8(3)).update(i << 18, weights=weights) for i in range(4)]
whole = parts[0].merge(ag.GumbelTopKStream.from_state_dict(parts[1].state_arrays())).merge(parts[2]).merge(parts[3])
assert "torch" not in sys.modules
ids = whole.state_arrays()["ids"][:1000].tolist()
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
print(peak, ids)
"""


def alone() -> tuple[float, list[int]]:
    """Megabytes of a process that streams and merges arrays, and what it has drawn."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    peak, ids = done.stdout.split(maxsplit=1)
    return float(peak), json.loads(ids)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_only_streams_has_no_torch_and_stays_below_200_megabytes() -> None:
    alone()  # numba may have to compile first
    peak, ids = alone()
    weights = torch.arange(16.0).repeat(1 << 16)
    assert ids == ag.GumbelTopKStream(1000, 3).update(0, weights=weights).result().indices.tolist()
    assert peak < 200


def test_states_as_arrays_are_those_as_tensors() -> None:
    stream = ag.GumbelTopKStream(5, -1).update(0, torch.randn(100, generator=seeded()))
    arrays, tensors = stream.state_arrays(), stream.state_dict()
    assert arrays.keys() == tensors.keys()
    for name, array in arrays.items():
        assert isinstance(array, np.ndarray)
        assert torch.equal(torch.from_numpy(array), tensors[name])
    same(ag.GumbelTopKStream.from_state_dict(arrays).result(), stream.result())
    rounded = tensors | {"logits": tensors["logits"].bfloat16()}
    assert ag.GumbelTopKStream.from_state_dict(rounded).count == 100
