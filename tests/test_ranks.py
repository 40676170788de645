"""Data-parallel training under `torchrun` (gloo, loopback): two ranks are one process, killed or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from argrad.recipes import RECIPES, find
from argrad.recipes.bench.log import read_log
from argrad.recipes.bench.reproduce import reproduce

RECIPE = Path(__file__).with_name("counter_recipe.py")


def torchrun(recipe: str, out: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*words, "-m", "argrad", "reproduce", recipe, "--out", str(out), *flags],
        capture_output=True,
        text=True,
        timeout=150,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )


def found(out: Path) -> dict[str, tuple[dict[str, float], list[dict]]]:
    """Numbers and log of each cell, by column."""
    cells = {}
    for folder in sorted((out / "counter" / "cells").iterdir()):
        result = json.loads((folder / "result.json").read_text())
        log = [{k: v for k, v in line.items() if k != "seconds"} for line in read_log(folder)]
        cells[result["column"]] = result["metrics"], log
    return cells


def test_two_ranks_are_one_process_with_the_whole_batch(tmp_path: Path) -> None:
    """Same parameters after 12 steps of Adam, same log, one report; every estimator with noise by rows."""
    recipe = find(str(RECIPE))
    reproduce(recipe, recipe.config, out=tmp_path / "one", workers=1, quiet=True)
    done = torchrun(str(RECIPE), tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Report:") == 1  # one voice
    one, two = found(tmp_path / "one"), found(tmp_path / "two")
    assert set(one) == set(two) and len(one) == 6
    for name, (metrics, log) in one.items():
        # float64, sums in another order, twelve steps of Adam
        assert two[name][0] == pytest.approx(metrics, rel=1e-9), name
        assert [line["step"] for line in two[name][1]] == [line["step"] for line in log]
        for ours, theirs in zip(two[name][1], log, strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-9)
            assert (ours["rows"], theirs["rows"]) == (4, 8)
    results = json.loads((tmp_path / "two" / "counter" / "results.json").read_text())
    assert results["command"].startswith("torchrun --nproc-per-node 2 -m argrad reproduce")
    assert (tmp_path / "two" / "counter" / "report.html").exists()


def test_a_batch_that_cannot_be_shared_gets_a_sentence(tmp_path: Path, monkeypatch) -> None:
    from argrad._errors import InputError
    from argrad.recipes.bench import ranks

    monkeypatch.setattr(ranks, "world", lambda: 3)
    with pytest.raises(InputError, match="a batch of 8 cannot be shared equally by 3 processes"):
        ranks.share(8)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["0", "1"])
def test_a_killed_rank_is_a_sentence_and_the_same_command_goes_on(tmp_path: Path, victim: str) -> None:
    flags = ("--columns", "GumbelST,Reinforce")
    whole = torchrun(str(RECIPE), tmp_path / "whole", *flags)
    assert whole.returncode == 0, whole.stderr
    stamp = tmp_path / "killed"
    stamp.mkdir()
    killed = torchrun(
        str(RECIPE),
        tmp_path / "killed",
        *flags,
        RANKS=f"kill:{victim}:7",
        RANKS_STAMP=str(stamp / "at"),
    )
    assert time.time() - float((stamp / "at").read_text()) < 60  # all of the run has ended
    assert killed.returncode != 0
    assert "another process of this run has ended" in killed.stderr
    assert "Traceback" not in killed.stderr.split("another process")[0]
    again = torchrun(str(RECIPE), tmp_path / "killed", *flags)
    assert again.returncode == 0, again.stderr
    assert found(tmp_path / "killed") == found(tmp_path / "whole")  # bit for bit


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_runs_on_two_ranks(name: str, tmp_path: Path) -> None:
    done = torchrun(name, tmp_path, "--smoke", "--quiet")
    assert done.returncode in (0, 1), done.stderr  # 1: a band, which is stated for one process
    results = json.loads((tmp_path / name / "results.json").read_text())
    assert all(c["mean"] is not None for c in results["cells"]), "a number is missing"


def test_noise_of_a_part_of_the_batch_is_part_of_the_noise(tmp_path: Path, monkeypatch) -> None:
    from argrad.recipes.bench import Run, ranks

    run = Run(tmp_path, seed=3)
    whole = run.counter(5, rows=6).gumbel(6, 4)
    monkeypatch.setattr(ranks, "world", lambda: 2)
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    assert torch.equal(run.counter(5, rows=6).gumbel(3, 4), whole[3:])
    assert not torch.equal(run.counter(6, rows=6).gumbel(3, 4), whole[3:])
    assert run.share(6) == 3
    other = run.generator(2).initial_seed()
    monkeypatch.setattr(ranks, "rank", lambda: 0)
    assert run.generator(2).initial_seed() != other
