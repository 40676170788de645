"""References: every key that a docstring cites has a complete entry, and `cite` finds them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import argrad as ag
from argrad import _catalogue
from argrad._errors import InputError
from argrad.cite import bibliography, cite, entry, references

SOURCES = sorted(Path(ag.__file__).parent.rglob("*.py"))
VENUES = {
    "article": "journal",
    "inproceedings": "booktitle",
    "incollection": "booktitle",
    "book": "publisher",
    "misc": "howpublished",
}


def fields(text: str) -> dict[str, str]:
    """Field -> value of one BibTeX entry in the layout of references.bib."""
    body = re.findall(r"^  (\w+)\s*=\s*\{(.*?)\},$", text, re.DOTALL | re.MULTILINE)
    return {name: " ".join(value.split()) for name, value in body}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_every_cited_key_has_an_entry(path: Path):
    missing = [
        k for k in _catalogue.find_references(path.read_text("utf-8")) if k not in bibliography()
    ]
    assert not missing, f"{path.name} cites {missing}: add an entry to references.bib"


def test_every_source_with_a_references_line_is_read():
    # a `References:` line without a key would silently cite nothing
    for path in SOURCES:
        for line in re.findall(r"^    +References:.*", path.read_text("utf-8"), re.MULTILINE):
            assert _catalogue.KEY.search(line), f"{path.name}: no [key] in {line!r}"


@pytest.mark.parametrize("key", bibliography())
def test_entries_are_complete(key: str):
    text = entry(key)
    kind = re.match(r"@(\w+)", text)[1]
    found = fields(text)
    assert {"author", "title", "year", VENUES[kind]} <= set(found)
    assert all(found.values())
    assert re.fullmatch(r"1[89]\d\d|20\d\d", found["year"])
    assert key.rstrip("abcdefgh").endswith(found["year"])
    first = re.sub(r"[^a-z]", "", re.sub(r"\\\W|\\c", "", found["author"]).split(",")[0].lower())
    name = re.sub(r"\d.*", "", key)
    # M{\"a}chler is maechler: compare without the umlaut's e
    assert first.endswith(name) or first.replace("a", "ae", 1) == name
    assert text.count("{") == text.count("}")


def test_the_file_has_no_entry_that_the_reader_misses():
    text = Path(ag.__file__).with_name("references.bib").read_text("utf-8")
    assert text.count("\n@") == len(bibliography())


def test_cite_gives_entries_once_and_in_order():
    text = cite(ag.gumbel_softmax, ag.gumbel_max, ag.gumbel_softmax)
    keys = re.findall(r"^@\w+\{(\w+),", text, re.MULTILINE)
    assert keys == ["jang2017", "maddison2017", "gumbel1954", "maddison2014"]
    assert text.endswith("}\n")


def test_cite_takes_objects_names_and_keys():
    assert ag.cite(ag.gumbel_max) == ag.cite("gumbel_max") == ag.cite("argrad.gumbel_max")
    assert ag.cite("jang2017") == entry("jang2017") + "\n"
    assert ag.cite(ag.schedules.Exponential()) == ag.cite("schedules.Exponential")
    assert "salmon2011" in references(ag.random) and "gumbel1954" in references(ag.random)
    assert ag.cite(ag.InputError) == ""


def test_cite_stays_callable_when_its_module_is_imported_by_name():
    import argrad.cite

    assert argrad.cite("jang2017").startswith("@inproceedings{jang2017,")


@pytest.mark.parametrize("name", sorted(_catalogue.parts()))
def test_reading_the_source_and_the_object_agree(name: str):
    item = ag
    for word in name.split("."):
        item = getattr(item, word)
    assert set(references(name)) == set(references(item))
    assert _catalogue.parts()[name].summary, f"{name} needs a docstring"


def test_parts_of_a_dataclass_and_base_classes_are_cited():
    @dataclasses.dataclass(frozen=True)
    class Mine(ag.schedules.Exponential):
        noise: ag.Noise = dataclasses.field(default_factory=ag.Gumbel)

    assert references(Mine()) == ("jang2017", "gumbel1954")


def test_references_may_run_over_lines_and_end_at_an_empty_one():
    doc = """Sum.

    References: [jang2017], Eq. (3), and
        [kool2019b].

    Not [cited2000].
    """
    assert _catalogue.find_references(doc, None) == ("jang2017", "kool2019b")


def test_unknown_names_get_the_nearest():
    with pytest.raises(InputError, match=r"'gumbel_sofmax'; the nearest are .*`gumbel_softmax`"):
        cite("gumbel_sofmax")
    with pytest.raises(InputError, match=r"no entry \[jang2018\]; the nearest .*`jang2017`"):
        entry("jang2018")
    with pytest.raises(InputError, match="at least one"):
        cite()
