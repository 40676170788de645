"""`WeightedStreamSampler`: the laws of `WeightedRandomSampler`, beyond its 2^24 items; epochs, replicas, loaders."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import argrad as ag
from argrad.streams import sampler as module
from argrad.testing import assert_frequencies

WEIGHTS = torch.tensor([1.0, 0.0, 2.0, 5.0, 0.5])


@pytest.mark.statistical
def test_without_replacement_every_order_has_its_probability() -> None:
    p = (WEIGHTS.double() / WEIGHTS.sum()).tolist()
    sampler = ag.WeightedStreamSampler(WEIGHTS, 2, seed=1)
    seen = torch.zeros(25)
    for _ in range(8000):
        first, second = sampler
        seen[first * 5 + second] += 1
    expected = torch.zeros(25)
    for i, j in itertools.permutations([0, 2, 3, 4], 2):
        expected[i * 5 + j] = p[i] * p[j] / (1 - p[i])
    assert_frequencies(seen, expected)


@pytest.mark.statistical
@pytest.mark.parametrize("piece", [1, 2, 1000])
def test_with_replacement_the_draws_are_independent(piece: int, monkeypatch) -> None:
    monkeypatch.setattr(module, "PIECE", piece)
    drawn = ag.WeightedStreamSampler(WEIGHTS, 50_000, replacement=True, seed=2).draw()
    p = WEIGHTS.double() / WEIGHTS.sum()
    assert_frequencies(torch.bincount(drawn, minlength=5), p)
    pairs = drawn[:-1:2] * 5 + drawn[1::2]
    assert_frequencies(torch.bincount(pairs, minlength=25), torch.outer(p, p))


def test_pieces_do_not_matter(monkeypatch) -> None:
    weights = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    for replacement in (False, True):
        whole = ag.WeightedStreamSampler(weights, 100, replacement=replacement).draw()
        for piece in (1, 37, 999):
            monkeypatch.setattr(module, "PIECE", piece)
            part = ag.WeightedStreamSampler(weights, 100, replacement=replacement).draw()
            assert torch.equal(part, whole)
        monkeypatch.undo()


@pytest.mark.parametrize("kind", ["numpy", "memmap", "batches", "consecutive"])
@pytest.mark.parametrize("replacement", [False, True])
def test_sources(kind: str, replacement: bool, tmp_path) -> None:
    weights = np.random.default_rng(0).random(700).astype(np.float32)
    if kind == "numpy":
        source = weights
    elif kind == "memmap":
        weights.tofile(tmp_path / "w.bin")
        source = np.memmap(tmp_path / "w.bin", np.float32, "r")
    else:

        def source():
            for a in range(0, 700, 99):
                part = weights[a : a + 99]
                consecutive = kind == "consecutive"
                yield (
                    (a, part)
                    if consecutive
                    else (torch.arange(a, a + len(part)), torch.from_numpy(part))
                )

    whole = ag.WeightedStreamSampler(
        torch.from_numpy(weights), 50, replacement=replacement, seed=4
    ).draw()
    assert torch.equal(
        ag.WeightedStreamSampler(source, 50, replacement=replacement, seed=4).draw(), whole
    )


def test_epochs() -> None:
    weights = torch.ones(100)
    sampler = ag.WeightedStreamSampler(weights, 10, seed=3)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert sampler.epoch == 2
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(ag.WeightedStreamSampler(weights, 10, seed=3)) == first
    assert list(ag.WeightedStreamSampler(weights, 10, seed=4)) != first


@pytest.mark.parametrize("replacement", [False, True])
def test_replicas_share_an_epoch(replacement: bool) -> None:
    weights = torch.rand(200)
    options = {"replacement": replacement, "seed": 1}
    whole = list(ag.WeightedStreamSampler(weights, 12, **options))
    parts = [ag.WeightedStreamSampler(weights, 12, num_replicas=3, rank=r, **options) for r in range(3)]
    assert [len(p) for p in parts] == [4, 4, 4]
    assert [i for group in zip(*parts, strict=True) for i in group] == whole


def test_a_data_loader_with_workers() -> None:
    data = torch.arange(50.0)
    sampler = ag.WeightedStreamSampler(data, 20, seed=0)
    expected = sampler.draw().double()
    loader = DataLoader(
        data, batch_size=6, sampler=sampler, num_workers=1, multiprocessing_context="fork"
    )
    assert torch.equal(torch.cat(list(loader)).double(), expected)
    assert len(loader) == 4


@pytest.mark.statistical
@pytest.mark.parametrize("replacement", [False, True])
def test_more_items_than_multinomial_takes(replacement: bool) -> None:
    """2^24 + 10^6 items; the upper half weighs three times as much."""
    n = (1 << 24) + 1_000_000
    with pytest.raises(RuntimeError, match="2\\^24"):
        torch.multinomial(torch.ones(n), 1)
    weights = torch.ones(n)
    weights[n // 2 :] = 3.0
    drawn = ag.WeightedStreamSampler(weights, 20_000, replacement=replacement, seed=1).draw()
    bins = torch.bincount(drawn * 10 // n, minlength=10)
    assert_frequencies(bins, torch.tensor([1.0] * 5 + [3.0] * 5))
    assert int(drawn.max()) > 1 << 24


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((WEIGHTS, 0), {}, "num_samples=.* at least 1"),
        ((WEIGHTS, 3), {"num_replicas": 2}, "must be a multiple of the 2 replicas; got 3"),
        ((WEIGHTS, 4), {"num_replicas": 2, "rank": 2}, "rank=.* from 0 to 1; got 2"),
        ((WEIGHTS[None], 1), {}, "must have one dimension"),
        (([1.0, 2.0], 1), {}, "must be a tensor; got list"),
        ((np.arange(3), 1), {}, "must be floating point"),
        ((WEIGHTS, 5), {}, "got 5 for 4 such items"),
        ((WEIGHTS * 0, 1), {"replacement": True}, "all of them are 0"),
        ((-WEIGHTS, 1), {"replacement": True}, "must be finite and not negative"),
        ((-WEIGHTS, 1), {}, "must be finite and not negative"),
        ((WEIGHTS * math.nan, 1), {"replacement": True}, "must be finite and not negative"),
        ((WEIGHTS, 1), {"seed": 0.5}, "seed=.* must be an integer"),
    ],
)
def test_sentences(arguments, options, sentence: str) -> None:
    with pytest.raises((ag.InputError, ag.InputTypeError), match=sentence):
        list(ag.WeightedStreamSampler(*arguments, **options))


def test_a_source_that_changes_is_noticed() -> None:
    sizes = iter([1.0, 0.1])
    sampler = ag.WeightedStreamSampler(lambda: [(0, WEIGHTS * next(sizes))], 50, replacement=True)
    with pytest.raises(ag.InputError, match="the same weights each time"):
        sampler.draw()
