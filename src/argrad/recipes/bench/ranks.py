"""Several processes that train one model: the ranks that `torchrun` starts.

    torchrun --nproc-per-node 2 -m argrad reproduce vae

Every rank takes its share of each batch and draws noise of its own; before an optimizer takes a step, the gradients
are averaged, so that all ranks hold the same parameters. Rank 0 alone writes: the log (means over all ranks), the
checkpoint (the states of all ranks, in one file) and the results.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from argrad._errors import ArgradError, InputError

_GONE = (
    "another process of this run has ended, so that this one cannot go on. The last checkpoint is kept: the same "
    "command goes on from it."
)
_PATIENCE = timedelta(minutes=30)  # for a slow rank; one that has died is noticed at once


def start() -> None:
    """Join the other ranks, if `torchrun` has started any."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("gloo", timeout=_PATIENCE)
        signal.signal(signal.SIGTERM, _stop)  # how torchrun ends those that are left


def _stop(*_: Any) -> None:
    raise ArgradError(_GONE)


def world() -> int:
    """How many there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which one this is."""
    return dist.get_rank() if world() > 1 else 0


def share(batch: int) -> slice:
    """The part of a batch that this rank takes."""
    n = world()
    if batch % n:
        raise InputError(
            f"a batch of {batch} cannot be shared equally by {n} processes. Choose a multiple of {n}."
        )
    return slice(batch // n * rank(), batch // n * (rank() + 1))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo's own text names sockets
        raise ArgradError(_GONE) from error


# ---- parameters and gradients ----------------------------------------------------------------------


def begin_alike(parts: Sequence[Any]) -> None:
    """Parameters and buffers of rank 0 on every rank."""
    for part in parts:
        if isinstance(part, nn.Module):
            for tensor in [*part.parameters(), *part.buffers()]:
                with _explained():
                    dist.broadcast(tensor.detach(), 0)


@contextlib.contextmanager
def averaged(parts: Sequence[Any]) -> Iterator[None]:
    """Let every optimizer among `parts` average the gradients of all ranks before each of its steps."""
    hooks = [
        part.register_step_pre_hook(lambda optimizer, *_: average_gradients(optimizer))
        for part in parts
        if isinstance(part, torch.optim.Optimizer) and world() > 1
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def average_gradients(optimizer: torch.optim.Optimizer) -> None:
    """The mean over the ranks, in one message for all dense gradients."""
    found = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    dense = [g for g in found if not g.is_sparse]
    with _explained():
        for gradient in (g for g in found if g.is_sparse):
            dist.all_reduce(gradient)
            gradient.div_(world())
        if dense:
            flat = torch.cat([g.reshape(-1) for g in dense])
            dist.all_reduce(flat)
            flat /= world()
            for gradient, mean in zip(dense, flat.split([g.numel() for g in dense]), strict=True):
                gradient.copy_(mean.view_as(gradient))


# ---- small messages --------------------------------------------------------------------------------


def any_of(*flags: bool) -> tuple[bool, ...]:
    """Which of these is true on some rank."""
    if world() == 1:
        return flags
    found = torch.tensor(flags, dtype=torch.int32)
    with _explained():
        dist.all_reduce(found, dist.ReduceOp.MAX)
    return tuple(bool(x) for x in found)


def summed(values: Sequence[float]) -> list[float]:
    """The sum over the ranks."""
    if world() == 1:
        return list(values)
    found = torch.tensor(values, dtype=torch.float64)
    with _explained():
        dist.all_reduce(found)
    return found.tolist()


def gathered(data: bytes) -> list[Tensor]:
    """What every rank has to say, as bytes, on rank 0; nothing on the others."""
    size = torch.tensor([len(data)])
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world())]
    with _explained():
        dist.all_gather(sizes, size)
        longest = int(max(sizes))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        parts = [torch.empty_like(padded) for _ in sizes] if rank() == 0 else None
        dist.gather(padded, parts)
    return [part[: int(n)].clone() for part, n in zip(parts or [], sizes, strict=False)]


def as_on_rank_0(tensor: Tensor) -> Tensor:
    """The tensor that rank 0 has; sizes and dtypes are the same everywhere."""
    if world() > 1:
        with _explained():
            dist.broadcast(tensor, 0)
    return tensor


def wait_for_all() -> None:
    """Until every rank is here."""
    if world() > 1:
        with _explained():
            dist.barrier()
