r"""A vocabulary in shards, one a process: what they tell each other, and how the answers are joined.

Before the race each rank sends a header of a hundred bytes, so that a call that differs between ranks ends
in a sentence on all of them and not in a hang. After the race each sends its best candidates: the best of
all items are among the best of each shard, and $\log Z = \log \sum_s Z_s$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from argrad._errors import InputError, InputTypeError
from argrad._numerics import logsumexp
from argrad.sequences.tiles import Found, Head, best

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

CALL = "linear_gumbel_topk"
# The header: whether the arguments were accepted, what must be the same on all ranks, what need not be.
_SAME = (
    "number of rows",
    "width of `hidden`",
    "k",
    "number of bits of its floats",
    "wish for a gradient",
)
_ITEMS, _COUNTER, _SOURCE, _MASS, _LENGTH = 6, 7, slice(8, 13), 13, 14


@dataclass(frozen=True)
class Sharding:
    """This process's place: its shard holds the items from `starts[rank]` on."""

    group: ProcessGroup
    rank: int
    starts: tuple[int, ...]

    @property
    def offset(self) -> int:
        """The first item of this shard."""
        return self.starts[self.rank]

    def merge(self, found: Found) -> Found:
        """The race over all shards, the same on every rank: one all-gather of `pack`."""
        own = pack(found, self.offset)
        parts = _gather(own.to(_device(self.group)), self.group)
        return best(unpack(torch.stack(parts).to(own.device), found, self.starts), found.keys.shape[1])

    def sum_gradients(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        """Add up what the shards say about `hidden` and the temperature, which they share."""
        hidden, weight, bias, scale = grads
        for grad in (hidden, scale):
            if grad is not None:
                dist.all_reduce(grad, group=self.group)
        return [hidden, weight, bias, scale]


def check_group(group: object) -> None:
    """A process group that this process belongs to, or a sentence."""
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise InputError(
            f"`{CALL}(group=...)` must contain this process; got a group without it. "
            "Call it on the members of the group only."
        )
    if not isinstance(group, dist.ProcessGroup):
        raise InputTypeError(
            f"`{CALL}(group=...)` must be a process group; got {type(group).__name__}. After "
            "`torch.distributed.init_process_group(...)` pass `torch.distributed.group.WORLD`."
        )


def refuse(group: ProcessGroup) -> None:
    """Tell the others that this rank's arguments were not accepted; its own error says why."""
    _gather(torch.full((_LENGTH,), -1, dtype=torch.int64, device=_device(group)), group)


def agree(
    group: ProcessGroup, head: Head, k: int, source: Tensor, is_counter: bool
) -> tuple[Sharding, Tensor]:
    """Where each shard starts, and whose noise is used: the `CounterRNG` of all, or rank 0's generator."""
    n, d = head.hidden.shape
    bits, wants = torch.finfo(head.hidden.dtype).bits, head.wants_gradient()
    mass = head.hidden.detach().abs().sum(dtype=torch.float64).reshape(1).cpu().view(torch.int64)
    numbers = [0, n, d, k, bits, wants, len(head.weight), is_counter]
    header = torch.cat([torch.tensor(numbers, device="cpu"), source, mass])
    parts = _gather(header.to(_device(group)), group)
    table = torch.stack(parts).cpu()
    _check_same(table)
    starts = table[:, _ITEMS].cumsum(0) - table[:, _ITEMS]
    sharding = Sharding(group, dist.get_rank(group), tuple(starts.tolist()))
    return sharding, table[0, _SOURCE].clone()


def _check_same(table: Tensor) -> None:
    """All ranks ask the same question; `table` has a row a rank."""
    if bool((table[:, 0] < 0).any()):
        ranks = ", ".join(map(str, (table[:, 0] < 0).nonzero()[:, 0].tolist()))
        raise InputError(
            f"`{CALL}(group=...)`: rank {ranks} refused its arguments (its own error says why), so that "
            "no rank can answer."
        )
    for column, what in enumerate(_SAME, 1):
        _raise_if_different(table[:, column], what)
    counters = table[:, _COUNTER]
    _raise_if_different(counters, "kind of `generator`")
    if bool(counters.any()):
        for column in range(_SOURCE.start, _SOURCE.stop):
            _raise_if_different(table[:, column], "`CounterRNG`", show=False)
    mass = table[:, _MASS].contiguous().view(torch.float64)
    if bool(((mass - mass[0]).abs() > 1e-3 * mass[0].abs()).any()):  # beyond any rounding
        _raise_if_different(mass, "`hidden`", show=False)
    if int(table[:, _ITEMS].sum()) == 0:
        raise InputError(f"`{CALL}(weight=...)` must offer at least one item; all shards are empty.")


def _raise_if_different(values: Tensor, what: str, show: bool = True) -> None:
    other = (values != values[0]).nonzero()[:, 0]
    if len(other) == 0:
        return
    rank = int(other[0])
    got = f"{values[0].item()} on rank 0 and {values[rank].item()} on rank {rank}"
    got = got if show else f"another one on rank {rank} than on rank 0"
    raise InputError(
        f"`{CALL}(group=...)` must be called with the same {what} on every rank; got {got}. "
        "Only `weight`, `bias` and `mask` differ between shards."
    )


# ---- the wire ------------------------------------------------------------------------------------


def pack(found: Found, offset: int) -> Tensor:
    """Candidates and log-sum-exps as 32-bit words: 16 bytes a candidate and 8 a row, in float32."""
    local = torch.where(found.ids < 0, -1, found.ids - offset).int()
    fields = (found.keys, local, found.scores, found.log_z[:, None])
    words = [t.contiguous().view(torch.int32).reshape(-1) for t in fields]
    return torch.cat([*words, local.new_full((1,), int(found.bad))])


def unpack(words: Tensor, like: Found, starts: tuple[int, ...]) -> Found:
    """The candidates of all shards side by side; `words` has a row for each, of the shape of `like`."""
    dtypes = (like.keys.dtype, torch.int32, like.scores.dtype, like.log_z.dtype)
    shapes = (like.keys.shape, like.ids.shape, like.scores.shape, (*like.log_z.shape, 1))
    fields, at = [], 0
    for dtype, shape in zip(dtypes, shapes, strict=True):
        size = math.prod(shape) * dtype.itemsize // 4
        field = words[:, at : at + size].flatten().clone().view(dtype)  # a copy is aligned
        fields.append(field.view(len(starts), *shape).movedim(0, 1))  # (n, shards, m)
        at += size
    keys, local, scores, log_z = fields
    first = torch.tensor(starts, device=words.device)[:, None]
    ids = torch.where(local < 0, -1, local.long() + first)
    keys, ids, scores = (t.flatten(1) for t in (keys, ids, scores))
    return Found(keys, ids, scores, logsumexp(log_z.flatten(1)), bool(words[:, at].any()))


def _gather(own: Tensor, group: ProcessGroup) -> list[Tensor]:
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, own, group=group)
    return parts


def _device(group: ProcessGroup) -> torch.device:
    """Where the group's messages must live."""
    if "gloo" in str(dist.get_backend_config(group)):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
