"""A run that is killed, interrupted or starved of disk goes on to the same numbers, bit for bit."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from argrad._errors import ArgradError, InputError
from argrad.cli import main
from argrad.recipes import RECIPES, find
from argrad.recipes.bench import Run, jobs, workers
from argrad.recipes.bench.log import read_log
from argrad.recipes.bench.options import changed
from argrad.recipes.bench.reproduce import reproduce
from argrad.recipes.files import StorageError

TESTS = Path(__file__).parent
TOY = str(TESTS / "toy_recipe.py")


@pytest.fixture
def recipe():
    return find(TOY)


def numbers(out: Path) -> dict[str, object]:
    """Everything that must not depend on how often a run was stopped, by cell."""
    found = {}
    for folder in sorted((out / "toy" / "cells").iterdir()):
        result = json.loads((folder / "result.json").read_text())
        found[folder.name] = (result["metrics"], log_of(folder))
    return found


def log_of(folder: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_log(folder)]


def lines(out: Path, cell: str) -> int:
    return sum(len(read_log(folder)) for folder in out.glob(f"toy/cells/{cell}*"))


def wait_for(condition, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


# ---- one process, hit at every file operation ----------------------------------------------------


@pytest.fixture(scope="module")
def trials(tmp_path_factory) -> list[dict]:
    out = tmp_path_factory.mktemp("trials")
    done = subprocess.run(
        [sys.executable, str(TESTS / "bench_trials.py"), str(out)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("mode", ["kill", "full"])
def test_hit_at_any_file_operation_it_goes_on_to_the_same_numbers(trials, mode):
    whole = trials[0]["after"]
    assert len(whole["log"]) == 3 and len(whole["metrics"]) == 2 and not whole["parts"]
    hit = [t for t in trials if t["mode"] == mode]
    assert len(hit) > 20 and hit[-1]["code"] == 0  # the last was not reached any more
    for trial in hit:
        assert trial["again"] == [0, ""]
        assert trial["after"] == whole, trial["at"]


def test_killed_it_leaves_only_parts_that_the_next_run_sweeps(trials):
    hit = [t for t in trials if t["mode"] == "kill"][:-1]
    assert {t["code"] for t in hit} == {-signal.SIGKILL}
    assert all(t["before"]["cut"] == 0 and t["before"]["parts"] <= 1 for t in hit)
    assert any(t["before"]["parts"] for t in hit)


def test_a_full_disk_is_a_sentence_and_leaves_nothing_half_written(trials):
    for trial in [t for t in trials if t["mode"] == "full"][:-1]:
        assert trial["code"] == 2, trial["text"]
        assert "No space left on device" in trial["text"] and "Traceback" not in trial["text"]
        assert trial["text"].endswith(
            ("then run the same command to go on from there.", "Choose another place.")
        )
        assert trial["before"]["cut"] == trial["before"]["parts"] == 0


# ---- every recipe --------------------------------------------------------------------------------


class Stopped(BaseException):
    """Thrown into a run in place of a kill."""


def check_resumes(one: jobs.Job, other: jobs.Job, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """`one` is trained in one go; `other` is stopped in the middle of each phase. The phases: none without steps."""
    jobs.train(one)
    steps, stopped = Run.steps, set()

    def stopping(run, total, *, phase="train", **parts):
        run.save_seconds = -1
        for step in steps(run, total, phase=phase, **parts):
            if step == total // 2 and phase not in stopped:
                stopped.add(phase)
                raise Stopped
            yield step

    monkeypatch.setattr(Run, "steps", stopping)
    while other.result is None:
        with contextlib.suppress(Stopped):
            jobs.train(other)
    monkeypatch.undo()
    assert untimed(other) == untimed(one)
    assert log_of(other.folder) == log_of(one.folder)
    return stopped


def untimed(job: jobs.Job) -> dict[str, float | None]:
    """Its numbers, without those that are times."""
    assert job.result is not None
    return {k: v for k, v in job.result["metrics"].items() if not re.search("second|time|speed", k)}


def smoke_jobs(name: str, tmp_path: Path, **options: Any) -> list[tuple[jobs.Job, jobs.Job]]:
    recipe = find(name)
    config = changed(recipe.smoke, options)
    pairs = (jobs.plan(recipe, config, (0,), tmp_path / side) for side in ("one", "other"))
    return [(a, b) for a, b in zip(*pairs, strict=True) if a.cell.row != "speed"]  # times never repeat


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_cell_of_every_recipe_resumes(name, tmp_path, monkeypatch):
    assert check_resumes(*smoke_jobs(name, tmp_path)[0], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_all_cells_of_every_recipe_resume(name, tmp_path, monkeypatch):
    stops = [check_resumes(one, other, monkeypatch) for one, other in smoke_jobs(name, tmp_path)]
    assert any(stops)  # beam search, for one, is done at once


@pytest.mark.slow
@pytest.mark.parametrize("column", ["Gumbel-softmax", "Annealed ST", "LeaveOneOut(4)"])
def test_compiled_steps_resume(column, tmp_path, monkeypatch, fresh_compiler):
    """Their noise is that of torch's own generator, whose state is kept; what changes does not compile again."""
    options = {"compile": True, "rows": ("categorical",), "columns": (column,)}
    (pair,) = smoke_jobs("vae", tmp_path, **options)
    assert check_resumes(*pair, monkeypatch)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


# ---- workers and their parent --------------------------------------------------------------------


def test_a_killed_worker_is_one_failed_cell_and_resumes(recipe, tmp_path, monkeypatch):
    config = changed(recipe.config, {"columns": ("SGD",)})
    monkeypatch.setenv("TOY", "cell=narrow, SGD;kill=7")
    with pytest.raises(ArgradError, match=r"'narrow, SGD' failed: it was ended by SIGKILL") as caught:
        reproduce(recipe, config, out=tmp_path / "a", workers=2, quiet=True)
    assert "All other cells are done; the same command goes on." in str(caught.value)
    assert lines(tmp_path / "a", "narrow-sgd") == 7 and lines(tmp_path / "a", "wide-sgd") == 20
    monkeypatch.delenv("TOY")
    summary = reproduce(recipe, config, out=tmp_path / "a", workers=2, quiet=True)
    assert all(len(c.metrics["error"]) == 1 for c in summary.cells)
    reproduce(recipe, config, out=tmp_path / "b", workers=1, quiet=True)
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_parent_that_is_interrupted_then_killed(recipe, tmp_path):
    out = tmp_path / "a"
    command = [sys.executable, "-m", "argrad", "reproduce", TOY, "--columns", "SGD", "--steps", "60"]
    config = changed(recipe.config, {"columns": ("SGD",), "steps": 60})

    def start() -> subprocess.Popen:
        return subprocess.Popen(
            [*command, "--workers", "2", "--out", str(out)],
            env={**os.environ, "TOY": "slow=0.7"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    process = start()
    wait_for(lambda: lines(out, "narrow") > 1 and lines(out, "wide") > 1)
    with pytest.raises(
        StorageError, match=r"another process is running this recipe in .*choose another"
    ):
        reproduce(recipe, config, out=out, quiet=True)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert error == (
        "\nargrad: stopped. Finished cells and the last checkpoints are kept; the same command goes on.\n"
    )
    before = lines(out, "narrow"), lines(out, "wide")
    assert min(before) > 1 and not list(out.rglob("*.part")) and not list(out.rglob("result*.json"))

    process = start()
    wait_for(lambda: lines(out, "narrow") > before[0] and lines(out, "wide") > before[1])
    orphans = children(process.pid)
    assert len(orphans) == 2 and all(map(is_running, orphans))
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(is_running, orphans)), 30)
    assert not list(out.rglob("result*.json"))

    reproduce(recipe, config, out=out, workers=1, quiet=True)
    reproduce(recipe, config, out=tmp_path / "b", workers=1, quiet=True)
    assert numbers(out) == numbers(tmp_path / "b")


def test_a_crash_is_told_with_its_last_line(recipe, tmp_path, monkeypatch):
    (state,) = [workers.State(jobs.plan(recipe, recipe.smoke, (0,), tmp_path)[0])]
    jobs.write_down(state.job)
    (state.job.folder / "stderr.txt").write_text("Traceback ...\nZeroDivisionError: on purpose\n")

    class Ended:
        stdin, returncode = None, 1

    (sentence,) = workers._end(state, Ended())
    assert sentence.startswith(
        "The cell 'narrow, SGD' failed: ZeroDivisionError: on purpose. More is in "
    )
    Ended.returncode = workers.REFUSED  # it would be the same for all cells
    (state.job.folder / "stderr.txt").write_text("cannot write x: No space left on device.\n")
    with pytest.raises(ArgradError, match=r"^cannot write x: No space left on device\.$"):
        workers._end(state, Ended())


def test_a_worker_reads_its_job_from_the_folder(recipe, tmp_path):
    config = changed(recipe.config, {"columns": ("Half SGD ½",), "clip": 1.5, "sizes": ()})
    (job,) = jobs.plan(recipe, changed(config, {"rows": ("wide",)}), (3,), tmp_path)
    jobs.write_down(job)
    again = jobs.load(job.folder)
    assert (again.cell, again.seed, again.folder) == (job.cell, 3, job.folder)
    assert again.describe() == job.describe() and again.recipe.file == recipe.file
    assert (again.config.clip, again.config.sizes, again.config.columns) == (1.5, (), ("Half SGD ½",))


# ---- Ctrl-C in this process ----------------------------------------------------------------------


def test_ctrl_c_saves_the_step_that_it_meets(recipe, tmp_path, monkeypatch, capsys):
    handler = signal.getsignal(signal.SIGINT)
    words = ["reproduce", TOY, "--columns", "SGD", "--workers", "1", "--quiet", "--out"]
    monkeypatch.setenv("TOY", "cell=wide, SGD;int=7")
    assert main([*words, str(tmp_path / "a")]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "\nargrad: stopped. Finished cells and the last checkpoints are kept; the same command goes on.\n"
    )
    assert signal.getsignal(signal.SIGINT) is handler
    assert lines(tmp_path / "a", "wide-sgd") == 8  # the step was finished, and logged
    (path,) = (tmp_path / "a").glob("toy/cells/wide*/train.pt")
    assert torch.load(path, weights_only=True)["step"] == 8
    monkeypatch.delenv("TOY")
    assert main([*words, str(tmp_path / "a")]) == main([*words, str(tmp_path / "b")]) == 0
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")


def test_a_second_ctrl_c_is_at_once(tmp_path):
    run = Run(tmp_path, 0, save_seconds=0)
    reached = []
    with pytest.raises(KeyboardInterrupt), run.interrupts_between_steps():
        for step in run.steps(5):
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(step)
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("never")
    assert reached == [0] and not (tmp_path / "train.pt").exists()


def test_ctrl_c_outside_of_steps_is_at_once(tmp_path):
    run = Run(tmp_path, 0)
    with pytest.raises(KeyboardInterrupt), run.interrupts_between_steps():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)


# ---- checkpoints ---------------------------------------------------------------------------------


def parts() -> dict[str, object]:
    model = nn.Linear(3, 2)
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters()),
        "noise": torch.Generator().manual_seed(1),
    }


def trained(folder: Path, stop: int = 5, total: int = 4) -> list[float]:
    """A run that ends at `stop`; its logged losses."""
    torch.manual_seed(0)
    made = parts()
    run = Run(folder, 0, save_seconds=-1, log_every=3)
    for step in itertools.islice(run.steps(total, **made), stop):
        x = torch.randn(4, 3, generator=made["noise"]) + torch.rand(())
        loss = made["model"](x).square().mean()
        made["optimizer"].zero_grad()
        loss.backward()
        made["optimizer"].step()
        run.log(loss=loss, step=float(step))
    return [line["loss"] for line in read_log(folder)]


def test_means_of_a_line_reach_over_a_stop(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = trained(tmp_path / "a", total=9, stop=10)
    for stop in (2, 3, 2, 10):  # a step at which the loop is left is not counted: 1, 3, 4, then all
        found = trained(tmp_path / "b", total=9, stop=stop)
    assert found == whole and len(whole) == 3


def test_several_phases_have_their_own_steps(tmp_path):
    def run_both(stop: int) -> list[tuple[str, int]]:
        run, seen = Run(tmp_path, 0, save_seconds=-1, log_every=1), []
        noise = run.generator()
        for phase in ("first", "second"):
            for step in run.steps(3, phase=phase, noise=noise):
                if len(seen) == stop:
                    return seen
                seen.append((phase, step))
                run.log(value=torch.rand((), generator=noise))
        return seen

    assert run_both(4) == [("first", 0), ("first", 1), ("first", 2), ("second", 0)]
    assert run_both(9) == [("second", 1), ("second", 2)]
    assert run_both(9) == []
    whole = [line["value"] for line in read_log(tmp_path)]
    assert [(x["phase"], x["step"]) for x in read_log(tmp_path)] == [
        (phase, step) for phase in ("first", "second") for step in (1, 2, 3)
    ]
    assert len(set(whole)) == 6


class Malicious:
    """Pickled, it would make a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_checkpoint_never_runs_code(tmp_path):
    for write in (
        lambda value, path: path.write_bytes(pickle.dumps(value)),
        torch.save,
        lambda value, path: torch.save(value, path, _use_new_zipfile_serialization=False),
    ):
        write({"step": 1, "parts": Malicious(tmp_path / "harmed")}, tmp_path / "train.pt")
        with pytest.raises(StorageError) as caught:
            trained(tmp_path)
        text = str(caught.value)
        assert "cannot go on from" in text and "not a checkpoint of ours. Delete the folder" in text
        assert "weights_only" not in text and "\n" not in text
        assert not (tmp_path / "harmed").exists()


def test_a_damaged_checkpoint_is_a_sentence(tmp_path):
    trained(tmp_path, stop=3)
    path = tmp_path / "train.pt"
    whole = path.read_bytes()
    middle = whole.index(b"data/0") + 200  # inside a tensor
    flipped = bytes(b ^ (16 if i == middle else 0) for i, b in enumerate(whole))
    for data in (b"", whole[:-1], whole[: len(whole) // 2], b"x" * 100, flipped):
        path.write_bytes(data)
        with pytest.raises(StorageError, match=r"it is damaged.*Delete the folder .* or give --fresh"):
            trained(tmp_path)
    path.write_bytes(whole)
    assert trained(tmp_path)


def test_a_checkpoint_of_another_recipe_is_a_sentence(tmp_path):
    trained(tmp_path, stop=3)
    run = Run(tmp_path, 0)
    with pytest.raises(StorageError, match=r"it holds model, noise, optimizer; the recipe has model"):
        next(run.steps(4, model=nn.Linear(3, 2)))
    other = {**parts(), "model": nn.Linear(5, 5)}
    with pytest.raises(StorageError, match="its 'model' does not fit the recipe") as caught:
        next(run.steps(4, **other))
    assert "\n" not in str(caught.value)


def test_a_state_that_cannot_be_kept_is_refused_at_the_first_checkpoint(tmp_path):
    class Part:
        def state_dict(self):
            return {"path": Path("x")}

    run = Run(tmp_path, 0, save_seconds=-1)
    with pytest.raises(
        InputError, match="the state of part holds something that a checkpoint cannot keep"
    ):
        list(run.steps(2, part=Part()))
    assert not (tmp_path / "train.pt").exists()


def test_training_leaves_torch_as_it_was(recipe, tmp_path):
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    reproduce(recipe, recipe.smoke, preset="smoke", out=tmp_path, quiet=True)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads


def test_seeds_and_streams_differ(tmp_path):
    draws = [
        torch.rand(4, generator=Run(tmp_path, seed).generator(stream)).tolist()
        for seed in range(3)
        for stream in range(3)
    ]
    assert len({tuple(d) for d in draws}) == 9
