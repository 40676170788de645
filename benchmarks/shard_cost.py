"""What a sharded vocabulary costs: bytes on the wire (measured), and time at 1 to 512 shards (simulated).

    .venv/bin/python -m benchmarks.shard_cost                   # writes benchmarks/results/scale/shard_cost.json

*Measured*: 2 and 4 gloo processes on loopback call `linear_gumbel_topk(group=...)`; the kernel's counters of the
loopback device are read before and after.

*Simulated*: every shard's race is really run here, one shard after the other, and really merged; that the result
is the one of a single device is asserted. The slowest shard, the merge, and a model of the network (a ring: each
of S - 1 steps takes its latency and the time of one message) add up to the time of a call. Beside it the usual
way: all-gather the logits by the same ring, then draw from them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import argrad as ag
from argrad.sequences import shards
from argrad.sequences.tiles import Found, Head, best, race
from benchmarks import machine

ROWS, WIDTH, K = 16, 128, 8
VOCABULARIES = (50_000, 250_000, 1_000_000)
SHARDS = (1, 8, 64, 512)
NETWORKS = {  # latency in seconds, bytes a second
    "10 Gbit Ethernet": (20e-6, 1.25e9),
    "400 Gbit InfiniBand": (3e-6, 50e9),
}
CALLS, TRIALS = 20, 5
SOURCE = ag.CounterRNG(0).words
RESULT = Path(__file__).parent / "results" / "scale" / "shard_cost.json"


def problem(v: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, WIDTH, generator=g), torch.randn(v, WIDTH, generator=g) / WIDTH**0.5


# ---- measured ------------------------------------------------------------------------------------


def loopback_bytes() -> int:
    """Sent over the loopback device since the machine started, by anybody."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    (line,) = (x for x in lines if x.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def _rank(rank: int, world: int, port: int, v: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    hidden, weight = problem(v)
    own = weight[v * rank // world : v * (rank + 1) // world]
    logits = hidden @ own.T

    def gather_logits() -> None:
        dist.all_gather([torch.empty_like(logits) for _ in range(world)], logits)

    def draw() -> None:
        ag.linear_gumbel_topk(hidden, own, K, group=dist.group.WORLD, generator=ag.CounterRNG(0))

    measured = {
        "linear_gumbel_topk": _bytes_a_call(draw),
        "all-gather of logits": _bytes_a_call(gather_logits),
    }
    if rank == 0:
        Path(folder, f"{world}.json").write_text(json.dumps(measured), encoding="utf-8")
    dist.destroy_process_group()


def _bytes_a_call(step: Callable[[], object]) -> float:
    """All ranks together; the least of several trials, as others may use the device too."""
    trials = []
    step()
    for _ in range(TRIALS):
        dist.barrier()
        before = loopback_bytes()
        for _ in range(CALLS):
            step()
        dist.barrier()
        trials.append((loopback_bytes() - before) / CALLS)
    return min(trials)


def measure(world: int, v: int, folder: Path) -> dict[str, float]:
    """Bytes that a row costs each shard, headers of the protocol included."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(_rank, (world, port, v, str(folder)), nprocs=world)
    total = json.loads((folder / f"{world}.json").read_text(encoding="utf-8"))
    return {name: value / world / ROWS for name, value in total.items()}


# ---- simulated -----------------------------------------------------------------------------------


def _seconds(step: Callable[[], object], repeats: int = 3) -> float:
    """Processor time of one thread, the best of several: other programs do not count."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        step()
        times.append(time.process_time() - began)
    return min(times)


def simulate(v: int, count: int, hidden: Tensor, weight: Tensor, whole: Found) -> dict:
    """One line of the table."""
    cuts = [v * i // count for i in range(count + 1)]
    heads = [Head(hidden, weight[a:b], None, None, None, 8192) for a, b in itertools.pairwise(cuts)]
    packed = [shards.pack(race(h, K + 1, SOURCE, a), a) for h, a in zip(heads, cuts, strict=False)]

    def merge() -> Found:
        return best(shards.unpack(torch.stack(packed), whole, tuple(cuts[:-1])), K + 1)

    assert torch.equal(merge().ids, whole.ids), "another sample than that of one device"
    torch.testing.assert_close(merge().log_z, whole.log_z)
    slowest = max(_seconds(lambda i=i: race(heads[i], K + 1, SOURCE, cuts[i])) for i in _some(count))
    message, merging = packed[0].numel() * 4, _seconds(merge) if count > 1 else 0.0
    logits = hidden @ weight.T
    drawing = _seconds(lambda: ag.gumbel_topk(logits, K))
    product = max(_seconds(lambda i=i: hidden @ heads[i].weight.T) for i in _some(count))
    line = {
        "vocabulary": v,
        "shards": count,
        "ms_slowest_shard": 1e3 * slowest,
        "ms_merge": 1e3 * merging,
        "bytes_a_row_and_shard": message / ROWS,
        "bytes_a_row_received": (count - 1) * message / ROWS,
        "bytes_a_row_received_with_all_logits": (count - 1) * v * 4 / count,
    }
    for name, (latency, rate) in NETWORKS.items():
        ours = (count - 1) * (latency + message / rate)
        theirs = (count - 1) * (latency + ROWS * v * 4 / count / rate)
        line[f"ms, {name}"] = 1e3 * (slowest + merging + ours)
        line[f"ms with all logits, {name}"] = 1e3 * (product + drawing + theirs)
    return line


def _some(count: int) -> range:
    """Up to four shards to time; they are alike."""
    return range(0, count, max(1, count // 4))


def lines(vocabularies: tuple[int, ...] = VOCABULARIES) -> Iterator[dict]:
    torch.set_num_threads(1)
    for v in vocabularies:
        hidden, weight = problem(v)
        whole = race(Head(hidden, weight, None, None, None, 8192), K + 1, SOURCE)
        for count in SHARDS:
            yield simulate(v, count, hidden, weight, whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, default=RESULT)
    args = parser.parse_args()
    args.json.parent.mkdir(parents=True, exist_ok=True)
    facts = machine.facts()
    simulated = []
    for line in lines():
        print({k: round(v, 3) for k, v in line.items()}, flush=True)
        simulated.append(line)
    with tempfile.TemporaryDirectory() as folder:
        measured = {w: measure(w, VOCABULARIES[0], Path(folder)) for w in (2, 4)}
    print(json.dumps(measured, indent=1))
    about = {"rows": ROWS, "width": WIDTH, "k": K, "networks": NETWORKS}
    document = {
        **about,
        "bytes_a_row_and_shard_measured": measured,
        "simulated": simulated,
        "machine": facts,
    }
    args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
