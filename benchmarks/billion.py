"""A thousand million items, drawn from without replacement in constant memory by several processes.

    .venv/bin/python -m benchmarks.billion                      # writes benchmarks/results/scale/billion.json

Item i has one of 16 weights, e^(c/4) with c = i modulo 16. Each process streams its range of ids through a
`GumbelTopKStream`, without loading torch, and hands over its state; the parent merges them. Given the threshold kappa
the items are drawn independently, with probability q = 1 - exp(-exp(theta - kappa)); so that, over 16 weights times 64
ranges of ids, the counts of the k drawn items are multinomial (up to q itself, one in 10^4), which a chi-square tests.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import argrad as ag
from benchmarks.memory import status

WEIGHTS, RANGES = 16, 64
RESULT = Path(__file__).parent / "results" / "scale" / "billion.json"


def logits(count: int) -> np.ndarray:
    """Of the items from any multiple of 16 on."""
    return np.tile(np.arange(WEIGHTS, dtype=np.float32) / 4, count // WEIGHTS)


def stream(start: int, stop: int, k: int, seed: int, block: int) -> ag.GumbelTopKStream:
    """The stream of items `start` to `stop`."""
    one, values = ag.GumbelTopKStream(k, seed), logits(block)
    for first in range(start, stop, block):
        one.update(first, values[: stop - first])
    return one


def work(pipe: Connection, start: int, stop: int, k: int, seed: int, block: int) -> None:
    """One process: its state, seconds and the memory of all of it, Python included."""
    began = status("VmRSS")
    stream(0, block, k, seed, block)  # numba loads its code
    wall, processor = time.perf_counter(), time.process_time()
    one = stream(start, stop, k, seed, block)
    seconds = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
    state = io.BytesIO()
    np.savez(state, **one.state_arrays())  # pyright: ignore[reportArgumentType]
    memory = {"before": began, "most": status("VmHWM"), "torch": "torch" in sys.modules}
    pipe.send_bytes(json.dumps({"seconds": seconds, "megabytes": memory}).encode())
    pipe.send_bytes(state.getbuffer())


def run(items: int, k: int, seed: int, workers: int, block: int) -> tuple[ag.GumbelTopKStream, dict]:
    """The merged stream, and what it cost."""
    cuts = [items * i // workers // block * block for i in range(workers)] + [items]
    context = multiprocessing.get_context("spawn")
    began = time.perf_counter()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes started here
    pipes = [context.Pipe(False) for _ in range(workers)]
    jobs = [
        context.Process(target=work, args=(pipes[i][1], cuts[i], cuts[i + 1], k, seed, block))
        for i in range(workers)
    ]
    for job in jobs:
        job.start()
    reports = [json.loads(pipe.recv_bytes()) for pipe, _ in pipes]
    states = [pipe.recv_bytes() for pipe, _ in pipes]
    for job in jobs:
        job.join()
    merged = ag.GumbelTopKStream(k, seed)
    for state in states:
        with np.load(io.BytesIO(state)) as arrays:
            merged.merge(ag.GumbelTopKStream.from_state_dict(arrays))
    sizes = [b - a for a, b in itertools.pairwise(cuts)]
    rates = {
        clock: [n / r["seconds"][clock] / 1e6 for n, r in zip(sizes, reports, strict=True)]
        for clock in ("wall", "processor")
    }
    return merged, {
        "items": items,
        "k": k,
        "processes": workers,
        "seconds_with_start": time.perf_counter() - began,
        "million_items_a_second_and_core": rates,  # by processor time it does not see other programs
        "megabytes": [r["megabytes"] for r in reports],
        "state_bytes": max(map(len, states)),
    }


def chi_square(top: ag.NormalizedTopK, items: int) -> dict[str, float]:
    """The counts over weights and ranges of ids, against their probabilities given kappa."""
    import torch
    from scipy import stats

    kappa = top.kappa + top.log_partition  # on the scale of the logits
    edges = torch.arange(RANGES + 1) * items // RANGES
    per_weight = torch.stack([(edges - c + WEIGHTS - 1) // WEIGHTS for c in range(WEIGHTS)]).diff(dim=1)
    q = -torch.expm1(-torch.exp(torch.arange(WEIGHTS).double() / 4 - kappa))
    expected = per_weight * q[:, None]
    expected *= len(top.indices) / expected.sum()
    place = torch.bucketize(top.indices, edges[1:], right=True)
    seen = torch.bincount((top.indices % WEIGHTS) * RANGES + place, minlength=WEIGHTS * RANGES).double()
    statistic = ((seen - expected.reshape(-1)).square() / expected.reshape(-1)).sum().item()
    cells = WEIGHTS * RANGES
    p = float(stats.chi2.sf(statistic, cells - 1))
    return {"statistic": statistic, "cells": cells, "least_expected": expected.min().item(), "p": p}


def log_partition(items: int) -> float:
    """In closed form."""
    counts = [(items - c + WEIGHTS - 1) // WEIGHTS for c in range(WEIGHTS)]
    return math.log(math.fsum(n * math.exp(c / 4) for c, n in enumerate(counts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--items", type=float, default=1e9)
    parser.add_argument("--k", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--block", type=int, default=1 << 20, help="items an update, a multiple of 16")
    parser.add_argument("--json", type=Path, default=RESULT)
    args = parser.parse_args()
    items = int(args.items)
    merged, cost = run(items, args.k, args.seed, args.workers, args.block)
    cost["megabytes_of_merging"] = {"most": status("VmHWM"), "torch": "torch" in sys.modules}
    from benchmarks import machine  # loads torch

    top = merged.result()
    report = {
        **cost,
        "chi_square": chi_square(top, items),
        "log_partition_error": abs(top.log_partition.item() - log_partition(items)),
        "different": len(top.indices.unique()),
        "machine": machine.facts(),
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in report.items() if k != "machine"}, indent=1))


if __name__ == "__main__":
    main()
