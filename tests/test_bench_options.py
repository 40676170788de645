"""A configuration and its flags say the same; every wrong word is one sentence."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toy_recipe
from argrad._errors import InputError
from argrad.cli import main
from argrad.recipes import RECIPES, commands, find
from argrad.recipes.bench import reproduce as reproduce_module
from argrad.recipes.bench.options import add_flags, as_dict, changed, check, differing_flags, from_dict

TOY = str(Path(toy_recipe.__file__))


def read(words: list[str], config: toy_recipe.Config) -> toy_recipe.Config:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, toy_recipe.Config())
    return changed(config, vars(parser.parse_args(words)))


# ---- round trips ---------------------------------------------------------------------------------

TEXTS = st.text(
    st.characters(exclude_categories=("C", "Z"), exclude_characters=","), min_size=1
).filter(lambda text: text != "all")
CONFIGS = st.builds(
    toy_recipe.Config,
    rows=st.lists(TEXTS, max_size=3).map(tuple),
    columns=st.lists(TEXTS.map(lambda t: f"a {t}"), max_size=3).map(tuple),
    steps=st.integers(1, 10**9),
    rate=st.floats(1e-300, 1e300),
    shape=st.sampled_from(["line", "curve"]),
    clip=st.none() | st.floats(-1e9, 1e9),
    sizes=st.lists(st.integers(1, 99), max_size=3).map(tuple),
    momentum=st.booleans(),
)


@given(CONFIGS, CONFIGS)
def test_flags_turn_one_configuration_into_any_other(preset, config):
    line = " ".join(differing_flags(config, preset))  # as it is printed, for a shell
    assert read(shlex.split(line), preset) == config


@given(CONFIGS)
def test_json_keeps_a_configuration(config):
    assert from_dict(toy_recipe.Config, json.loads(json.dumps(as_dict(config)))) == config
    assert set(as_dict(config)) - set(as_dict(config, selection=False)) == {"rows", "columns"}
    check(config)


def test_nothing_is_said_about_what_is_as_in_the_preset():
    config = toy_recipe.Config()
    assert differing_flags(config, config) == []
    assert differing_flags(changed(config, {"momentum": False, "clip": -1.0}), config) == [
        "--clip=-1.0",
        "--no-momentum",
    ]
    assert differing_flags(changed(config, {"columns": ("Half SGD ½", "SGD")}), config) == [
        "--columns",
        "'Half SGD ½,SGD'",
    ]


# ---- wrong values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--steps", "0"], "argument --steps: must be at least 1; got 0"),
        (["--steps", "1e3"], "argument --steps: must be a whole number; got '1e3'"),
        (["--rate", "0"], "argument --rate: must be above 0; got 0.0"),
        (["--rate", "nan"], "argument --rate: must be finite; got nan"),
        (["--rate", "fast"], "argument --rate: must be a number; got 'fast'"),
        (["--shape", "circle"], "argument --shape: must be one of line, curve; got 'circle'"),
        (["--sizes", "1,x"], "argument --sizes: must be a whole number; got 'x'"),
        (["--sizes", "1,0"], "argument --sizes: must be at least 1; got 0"),
        (["--seeds", "0"], "argument --seeds: must be from 1 to 10000; got '0'"),
        (["--first-seed", "-1"], "argument --first-seed: must be from 0 to 1000000000; got '-1'"),
        (["--workers", "two"], "argument --workers: must be a whole number; got 'two'"),
        (["--smoke", "--full"], "argument --full: not allowed with argument --smoke"),
        (["--step", "3"], "unrecognized arguments: --step 3"),
    ],
)
def test_bad_words(words, sentence, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", TOY, *words])
    assert stop.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage == f"usage: argrad reproduce {TOY} [--smoke | --full] [options]"
    assert error == f"argrad reproduce {TOY}: error: {sentence}"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"steps": 0}, "`--steps` must be at least 1; got 0."),
        ({"steps": 1.5}, "`--steps` must be a whole number; got '1.5'."),
        ({"rate": float("inf")}, "`--rate` must be finite; got inf."),
        ({"shape": "circle"}, "`--shape` must be one of line, curve; got 'circle'."),
        ({"columns": "SGD"}, "`--columns` must be what `A,B` on the command line gives; got 'SGD'."),
        ({"momentum": 1}, "`--momentum` must be True or False; got 1."),
    ],
)
def test_a_configuration_made_in_python_is_checked_alike(values, sentence, tmp_path):
    config = changed(toy_recipe.Config(), values)
    with pytest.raises(InputError) as caught:
        reproduce_module.reproduce(toy_recipe.RECIPE, config, out=tmp_path)
    assert str(caught.value) == sentence and not list(tmp_path.iterdir())


def test_an_unknown_option_is_a_sentence():
    with pytest.raises(InputError, match="there is no option 'colour'; there are rows, columns, steps"):
        changed(toy_recipe.Config(), {"colour": 1})


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """What `reproduce` is called with, instead of running it."""
    seen = []

    class Passed:
        passed = True

    def record(recipe, config, **shared):
        seen.append((recipe.name, config, shared))
        return Passed()

    monkeypatch.setattr(reproduce_module, "reproduce", record)
    monkeypatch.setitem(RECIPES, "toy", "toy_recipe")
    return seen


def test_presets_and_flags(calls):
    recipe = toy_recipe.RECIPE
    assert main(["reproduce", "toy"]) == 0
    assert main(["reproduce", "toy", "--smoke", "--seeds", "3", "--first-seed", "2"]) == 0
    assert main(["reproduce", "--full", "--steps", "9", "toy", "--out", "x", "--quiet"]) == 0
    assert main(["reproduce", "toy", "--columns", "all", "--workers", "2", "--fresh"]) == 0
    plain, smoke, full, columns = calls
    shared = {"preset": "default", "seeds": range(1), "out": Path("runs"), "workers": None}
    assert plain == ("toy", recipe.config, shared | {"fresh": False, "quiet": False})
    assert smoke[1] == recipe.smoke
    assert (smoke[2]["preset"], smoke[2]["seeds"]) == ("smoke", range(2, 5))
    assert full[1] == dataclasses.replace(recipe.full, steps=9)
    assert (full[2]["preset"], full[2]["out"], full[2]["quiet"]) == ("full", Path("x"), True)
    assert columns[1].columns == () and (columns[2]["workers"], columns[2]["fresh"]) == (2, True)


def test_help_of_a_recipe(calls, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "toy", "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "Least squares & noise. A line is fitted to <points>.",
        "--rows A,B models (narrow,wide)",
        "--columns A,B only these columns (all)",
        "--rate X learning rate (0.1)",
        "--shape line|curve of the data (line)",
        "--sizes N,... numbers that nothing depends on (3,2)",
        "--momentum, --no-momentum with momentum, 100 % of the time (True)",
        "--smoke under a minute",
        "--full the published protocol",
    ):
        assert part in text


def test_the_list_and_the_help_name_every_recipe(capsys):
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == sorted(RECIPES)
    assert all(line.rstrip().endswith(".") and len(line.split()) > 4 for line in listed)
    for words in (["reproduce"], ["reproduce", "--help"]):
        try:
            assert main(words) == 0
        except SystemExit as stop:
            assert stop.code == 0
        text = capsys.readouterr().out
        assert all(line in text for line in listed)
        assert "Exit code 1 if a number leaves its stated band" in " ".join(text.split())


def test_the_list_is_wrapped_for_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["reproduce", "--list"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 70


def test_the_list_loads_no_torch():
    code = (
        "import sys\nfrom argrad.cli import main\n"
        "assert main(['reproduce', '--list']) == main(['reproduce']) == 0\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["vea"], "there is no recipe 'vea'; there are "),
        (["missing.py"], "there is no file "),
        ([str(Path(commands.__file__))], "has no RECIPE. Write `RECIPE = Recipe(...)` at its end."),
    ],
)
def test_unknown_recipes(words, sentence, capsys):
    assert main(["reproduce", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_flags_without_a_name(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "--smoke"])
    assert stop.value.code == 2
    assert "which recipe? --smoke needs a name before it, one of " in capsys.readouterr().err


def test_a_package_that_is_missing(tmp_path):
    recipe = dataclasses.replace(toy_recipe.RECIPE, needs={"no_such_module": "no-such-package"})
    with pytest.raises(Exception, match=r'needs no-such-package.*pip install "argrad\[recipes\]"'):
        reproduce_module.reproduce(recipe, recipe.smoke, out=tmp_path)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_is_whole(name):
    recipe = find(name)
    assert recipe.name == name and recipe.title and recipe.about and recipe.source and recipe.unit
    for preset in ("smoke", "default", "full"):
        config = recipe.preset(preset)
        check(config)
        assert from_dict(type(config), as_dict(config)) == config
        cells = recipe.cells(config)
        assert cells and len({(c.row, c.column) for c in cells}) == len(cells)
        for low, high in recipe.bands.get(preset, {}).values():
            assert low < high
