"""The recipe l2x: reviews with planted rationales, the seven choices, the smoke run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

import pytest
import torch

from argrad.cli import main
from argrad.recipes import l2x
from argrad.recipes.data import rationales
from argrad.recipes.data.grammar import film_reviews
from argrad.recipes.data.places import DataError
from argrad.recipes.l2x_model import CORRELATED, RELAXATIONS, Explainer, with_pairs

G = torch.Generator


# ---- reviews -------------------------------------------------------------------------------------


def test_the_score_is_that_of_the_adjectives_of_the_opinion() -> None:
    value = {"superb": 2, "charming": 1, "dull": -1, "awful": -2}
    for review in film_reviews(300, Random(1)):
        ((first, last),) = review.spans
        opinion = review.words[first:last]
        assert opinion[-1] == "." and "." not in opinion[:-1]
        known = [value[w] for w in opinion if w in value]
        assert all((v > 0) == (review.score > 0.5) for v in known)
        assert 0 <= review.score <= 1 and 60 < len(review.words) < 90


def test_generated_reviews_are_the_same_every_time() -> None:
    one, other = (rationales.load("generated", 50) for _ in range(2))
    assert torch.equal(one.train.tokens, other.train.tokens) and one.words == other.words
    assert one.words[0] == "" and bool((one.train.rationale <= (one.train.tokens > 0)).all())
    # every adjective is in stories as often as its share of them, so it does not give the opinion away
    adjective = one.words.index("superb")
    there = one.test.tokens == adjective
    assert 0.1 < float(one.test.rationale[there].float().mean()) < 0.4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that nothing else is looked for behind."""
    monkeypatch.setenv("ARGRAD_DATA", str(tmp_path))
    monkeypatch.setenv("ARGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_films_hide_one_opinion_among_plots(folder: Path) -> None:
    (folder / "text" / "MR").mkdir(parents=True)
    (folder / "text" / "SUBJ").mkdir()
    for file, word in (("MR/rt-polarity.pos", "good"), ("MR/rt-polarity.neg", "bad")):
        lines = [f"this is a {word} film {'x' * (i % 7)}\n" for i in range(40)]
        (folder / "text" / file).write_text("".join(lines))
    (folder / "text" / "SUBJ" / "subj.objective").write_text("he goes to the city .\n" * 40)
    found = rationales.load("movies", 60)
    good = found.words.index("good")
    assert found.train.tokens.shape[0] == 60 and found.test.tokens.shape[0] == 1000
    assert torch.equal((found.test.tokens == good).any(-1), found.test.score == 1)
    assert bool(found.test.rationale[found.test.tokens == good].all())
    assert bool((found.test.rationale.sum(-1) >= 5).all())


def test_missing_films_get_a_sentence(folder: Path) -> None:
    with pytest.raises(DataError, match=r"rt-polarity.pos is not here. Put it into FOLDER/text"):
        rationales.load("movies", 10)
    with pytest.raises(DataError, match=r"there are no reviews 'nothing'; there are generated, movies"):
        rationales.load("nothing", 10)


def beer(folder: Path, *, vectors: bool = True) -> None:
    words = [f"word{i}" for i in range(20)]
    line = "0.9 0.7 0.5 0.3 0.1\t" + " ".join(words)
    with gzip.open(folder / "reviews.aspect1.train.txt.gz", "wt") as file:
        file.write(f"{line}\n" * 30)
    told = {"x": words, "y": [0.9, 0.7, 0.5, 0.3, 0.1], "0": [[0, 2]], "1": [[3, 6], [10, 11]]}
    silent = {"x": words, "y": [0.1] * 5, "1": []}
    (folder / "annotations.json").write_text(f"{json.dumps(told)}\n{json.dumps(silent)}\n")
    if vectors:
        rows = [f"{w} {i} {i + 0.5}\n" for i, w in enumerate(words[:18])]
        (folder / "review+wiki.filtered.200.txt").write_text("".join(rows))


def test_the_files_of_beer_advocate(tmp_path: Path) -> None:
    beer(tmp_path)
    found = rationales.load(str(tmp_path), 25)
    assert found.train.tokens.shape == (25, 20) and len(found.test.score) == 1
    assert found.train.score[0].item() == pytest.approx(0.7)
    assert found.test.rationale[0].nonzero().flatten().tolist() == [3, 4, 5, 10]
    assert found.vectors is not None and found.vectors.shape == (len(found.words), 2)
    number = found.words.index("word7")
    assert found.vectors[number].tolist() == [7.0, 7.5]
    assert found.vectors[:2].abs().sum() == 0  # no word, and the words without a vector
    assert found.words[int(found.test.tokens[0, 19])] == "<unk>"
    model = Explainer(len(found.words), 50, 8, "simple", False, found.vectors)
    assert not model.vectors.weight.requires_grad and model.unary.in_features == 2


@pytest.mark.parametrize("vectors", [True, False])
def test_beer_advocate_trains_with_and_without_vectors(tmp_path: Path, vectors: bool) -> None:
    (tmp_path / "beer").mkdir()
    beer(tmp_path / "beer", vectors=vectors)
    words = [
        "--smoke",
        "--data",
        str(tmp_path / "beer"),
        "--steps",
        "3",
        "--models",
        "simple",
        "--quiet",
    ]
    assert main(["reproduce", "l2x", *words, "--out", str(tmp_path)]) == 0
    cells = json.loads((tmp_path / "l2x" / "results.json").read_text())["cells"]
    assert {c["row"] for c in cells} == {"beer, simple, k = 5"}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("reviews.aspect1.train.txt", "0.5 words without a tab\n", "lines of scores, a tab and words"),
        ("reviews.aspect1.train.txt", "0.5\ttoo few scores\n", "lines of scores, a tab and words"),
        ("annotations.json", '{"x": ["a"]}\n', "must have x, y and stretches"),
        ("annotations.json", "\n", "holds no reviews about aspect 1"),
    ],
)
def test_damaged_files_of_beer_advocate(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    beer(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=sentence):
        rationales.load(str(tmp_path), 25)


def test_a_missing_file_of_beer_advocate(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no reviews.aspect1.train.txt or reviews"):
        rationales.load(str(tmp_path), 25)


# ---- choices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["simple", "complex"])
@pytest.mark.parametrize("column", RELAXATIONS)
def test_every_relaxation_chooses_words_and_never_padding(column: str, kind) -> None:
    torch.manual_seed(0)
    k, pairs = 3, column == CORRELATED
    model = Explainer(20, 6, 8, kind, pairs)
    tokens = torch.randint(1, 20, (4, 12), generator=G().manual_seed(1))
    tokens[1, 7:] = tokens[3, 4:] = 0
    scores = model.scores(tokens)
    assert scores.shape == (4, 23 if pairs else 12)
    z = RELAXATIONS[column](scores, tokens > 0, k, 0.5, G().manual_seed(2))
    assert z.shape == tokens.shape and bool((z[tokens == 0] == 0).all())
    if column != "L2X":  # two of its Concretes may meet
        torch.testing.assert_close(z.sum(-1), torch.full((4,), 3.0), rtol=1e-4, atol=1e-4)
    hard = model.chosen(tokens, k)
    assert bool((hard.sum(-1) == k).all()) and bool((hard[tokens == 0] == 0).all())
    model.explained(tokens, z, k).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_pairs_need_two_words() -> None:
    mask = torch.tensor([True, True, False, True])
    assert with_pairs(mask).tolist() == [True, True, False, True, True, False, False]


def test_precision_counts_words_of_the_rationale() -> None:
    torch.manual_seed(0)
    model = Explainer(10, 4, 4, "simple", False)
    tokens = torch.arange(1, 9).expand(3, 8)
    z = model.chosen(tokens, 2)
    part = rationales.Part(tokens, torch.zeros(3), z.bool())
    assert l2x.evaluate(model, part, 2)["precision"] == 100
    assert l2x.evaluate(model, rationales.Part(tokens, torch.zeros(3), ~z.bool()), 2)["precision"] == 0


# ---- the recipe ----------------------------------------------------------------------------------


def test_a_text_is_trained_on_as_suits_it_unless_asked() -> None:
    assert l2x.training(l2x.Config(), "movies") == l2x.MOVIES
    assert l2x.training(l2x.Config(), "a folder") == l2x.GENERATED
    asked = l2x.training(l2x.Config(steps=7, decay=0.0), "movies")
    assert (asked.steps, asked.decay, asked.reviews) == (7, 0.0, l2x.MOVIES.reviews)


def test_vectors_of_words_begin_and_decay_by_themselves() -> None:
    model = Explainer(500, 6, 8, "simple", True, spread=0.1)
    assert float(model.vectors.weight.detach()[1:].std()) == pytest.approx(0.1, rel=0.1)
    words, rest = l2x.optimiser(l2x.Config(), l2x.MOVIES, model).param_groups
    assert words["params"] == [model.vectors.weight]
    assert words["weight_decay"] == l2x.MOVIES.word_decay and rest["weight_decay"] == l2x.MOVIES.decay
    assert len(rest["params"]) == len(list(model.parameters())) - 1


def test_the_smoke_run_marks_words(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce", "l2x", "--smoke", "--out", str(tmp_path)]) == 0
    assert "stated bands hold" in capsys.readouterr().out
    page = (tmp_path / "l2x" / "report.html").read_text()
    assert page.count("<mark>") == 3 * 5 and "<u>" in page
    cells = json.loads((tmp_path / "l2x" / "results.json").read_text())["cells"]
    by_name = {(c["row"], c["column"]): c["mean"] for c in cells}
    # neighbours are what gives the opinion away, so the correlated choice finds it first
    row = "generated, simple, k = 5"
    assert by_name[row, CORRELATED] > 1.5 * by_name[row, "E.F. Ent. Top k"]


def test_an_unknown_column_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce", "l2x", "--columns", "Top", "--out", str(tmp_path)]) == 2
    assert "there is no column 'Top'" in capsys.readouterr().err
