"""Data-parallel training: control variates and baselines stay in step on two ranks (gloo, loopback)."""

from __future__ import annotations

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import argrad as ag


class Model(nn.Module):
    """A categorical choice inside a model, trained by an estimator that has parameters of its own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 5)
        self.estimator = {
            "Rebar": lambda: ag.Rebar(),
            "Relax": lambda: ag.Relax(nn.Linear(5, 1)),
            "Nvil": lambda: ag.Nvil(nn.Linear(5, 1)),
        }[kind]()
        self.decoder = nn.Linear(5, 4)

    def forward(self, x, generator):
        q = ag.Gibbs(ag.OneHot(), self.encoder(x))
        return self.estimator(
            lambda z: ((self.decoder(z) - x) ** 2).sum(-1), q, generator=generator
        ).mean()


def train(rank: int, world: int, kind: str, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(kind))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    noise = torch.Generator().manual_seed(100 + rank)  # different noise on each rank
    data = torch.Generator().manual_seed(200 + rank)
    for _ in range(50):
        optimizer.zero_grad()
        model(torch.randn(16, 4, generator=data), noise).backward()
        optimizer.step()
    torch.save(model.module.state_dict(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["Rebar", "Relax", "Nvil"])
def test_two_ranks_end_with_the_same_parameters(kind, tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(train, (2, kind, port, str(tmp_path)), nprocs=2)
    one, two = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    parameters = dict(Model(kind).named_parameters())
    for name in parameters:
        assert torch.equal(one[name], two[name]), name
    start = Model(kind).estimator.state_dict()
    moved = [k for k, v in start.items() if not torch.equal(v, one[f"estimator.{k}"])]
    assert moved, "the estimator's parameters never trained"
