"""The notebooks run, and show what their sources say."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")


def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.fixture
def settings_as_before() -> Iterator[None]:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def test_there_are_three() -> None:
    assert sorted(runner().NAMES) == NAMES
    assert len(NAMES) == 3


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.usefixtures("settings_as_before")
@pytest.mark.parametrize("name", NAMES)
def test_the_cells_run(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: a kernel of its own takes longer to start than the cells to run."""
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("sklearn")
    plt.switch_backend("Agg")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    page = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, page)
    for kind, text in runner().cells(name):
        if kind == "code":
            exec(compile(text, f"notebooks/{name}.py", "exec", dont_inherit=True), page.__dict__)
    kept = printed(nbformat.read(FOLDER / f"{name}.ipynb", 4))
    assert wording(capsys.readouterr().out) == wording(kept)


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = (o for cell in notebook.cells for o in cell.get("outputs", []))
    return "".join(o["text"] for o in outputs if o["output_type"] == "stream" and o["name"] == "stdout")


def wording(text: str) -> str:
    """Without numbers: the last digits of a training differ between machines, and so may a verdict."""
    return " ".join(re.sub(r"no bias seen|bias [\d.]+|[-\d.]+", "#", text).split())


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_is_that_of_its_source(name: str) -> None:
    kept = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    nbformat.validate(kept)
    found = [(cell.cell_type, cell.source) for cell in kept.cells]
    assert found == runner().cells(name), f"run `.venv/bin/python notebooks/run.py {name}`"
    outputs = [o for cell in kept.cells for o in cell.get("outputs", [])]
    assert any("image/png" in o.get("data", {}) for o in outputs), "no figure is stored"
    assert not any(o["output_type"] == "error" for o in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_kernel_shows_the_same(name: str) -> None:
    kept = printed(nbformat.read(FOLDER / f"{name}.ipynb", 4))
    assert wording(printed(runner().executed(name))) == wording(kept)
