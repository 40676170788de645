"""What a run leaves: results, a page, a log; what it shows; and when it is not content with itself."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import types
from pathlib import Path

import pytest
import rich
from rich.console import Console

import toy_recipe
from argrad._errors import InputError
from argrad.cli import main
from argrad.recipes import RECIPES, find, live
from argrad.recipes.bench import Recipe, Run
from argrad.recipes.bench.jobs import plan
from argrad.recipes.bench.log import Log, last_line, read_log
from argrad.recipes.bench.options import changed
from argrad.recipes.bench.page import finding, render
from argrad.recipes.bench.reproduce import reproduce
from argrad.recipes.files import StorageError, append_line, make_folder, sweep, write_bytes
from html_page import Page

TOY = str(Path(toy_recipe.__file__))
RECIPE = find(TOY)
SHORT = changed(RECIPE.config, {"steps": 3})


def quick(**changes) -> Recipe:
    """The toy recipe with three steps, and whatever else is to be different."""
    return dataclasses.replace(RECIPE, config=SHORT, full=SHORT, **changes)


def untrained(metric: float):
    return lambda config, cell, run: {"error": metric}


# ---- one run, looked at from all sides -----------------------------------------------------------


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    words = ["--seeds", "2", "--quiet", "--workers", "1", "--out", str(folder), "--sizes", "7"]
    assert main(["reproduce", TOY, *words]) == 0
    return folder


@pytest.fixture(scope="module")
def results(out) -> dict:
    return json.loads((out / "toy" / "results.json").read_text())


def test_the_results_say_everything(results, out):
    assert results["recipe"] == "toy" and results["preset"] == "default" and results["passed"] is True
    assert results["seeds"] == [0, 1] and results["config"]["sizes"] == [7]
    assert {"cpu", "cores", "os", "python", "torch", "argrad", "date"} <= set(results["machine"])
    assert {"title", "source", "about", "metric", "unit", "better", "digits", "claims"} <= set(results)
    assert len(results["cells"]) == 4
    assert results["seconds"] == pytest.approx(2 * sum(c["seconds"] for c in results["cells"]))
    for cell in results["cells"]:
        values = cell["metrics"]["error"]
        assert len(values) == 2 and values[0] != values[1]
        assert cell["mean"] == statistics.fmean(values)
        assert cell["deviation"] == statistics.stdev(values)
        assert cell["published"] == (0.5 if cell["row"] == "narrow" else None)
        assert cell["in_band"] is True and cell["band"] is None  # an option was changed
        assert cell["settings"] == {"factor": toy_recipe.COLUMNS[cell["column"]]}
    files = sorted(p.name for p in (out / "toy").iterdir())
    assert files == ["cells", "lock", "report.html", "results.json"]


def test_the_command_can_be_run_again(results, out, capsys):
    assert results["command"] == f"argrad reproduce {TOY} --seeds 2 --sizes 7"
    before = (out / "toy" / "report.html").read_text()
    assert main([*shlex.split(results["command"])[1:], "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "8 of 8 are done already." in printed
    again = json.loads((out / "toy" / "results.json").read_text())
    assert again["cells"] == results["cells"]
    assert len(before) == len((out / "toy" / "report.html").read_text())


def test_the_page_stands_alone(out):
    text = (out / "toy" / "report.html").read_text("utf-8")
    page = Page(text)
    assert page.open == [] and page.stands_alone(text)
    assert "prefers-color-scheme: dark" in text and 'name="color-scheme" content="light dark"' in text
    assert page.count["svg"] == 2 + 2  # a chart a row, and two colours in the legend
    assert text.count("published 0.50") == 2 and text.count('class="best"') == 2
    assert "A line is fitted to &lt;points&gt;." in text and "Least squares &amp; noise" in text
    assert f"argrad reproduce {TOY} --seeds 2 --sizes 7" in text
    assert "Mean and deviation over 2 seeds." in text and "±" in text
    assert "nan" not in text.lower() and "None" in text  # the option `clip`
    assert len(text) < 60_000


def test_the_page_of_a_large_table_has_groups_of_colours(tmp_path):
    cells = [toy_recipe.Cell("", f"way {i}", settings={"factor": 0.1}) for i in range(11)]
    recipe = quick(cells=lambda config: cells, claims=None)
    summary = reproduce(recipe, SHORT, out=tmp_path, quiet=True, workers=1)
    text = render(summary)
    assert Page(text).open == [] and text.count('class="chart"') == 2  # of eight and of three lines
    assert 'data-label="error"' in text  # rows without a name show what the number is


# ---- a recipe in one file ------------------------------------------------------------------------


def test_the_recipe_of_the_documentation(tmp_path, capsys):
    page = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text("utf-8")
    (source,) = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "RECIPE" in block
    ]
    path = tmp_path / "bandit.py"
    path.write_text(source)
    assert main(["reproduce", str(path), "--smoke", "--out", str(tmp_path)]) == 0
    assert "3 cells trained; 3 stated bands hold." in capsys.readouterr().out
    words = ["--items", "4,6", "--steps", "3", "--seeds", "2", "--out", str(tmp_path), "--workers", "1"]
    assert main(["reproduce", str(path), *words]) == 0
    results = json.loads((tmp_path / "bandit" / "results.json").read_text())
    assert [c["row"] for c in results["cells"]] == ["4 items"] * 3 + ["6 items"] * 3
    assert results["command"] == f"argrad reproduce {path} --seeds 2 --items 4,6 --steps 3"


# ---- judgement -----------------------------------------------------------------------------------


@pytest.fixture
def registered(monkeypatch):
    """Make a recipe one of argrad's own, under the name toy."""

    def register(recipe: Recipe) -> Recipe:
        module = types.ModuleType("registered_recipe")
        module.RECIPE = dataclasses.replace(recipe, file=None)
        monkeypatch.setitem(sys.modules, "registered_recipe", module)
        monkeypatch.setitem(RECIPES, "toy", "registered_recipe")
        return module.RECIPE

    return register


def test_a_number_outside_its_band_is_exit_code_1(registered, tmp_path, capsys):
    registered(quick(train=untrained(-1.5)))
    words = ["reproduce", "toy", "--workers", "1", "--out"]
    assert main([*words, str(tmp_path / "a"), "--full"]) == 1  # the bands hold, a claim does not
    assert main([*words, str(tmp_path / "b")]) == 1
    assert (
        "Outside its band: narrow, SGD; narrow, Half SGD ½; wide, Half SGD ½."
        in capsys.readouterr().out
    )
    text = (tmp_path / "b" / "toy" / "report.html").read_text()
    assert text.count("⚠") == 4 and "marks a number outside its stated band" in text
    assert main([*words, str(tmp_path / "c"), "--steps", "4"]) == 0  # bands are for the preset as it is
    assert "no bands are stated for these options" in capsys.readouterr().out
    cells = json.loads((tmp_path / "b" / "toy" / "results.json").read_text())["cells"]
    assert [c["in_band"] for c in cells] == [False, False, True, False]
    assert cells[0]["deviation"] is None and cells[0]["band"] == [0.0, 50.0]


def test_claims(tmp_path):
    def by_rate(config, cell, run):
        return {"error": cell.settings["factor"]}

    def with_claims(train, **options):
        return reproduce(quick(train=train), SHORT, out=tmp_path, quiet=True, workers=1, **options)

    summary = with_claims(by_rate)
    assert summary.passed and [c.holds for c in summary.claims] == [True]
    assert finding(summary) == "4 cells trained; 3 stated bands and 1 claim hold."
    summary = with_claims(untrained(1.0), fresh=True)
    assert not summary.passed
    assert finding(summary) == "Not borne out: half the rate is <better> than all of it."
    assert '<li class="fails">half the rate is &lt;better&gt;' in render(summary)
    recipe = quick(smoke=SHORT, train=untrained(1.0))
    smoke = reproduce(recipe, SHORT, preset="smoke", out=tmp_path, quiet=True)
    assert smoke.passed and smoke.claims == []  # a smoke test is too short for them


def test_a_number_that_is_none_never_passes(tmp_path):
    for value in (math.nan, math.inf):
        recipe = quick(train=untrained(value), bands={}, claims=None)
        summary = reproduce(recipe, SHORT, out=tmp_path / str(value), quiet=True, workers=1)
        assert not summary.passed and finding(summary).startswith("Not a number: narrow, SGD, narrow")
        text = render(summary)
        assert "nan" not in text.lower() and ">⚠ –<" in text
        data = json.loads((tmp_path / str(value) / "toy" / "results.json").read_text())
        assert data["cells"][0]["mean"] is None and data["passed"] is False


def test_missing_cells_are_not_numbers(tmp_path):
    summary = reproduce(quick(), SHORT, out=tmp_path, quiet=True, workers=1)
    assert summary.find("narrow", "no such column") is None
    assert math.isnan(summary["narrow", "no such column"].mean())
    assert summary["narrow", "SGD"].mean("bias") == summary["narrow", "SGD"].metrics["bias"][0]
    assert math.isnan(summary["narrow", "SGD"].mean("no such metric"))
    assert (summary.rows, summary.columns) == (["narrow", "wide"], ["SGD", "Half SGD ½"])


# ---- what is trained, and what is kept -----------------------------------------------------------


def test_finished_cells_are_kept_unless_fresh(tmp_path):
    seen = []

    def train(config, cell, run):
        seen.append(cell.name)
        return {"error": 1.0}

    def run(columns, **options):
        seen.clear()
        config = changed(SHORT, {"columns": columns})
        reproduce(
            quick(train=train, claims=None), config, out=tmp_path, quiet=True, workers=1, **options
        )
        return list(seen)

    assert run(("SGD",)) == ["narrow, SGD", "wide, SGD"]
    assert run(("SGD", "Half SGD ½")) == ["narrow, Half SGD ½", "wide, Half SGD ½"]
    assert run(("SGD",)) == []
    assert run(("SGD",), seeds=(0, 1)) == ["narrow, SGD", "wide, SGD"]
    assert run(("SGD",), fresh=True) == ["narrow, SGD", "wide, SGD"]
    assert run(("Half SGD ½",)) == []


def test_folders_tell_configurations_apart(tmp_path):
    def names(config=SHORT, seeds=(0,)):
        return [job.folder.name for job in plan(RECIPE, config, seeds, tmp_path)]

    assert len(set(names(seeds=range(3)))) == 12
    assert not set(names()) & set(names(changed(SHORT, {"rate": 0.2})))
    assert set(names(changed(SHORT, {"columns": ("SGD",)}))) < set(names())
    assert names()[0].startswith("narrow-sgd.seed0.") and len(names()[0]) < 100


def test_no_cell_is_a_sentence(tmp_path):
    recipe = quick(cells=lambda config: [])
    with pytest.raises(InputError, match="these options select no cell of 'toy'"):
        reproduce(recipe, SHORT, out=tmp_path, quiet=True)


def test_a_recipe_that_forgets_its_metric(tmp_path):
    recipe = quick(train=lambda config, cell, run: {"mistake": 1.0})
    with pytest.raises(InputError, match="must return 'error', which the table shows; got mistake"):
        reproduce(recipe, SHORT, out=tmp_path, quiet=True, workers=1)


def test_an_error_of_the_recipe_is_not_taken_for_one_of_the_disk(tmp_path):
    def train(config, cell, run):
        return Path("/no/such/file").read_text()

    with pytest.raises(FileNotFoundError):
        reproduce(quick(train=train), SHORT, out=tmp_path, quiet=True, workers=1)


@pytest.mark.parametrize(
    ("text", "sentence"), [("{", "cannot read .*result.json"), ("[]", "is not a result of ours")]
)
def test_a_broken_result_is_a_sentence(text, sentence, tmp_path):
    reproduce(quick(), SHORT, out=tmp_path, quiet=True, workers=1)
    next((tmp_path / "toy" / "cells").iterdir()).joinpath("result.json").write_text(text)
    with pytest.raises(StorageError, match=sentence):
        reproduce(quick(), SHORT, out=tmp_path, quiet=True, workers=1)


# ---- the log -------------------------------------------------------------------------------------


def test_a_log_keeps_whole_lines_up_to_the_checkpoint(tmp_path):
    assert read_log(tmp_path) == [] and last_line(tmp_path) is None
    log = Log(tmp_path, "train", 0, 9)
    for step in range(1, 5):
        log.write(step, {"loss": math.nan if step == 2 else step / 2}, 0.123)
    with log.path.open("ab") as file:
        file.write(b'{"phase":"train","step":5,"lo')  # killed in the middle
    assert last_line(tmp_path) == {"phase": "train", "step": 4, "of": 9, "loss": 2.0, "seconds": 0.12}
    assert [line["loss"] for line in read_log(tmp_path)] == [0.5, None, 1.5, 2.0]
    other = Log(tmp_path, "test", 0, 1)
    other.write(1, {}, 0.0)
    Log(tmp_path, "train", 3, 9)
    assert [(line["phase"], line["step"]) for line in read_log(tmp_path)] == [
        *(("train", 1), ("train", 2), ("train", 3), ("test", 1))
    ]


def test_tensorboard_is_used_if_it_is_there(tmp_path, monkeypatch):
    made = []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            self.folder, self.purge_step, self.scalars, self.closed = folder, purge_step, [], False
            made.append(self)

        def add_scalar(self, name, value, step):
            self.scalars.append((name, value, step))

        def close(self):
            self.closed = True

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    run = Run(tmp_path, 0, save_seconds=-1, log_every=2)
    for step in run.steps(3):
        run.log(loss=float(step))
        if step == 2:
            break
    for step in run.steps(3):
        run.log(loss=float(step))
    first, second = made
    assert first.folder == tmp_path / "tensorboard" and first.closed and second.closed
    assert (first.purge_step, second.purge_step) == (1, 3)
    assert first.scalars == [("train/loss", 0.5, 2)] and second.scalars == [("train/loss", 2.0, 3)]

    def full(self, name, value, step):
        raise OSError(28, "No space left on device")

    SummaryWriter.add_scalar = full
    with pytest.raises(StorageError, match=r"cannot write .*tensorboard: No space left on device"):
        for _ in run.steps(9, phase="other"):
            run.log(loss=1.0)


# ---- what a person sees --------------------------------------------------------------------------


def test_plain_lines_elsewhere(tmp_path, capsys):
    reproduce(quick(), SHORT, out=tmp_path, workers=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "argrad reproduce toy: Least squares & noise"
    assert lines[1].strip().startswith("10 %") or lines[1].strip().startswith("20 %")
    assert " 100 %  error from " in "\n".join(lines)
    table = lines[-7:-2]
    assert table[0].split() == ["cell", "step", "logged", "error", "seconds"]
    assert all(line.split()[-4] == "done" for line in table[1:])
    assert lines[-2].startswith(("4 cells trained", "Not borne out"))
    assert lines[-1] == f"Report: {tmp_path / 'toy' / 'report.html'}"
    reproduce(quick(), SHORT, out=tmp_path, workers=1)
    again = capsys.readouterr().out
    assert "4 of 4 are done already." in again and "nan" not in again and " – " in again
    reproduce(quick(), SHORT, out=tmp_path, workers=1, quiet=True)
    assert capsys.readouterr().out == ""


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 12 lines that remembers what was written."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, height=12, color_system=None)
    monkeypatch.setattr(rich, "get_console", lambda: screen)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    return screen


def test_a_live_table_in_a_terminal(terminal, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY", "slow=0.05")  # the table is drawn eight times a second
    reproduce(quick(), SHORT, out=tmp_path, workers=1)
    text = terminal.file.getvalue()
    assert re.search(r"[123] of 3 ", text) and "training ━" in text and " left" in text
    last = text[text.rindex("argrad reproduce toy") :]
    assert last.count(" done ") == 4 and "\ndone ━" in last.replace("\r", "")
    assert "Report: " in last.splitlines()[-1]
    assert text.index("━") < text.rindex("Report: ") and "nan" not in text


def test_many_cells_fit_the_terminal(terminal):
    table = live.Table("title [not markup]", ("cell", "step", "loss", "error"), main=2)
    lines = [
        live.Line(
            f"cell {i}", ("done" if i < 20 else "–", 1.0, 50.0 - i if i < 20 else math.nan), i == 20
        )
        for i in range(50)
    ]
    with live.progress(table) as show:
        show.update(lines, 20, 50)
        terminal.print(show._render())
        shown = terminal.file.getvalue()
        assert "title [not markup]" in shown and "cell 20 " in shown and "and 46 more" in shown
        assert "cell 3 " not in shown and "40 %" in shown
        terminal.file.truncate(0)
        show.finish(lines)
    assert all(f"cell {i} " in terminal.file.getvalue() for i in range(50))


@pytest.mark.parametrize("count", [0, 1, 4, 50])
@pytest.mark.parametrize("running", [0, 3, 49])
def test_running_lines_stay_in_sight(count, running):
    lines = [live.Line(str(i), (), running <= i < running + 2) for i in range(count)]
    shown = live.in_sight(lines, 4)
    assert len(shown) == min(count, 4)
    assert not lines[running : running + 1] or lines[running] in shown


def test_the_best_is_the_largest_where_larger_is_better(capsys):
    table = live.Table("t", ("cell", "a", "accuracy"), lower_is_better=False)
    lines = [
        live.Line("low", (0.0, 0.5)),
        live.Line("none", (0.0, math.nan)),
        live.Line("high", (0.0, 0.9)),
    ]
    assert [line.name for line in table.known(lines)] == ["high", "low"]
    live.PlainProgress(table).update(lines, 1, 2)
    assert "  50 %  accuracy from 0.90 (high) to 0.50 (low)" in capsys.readouterr().out


# ---- the disk ------------------------------------------------------------------------------------


@pytest.fixture
def small_files():
    """No file may be larger than 2000 bytes: the system itself refuses, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path, small_files):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with pytest.raises(
        StorageError, match=r"cannot write .*file: File too large. What was saved before"
    ):
        write_bytes(path, b"x" * 3000)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_line_that_does_not_fit_leaves_none_of_it(tmp_path, small_files):
    path = tmp_path / "log"
    append_line(path, "x" * 1900)
    with pytest.raises(StorageError, match="cannot write"):
        append_line(path, "y" * 200)  # its first 99 bytes fit
    assert path.read_text() == "x" * 1900 + "\n"


def test_a_run_without_space_goes_on_when_there_is_some(tmp_path, capfd, small_files):
    words = ["reproduce", TOY, "--smoke", "--quiet", "--out", str(tmp_path)]
    assert main(words) == 2
    error = capfd.readouterr().err
    assert "train.pt: File too large." in error and error.count("\n") == 1
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert main(words) == 0


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("file", "cannot be used as a folder: Not a directory"),
        ("/proc/nothing", "cannot be used as a folder: No such file or directory"),
        ("x" * 300, "cannot be used as a folder: File name too long"),
        ("~nobody-of-this-name", "cannot be used as a folder: Could not determine home directory"),
    ],
)
def test_places_that_cannot_be_used(place, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert main(["reproduce", TOY, "--smoke", "--out", place]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err and captured.err.rstrip().endswith("Choose another place.")
    assert captured.out == "" and list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_folder_without_permission(tmp_path, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        Path, "touch", refuse
    )  # root may write everywhere, so the mode alone proves nothing
    with pytest.raises(InputError, match=r"`--out .*` cannot be used as a folder: Permission denied"):
        make_folder(tmp_path)


def test_parts_of_running_processes_are_not_swept(tmp_path):
    """Several ranks look whether they can write to a folder while one of them tidies it."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    parent, own = os.getppid(), os.getpid()
    for name in (ended.pid, parent, own, "x", 10**30):
        (tmp_path / f".argrad-{name}.part").touch()
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [f".argrad-{parent}.part"]


def test_a_folder_may_be_tidied_while_it_is_tried(tmp_path, monkeypatch):
    touch = Path.touch

    def touch_and_lose(path: Path) -> None:
        touch(path)
        path.unlink()

    monkeypatch.setattr(Path, "touch", touch_and_lose)
    assert make_folder(tmp_path / "out") == (tmp_path / "out").resolve()
