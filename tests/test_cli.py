"""The command line: quick without torch, clear about bad input, clean when interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import argrad
from argrad import _catalogue
from argrad._problems import estimator_classes
from argrad.cli import main

# Runs a command and fails if torch was loaded on the way.
WITHOUT_TORCH = """
import sys
from argrad.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
loaded = {"torch", "numba", "numpy", "rich", "sklearn"} & set(sys.modules)
assert not loaded, loaded
sys.exit(code)
"""


def run(*args: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(args, capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.mark.parametrize(
    "args",
    [
        *("", "--help", "--version", "demo --help", "list --help", "cite --help"),
        *("list", "list noise --json", "cite gumbel_softmax", "cite --all"),
    ],
)
def test_what_needs_no_torch_loads_no_torch(args: str):
    done = run(sys.executable, "-c", WITHOUT_TORCH, *args.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout and not done.stderr


def test_python_m_and_the_script_are_the_same():
    script = Path(sys.executable).with_name("argrad")
    version = f"argrad {argrad.__version__}\n"
    assert run(sys.executable, "-m", "argrad", "--version").stdout == version
    if script.exists():
        assert run(str(script), "--version").stdout == version


def test_no_command_shows_the_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("demo", "list", "cite"))


# ---- list ----------------------------------------------------------------------------------------


def test_list_shows_every_public_name(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    words = set(out.split())
    assert set(argrad.__all__) - set(vars(argrad)["_modules"]) <= words
    assert "Gumbel toolbox" in out and "[jang2017, maddison2017]" in out
    assert "$" not in out and "\\" not in out


def test_list_of_one_kind(capsys):
    assert main(["list", "Gumbel"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == [p.name for p in _catalogue.parts().values() if p.kind == "gumbel"]
    assert "gumbel_softmax" in names and "NoNoise" not in names


def test_list_as_json(capsys):
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} == set(_catalogue.parts())
    row = next(row for row in rows if row["name"] == "gumbel_max")
    assert row["kind"] == "gumbel" and row["references"] == ["gumbel1954", "maddison2014"]


def test_list_shows_the_flags_of_estimators(capsys):
    """Read from the sources, they are those of the classes."""
    assert main(["list", "estimators", "--json"]) == 0
    flags = {part["name"]: part["flags"] for part in json.loads(capsys.readouterr().out)}
    for name, kind in estimator_classes().items():
        bias = "unbiased" if kind.is_unbiased else "biased"
        needs = "differentiable cost" if kind.needs_differentiable_f else "any cost"
        assert flags[name] == [bias, needs], name
    assert main(["list", "estimators"]) == 0
    assert "(unbiased, any cost) REINFORCE" in capsys.readouterr().out


def test_list_of_an_unknown_kind(capsys):
    assert main(["list", "colours"]) == 2
    assert "no kind 'colours'; the kinds are gumbel" in capsys.readouterr().err


def test_list_wraps_for_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_closed_pipe_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "argrad", "cite", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.readline()
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) in (0, 141) and error == b""


# ---- cite ----------------------------------------------------------------------------------------


def test_cite_prints_bibtex(capsys):
    assert main(["cite", "gumbel_max", "jang2017"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("@")] == [
        "@book{gumbel1954,",
        "@inproceedings{maddison2014,",
        "@inproceedings{jang2017,",
    ]


def test_cite_says_when_nothing_is_cited(capsys):
    assert main(["cite", "InputError"]) == 0
    assert capsys.readouterr().out == "% InputError cites nothing.\n"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["cite", "gumbel_sofmax"], "nearest are `gumbel_softmax`"),
        (["cite"], "give names"),
        (["cite", "--all", "gumbel_max"], "one of the two"),
    ],
)
def test_cite_bad_input(args, sentence, capsys):
    assert main(args) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err and captured.out == ""


# ---- demo: what can go wrong before it starts ----------------------------------------------------


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--seconds", "0"], "must be a positive number of seconds; got '0'"),
        (["--seconds", "nan"], "must be a positive number"),
        (["--seconds", "soon"], "must be a number; got 'soon'"),
        (["--steps", "0"], "must be at least 1; got '0'"),
        (["--steps", "1.5"], "must be a number; got '1.5'"),
        (["--seed", "-1"], "must be an integer from 0"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_demo_bad_numbers(args, sentence, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", *args])
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_demo_places_that_cannot_be_written(tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    places = {
        tmp_path: "is a folder",
        tmp_path / "missing" / "report.html": "does not exist. Make it first",
        file / "report.html": "does not exist",
        Path("/dev/null"): "is not a regular file",
        tmp_path / ("x" * 300): "cannot be written: File name too long",
    }
    for place, sentence in places.items():
        assert main(["demo", "--out", str(place)]) == 2
        assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_demo_folder_without_permission(tmp_path, capsys):
    tmp_path.chmod(0o500)
    assert main(["demo", "--out", str(tmp_path / "report.html")]) == 2
    assert "cannot be written: Permission denied" in capsys.readouterr().err


def test_demo_without_scikit_learn(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)  # makes `import sklearn` fail
    assert main(["demo", "--out", str(tmp_path / "report.html")]) == 2
    assert (
        'needs scikit-learn, which is not installed. Run: pip install "argrad[recipes]"'
        in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


# ---- interruption --------------------------------------------------------------------------------


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "argrad",
            "demo",
            "--steps",
            "1000000",
            "--out",
            str(tmp_path / "r.html"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "argrad demo" in process.stdout.readline()  # training begins
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "\nargrad: stopped. No file was written.\n"
    assert not list(tmp_path.iterdir())


def test_diagnose_prints_a_table_and_refuses_nonsense(capsys, tmp_path) -> None:
    few = ["diagnose", "--replicates", "200", "--n", "4"]
    assert main([*few, "--estimators", "LeaveOneOut,straight_through", "--race"]) == 0
    out = capsys.readouterr().out
    assert "LeaveOneOut" in out
    assert "StraightThrough" in out
    assert "recommended" in out
    picture = tmp_path / "bias.png"
    arguments = ["--structure", "subset", "--k", "2", "--estimators", "Reinforce", "--json"]
    assert main([*few, *arguments, "--plot", str(picture)]) == 0
    assert json.loads(capsys.readouterr().out)["oracle"] == "enumeration"
    assert picture.stat().st_size > 1000
    for wrong, sentence in {
        ("--structure", "ring"): "--structure must be one of",
        ("--cost", "free"): "--cost must be one of",
        ("--estimators", "Rebor"): "Did you mean Rebar",
    }.items():
        assert main([*few, *wrong]) == 2
        assert sentence in capsys.readouterr().err
