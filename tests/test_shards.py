"""A vocabulary over 1, 2 and 4 gloo processes: the draws of one process, gradients, and sentences instead of hangs."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import argrad as ag
from argrad.sequences import shards, tiles

ROWS, V, D, K = 5, 1003, 6, 7
RNG = ag.CounterRNG(11, row=3, column=2)


def problem() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    return {
        "hidden": torch.randn(ROWS, D, generator=g),
        "weight": torch.randn(V, D, generator=g),
        "bias": torch.randn(V, generator=g),
        "mask": torch.rand(ROWS, V, generator=g) > 0.3,
        "tau": torch.rand(ROWS, generator=g) + 0.5,
        "upstream": torch.randn(ROWS, K, generator=g),
    }


def cut(rank: int, world: int) -> slice:
    """Uneven shards; with four, the second is empty."""
    ends = {1: [0, V], 2: [0, 300, V], 4: [0, 300, 300, 301, V]}[world]
    return slice(ends[rank], ends[rank + 1])


def draw(own: slice, group, rng=RNG) -> dict[str, Tensor]:
    """The sample and its gradients; weight and bias are those of a shard."""
    p = problem()
    leaves = (p["hidden"], p["weight"][own].clone(), p["bias"][own].clone(), p["tau"])
    hidden, weight, bias, tau = (t.requires_grad_() for t in leaves)
    top = ag.linear_gumbel_topk(
        hidden,
        weight,
        K,
        bias=bias,
        tau=tau,
        mask=p["mask"][:, own],
        chunk=64,
        group=group,
        generator=rng,
    )
    ((top.log_prob * p["upstream"]).sum() + top.log_partition.sum()).backward()
    grads = {
        f"grad_{n}": t.grad for n, t in zip(("hidden", "weight", "bias", "tau"), leaves, strict=True)
    }
    return {**{n: t.detach() for n, t in top._asdict().items()}, **grads}


def refusals(rank: int, world: int, group) -> list[str]:
    """What is said, on every rank, when the ranks do not fit together."""
    p, own = problem(), cut(rank, world)
    hidden, weight = p["hidden"], p["weight"][own].clone()
    spoiled = weight.clone()
    if rank == world - 1:
        spoiled[0, 0] = float("nan")
    wrong: list[Callable[[], object]] = [
        lambda: ag.linear_gumbel_topk(hidden, weight, K + rank, group=group),
        lambda: ag.linear_gumbel_topk(hidden + rank, weight, K, group=group),
        lambda: ag.linear_gumbel_topk(hidden[: ROWS - rank], weight, K, group=group),
        lambda: ag.linear_gumbel_topk(hidden, weight, K, group=group, generator=ag.CounterRNG(rank)),
        lambda: ag.linear_gumbel_topk(hidden, weight, K, group=group, tau=1.0 - rank),
        lambda: ag.linear_gumbel_topk(hidden, spoiled, K, group=group),
        lambda: ag.linear_gumbel_topk(hidden, weight[:0], K, group=group),
        lambda: ag.linear_gumbel_topk(
            hidden, weight, K, group=group, mask=torch.zeros(len(weight), dtype=torch.bool)
        ),
        lambda: second_derivative(hidden, weight, group),
        lambda: torch.vmap(lambda h: ag.linear_gumbel_topk(h, weight, K, group=group, generator=RNG))(
            hidden
        ),
    ]
    return [sentence(call) for call in wrong]


def second_derivative(hidden: Tensor, weight: Tensor, group) -> None:
    hidden = hidden.clone().requires_grad_()
    top = ag.linear_gumbel_topk(hidden, weight, 2, group=group)
    torch.autograd.grad(top.log_prob.sum(), hidden, create_graph=True)


def sentence(call: Callable[[], object]) -> str:
    try:
        call()
    except ag.ArgradError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def work(rank: int, world: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    # a rank that hangs fails within a minute
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    own, group = cut(rank, world), dist.group.WORLD
    free = torch.Generator().manual_seed(5 + rank)  # ranks that disagree follow rank 0
    result = {
        "counter": draw(own, group),
        "generator": draw(own, group, free),
        "refusals": refusals(rank, world, group) if world == 2 else [],
        "after": draw(own, group),  # the group still works
    }
    outside = dist.new_group([0])
    if world == 2:
        result["outside"] = sentence(
            lambda: ag.linear_gumbel_topk(torch.zeros(1, 2), torch.zeros(3, 2), 1, group=outside)
        )
    torch.save(result, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=[1, 2, 4])
def ranks(request, tmp_path_factory) -> list[dict]:
    """What each rank of 1, 2 or 4 processes got."""
    world = request.param
    folder: Path = tmp_path_factory.mktemp(f"shards{world}")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (world, port, str(folder)), nprocs=world)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]


def test_every_rank_has_the_sample_of_one_process(ranks: list[dict]) -> None:
    one = draw(slice(0, V), None)
    for rank in ranks:
        for name in ("counter", "after"):
            got = rank[name]
            assert torch.equal(got["indices"], one["indices"])
            assert torch.equal(got["valid"], one["valid"])
            for field in ("log_prob", "perturbed", "kappa", "log_partition"):
                # matrix products of another shape differ in the last bit of float32 logits of size 20
                torch.testing.assert_close(got[field], one[field], rtol=2e-6, atol=5e-6)


def test_gradients_are_those_of_one_process(ranks: list[dict]) -> None:
    one, world = draw(slice(0, V), None), len(ranks)
    for rank, result in enumerate(ranks):
        own, got = cut(rank, world), result["counter"]
        # sums of float32 in another order
        for name in ("hidden", "tau"):
            torch.testing.assert_close(got[f"grad_{name}"], one[f"grad_{name}"], rtol=1e-4, atol=1e-5)
        for name in ("weight", "bias"):
            torch.testing.assert_close(
                got[f"grad_{name}"], one[f"grad_{name}"][own], rtol=1e-4, atol=1e-5
            )


def test_a_torch_generator_follows_rank_0(ranks: list[dict]) -> None:
    one = draw(slice(0, V), None, torch.Generator().manual_seed(5))
    for rank in ranks:
        assert torch.equal(rank["generator"]["indices"], one["indices"])


def test_ranks_that_do_not_fit_get_a_sentence(ranks: list[dict]) -> None:
    if len(ranks) != 2:
        assert ranks[0]["refusals"] == []
        return
    wanted = [
        "must be called with the same k on every rank; got 7 on rank 0 and 8 on rank 1",
        "must be called with the same `hidden` on every rank; got another one on rank 1",
        "must be called with the same number of rows on every rank; got 5 on rank 0 and 4 on rank 1",
        "must be called with the same `CounterRNG` on every rank",
        "rank 1 refused its arguments",
        "another shard has one",
        "all shards are empty",
        "remove every choice in 5 of 5 rows",
        "has no second derivative",
        "cannot run inside `torch.func`",
    ]
    for rank, result in enumerate(ranks):
        for text, said in zip(wanted, result["refusals"], strict=True):
            if rank == 1 and "refused" in text:
                text = "must be positive and finite; got 0.0"  # its own error
            if rank == 1 and "another shard" in text:
                text = "(weight=...)` must not hold NaN"
            assert text in said
    assert "must contain this process" in ranks[1]["outside"]


def test_the_wire_carries_what_the_docs_say() -> None:
    """16 bytes a candidate and 8 a row in float32: 152 bytes for k = 8, and 4 for the status."""
    found = tiles.race(
        tiles.Head(torch.randn(10, 3), torch.randn(50, 3), None, None, None, 16), 9, RNG.words
    )
    packed = shards.pack(found, 0)
    assert packed.numel() * packed.itemsize == 10 * (9 * 16 + 8) + 4
    again = shards.unpack(torch.stack([packed, packed]), found, (0, 100))
    assert torch.equal(again.ids, torch.cat([found.ids, found.ids + 100], -1))
    for name in ("keys", "scores"):
        assert torch.equal(getattr(again, name), getattr(found, name).repeat(1, 2))
    torch.testing.assert_close(again.log_z, found.log_z + math.log(2))
