"""`argrad sweep`: every trial once, whoever is killed; merged with confidence intervals."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from scipy import stats

from argrad._errors import ArgradError, InputError
from argrad.cli import main
from argrad.recipes import find
from argrad.recipes.bench import trials
from argrad.recipes.bench.options import split_grid
from argrad.recipes.bench.sweep import interval, plan_settings, sweep

TOY = str(Path(__file__).with_name("toy_recipe.py"))


def results(out: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(out.glob("toy/cells/*/result.json"))]


def test_the_plan_is_the_grid(tmp_path: Path) -> None:
    recipe = find(TOY)
    fixed, grid = split_grid(
        recipe.config, {"rate": (0.1, 0.2), "steps": (3,), "momentum": ("yes", "no")}
    )
    assert (fixed, grid) == ({"steps": 3}, {"rate": [0.1, 0.2], "momentum": [True, False]})
    settings = plan_settings(recipe, recipe.config, grid, range(3), tmp_path)
    assert len(settings) == 2 * 2 * 4
    folders = [job.folder for setting in settings for job in setting.jobs]
    assert len(set(folders)) == len(folders) == 48
    assert settings[0].name == "narrow, SGD, rate 0.1, momentum True"
    with pytest.raises(InputError, match="must be yes, no"):
        split_grid(recipe.config, {"momentum": ("maybe",)})


def test_intervals_are_students() -> None:
    values = [3.0, 4.5, 2.5, 5.0]
    expected = stats.t.interval(0.95, 3, loc=stats.tmean(values), scale=stats.sem(values))
    assert interval(values) == pytest.approx(expected)
    assert all(math.isnan(x) for x in interval([1.0]))


def test_a_sweep_in_local_processes_is_resumed_and_merged(tmp_path: Path, capsys, monkeypatch) -> None:
    """A worker that is killed is started again; a second command runs nothing."""
    words = [
        "sweep",
        TOY,
        "--rows",
        "narrow",
        "--estimator",
        "SGD",
        "--rate",
        "0.1,0.2",
        "--steps",
        "4",
    ]
    words += ["--seeds", "2", "--out", str(tmp_path), "--workers", "2", "--quiet"]
    starts: list[str] = []
    start = trials._start

    def killing(folder: Path) -> subprocess.Popen:
        starts.append(folder.name)
        process = start(folder)
        if len(starts) == 1:
            process.kill()
        return process

    monkeypatch.setattr(trials, "_start", killing)
    assert main(words) == 0
    assert Counter(starts).most_common(1)[0][1] == 2 and len(set(starts)) == 4
    assert len(results(tmp_path)) == 4
    merged = json.loads((tmp_path / "toy" / "sweep.json").read_text())
    assert [s["options"] for s in merged["settings"]] == [{"rate": 0.1}, {"rate": 0.2}]
    for setting in merged["settings"]:
        assert len(setting["values"]) == 2
        assert setting["low"] < setting["mean"] < setting["high"]
    assert "95 % from" in (tmp_path / "toy" / "sweep.html").read_text()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("toy/cells/*/result.json")}
    assert main(words) == 0
    assert len(starts) == 5, "a finished trial was run again"
    assert before == {
        path: path.stat().st_mtime_ns for path in tmp_path.glob("toy/cells/*/result.json")
    }


@pytest.mark.slow
def test_a_trial_that_always_fails_is_a_sentence(tmp_path: Path, monkeypatch) -> None:
    recipe = find(TOY)
    monkeypatch.setenv("TOY", "crash=1;cell=narrow, SGD")
    monkeypatch.setattr(trials, "ATTEMPTS", 2)
    config = recipe.preset("smoke")
    with pytest.raises(
        ArgradError, match=r"'narrow, SGD' failed 2 times.*on purpose.*All other trials are done"
    ):
        sweep(recipe, config, {}, out=tmp_path, workers=2, quiet=True)
    assert len(results(tmp_path)) == 1


def test_without_ray_there_is_a_sentence(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(trials.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ArgradError, match=r'pip install "argrad\[scale\]"'):
        list(trials.run_on_ray([], "local", 1))


@pytest.mark.slow
@pytest.mark.parametrize("ray", [(), ("--ray", "local")], ids=["processes", "ray"])
def test_24_trials_with_three_random_kills(tmp_path: Path, ray: tuple[str, ...]) -> None:
    """Driver or worker, whichever: 24 results, none duplicated, none lost."""
    if ray:
        pytest.importorskip("ray")
    words = [
        sys.executable,
        "-m",
        "argrad",
        "sweep",
        TOY,
        "--rate",
        "0.1,0.2",
        "--steps",
        "10",
        "--seeds",
        "3",
    ]
    words += ["--out", str(tmp_path), "--workers", "3", *ray]
    environment = os.environ | {"TOY": "slow=0.2", "RAY_DEDUP_LOGS": "0"}
    chance, kills = random.Random(5), 0
    deadline = time.monotonic() + 900
    while len(results(tmp_path)) < 24:
        assert time.monotonic() < deadline
        log = (tmp_path / "driver.log").open("ab")
        driver = subprocess.Popen(
            words, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        while driver.poll() is None and time.monotonic() < deadline:
            time.sleep(chance.uniform(4, 8))
            busy = workers_below(tmp_path)
            if kills < 3 and len(results(tmp_path)) < 24 and busy:
                kills += 1
                victim = driver.pid if kills == 2 else chance.choice(busy)
                os.kill(victim, signal.SIGKILL)
        driver.wait()
        log.close()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert kills == 3
    found = results(tmp_path)
    keys = {json.dumps([r["row"], r["column"], r["seed"], r["config"]], sort_keys=True) for r in found}
    assert len(found) == len(keys) == 24
    merged = json.loads((tmp_path / "toy" / "sweep.json").read_text())
    assert merged["trials"] == 24 and sum(len(s["values"]) for s in merged["settings"]) == 24


def workers_below(out: Path) -> list[int]:
    """Processes that are training a trial in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"argrad.recipes.bench.worker" in words and any(str(out).encode() in w for w in words):
            found.append(int(path.parent.name))
    return found
