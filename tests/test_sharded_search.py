"""Stochastic beam search with a head that is cut over 2 and 4 gloo processes: the draws of one process."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import argrad as ag

V, D, K, LENGTH, ROWS = 203, 6, 4, 5, 3


def weights() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(V, D, generator=g, dtype=torch.float64), torch.randn(
        V + 1, D, generator=g
    ).double()


def search(own: slice, group: dist.ProcessGroup | None, sent: list[int]) -> ag.SequenceSample:
    """The head's rows `own` are here; logits of the others come over the wire."""
    head, embedding = weights()
    head = head[own]

    def step(token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        state = embedding[V].expand(ROWS, D) if token is None else 0.5 * state + embedding[token]
        local = state @ head.T
        if group is None:
            return local, state
        sizes = [
            (V * (r + 1) // dist.get_world_size()) - V * r // dist.get_world_size()
            for r in range(dist.get_world_size())
        ]
        widest = max(sizes)
        padded = torch.nn.functional.pad(local, (0, widest - local.shape[-1]))
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        sent.append(padded.numel() * padded.itemsize)
        return torch.cat([part[:, :n] for part, n in zip(parts, sizes, strict=True)], -1), state

    return ag.stochastic_beam_search(
        step, torch.zeros(ROWS, D).double(), K, eos=0, max_len=LENGTH, generator=ag.CounterRNG(3)
    )


def work(rank: int, world: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    sent: list[int] = []
    found = search(slice(V * rank // world, V * (rank + 1) // world), dist.group.WORLD, sent)
    result = {
        "tokens": found.tokens,
        "log_prob": found.log_prob,
        "perturbed": found.perturbed,
        "sent": sum(sent),
    }
    torch.save(result, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_head_over_several_processes_draws_the_same_sequences(world: int, tmp_path: Path) -> None:
    one = search(slice(0, V), None, [])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (world, port, str(tmp_path)), nprocs=world)
    for rank in range(world):
        got = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.equal(got["tokens"], one.tokens)
        torch.testing.assert_close(got["log_prob"], one.log_prob, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(got["perturbed"], one.perturbed, rtol=1e-12, atol=1e-12)
        # float64 logits of a shard: ROWS nodes at the root, then ROWS * K a level
        widest = max(V * (r + 1) // world - V * r // world for r in range(world))
        assert got["sent"] <= 8 * widest * (ROWS + (LENGTH - 1) * ROWS * K)
