"""A page with all references, made from `references.bib`, and links to it from `[jang2017]` in docstrings."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.structure.files import File

from argrad.cite import bibliography

PAGE = "reference/bibliography.md"
FIELD = re.compile(r"^\s*(\w+)\s*=\s*\{(.*?)\},?$", re.MULTILINE | re.DOTALL)
ACCENTS = {"'": "\u0301", '"': "\u0308", "`": "\u0300", "^": "\u0302", "~": "\u0303", "c": "\u0327"}
VENUES = ("journal", "booktitle", "publisher", "school", "institution", "howpublished")


def plain(tex: str) -> str:
    r"""`Ga{\"e}l {Varoquaux}` without its TeX; formulas between dollars are kept for the browser."""
    tex = re.sub(r"\\url\{([^}]*)\}", r"<\1>", " ".join(tex.split()))
    accent = re.compile(r"\{?\\(['\"`^~]|c(?=\{))\{?(\\?\w)\}?\}?")
    tex = accent.sub(lambda m: m[2].lstrip("\\") + ACCENTS[m[1]], tex)
    pieces = tex.split("$")
    pieces[::2] = [re.sub(r"[{}]|\\(?=[&%])", "", p).replace("--", "–") for p in pieces[::2]]
    return unicodedata.normalize("NFC", "$".join(pieces))


def line(key: str, entry: str) -> str:
    """One reference as a line of Markdown."""
    fields = {name: plain(value) for name, value in FIELD.findall(entry)}
    people = [" ".join(reversed(p.split(", ", 1))) for p in fields.get("author", "").split(" and ")]
    authors = ", ".join(people[:-1]) + " and " + people[-1] if len(people) > 1 else people[0]
    venue = next((fields[name] for name in VENUES if name in fields), "")
    source = ", ".join(text for text in (venue, fields.get("year", "")) if text)
    return f'- <a id="{key}"></a>**{key}** {authors}. *{fields.get("title", "")}.* {source}.'


def page() -> str:
    """The page, in the order of the keys."""
    lines = [line(key, entry) for key, entry in sorted(bibliography().items())]
    intro = "What the docstrings cite. `argrad cite gumbel_softmax` prints the BibTeX behind a name."
    return "\n".join(["# Bibliography", "", intro, "", *lines, ""])


class _Link(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        known = bibliography()
        key = re.compile(r"\[([a-z][a-z-]*\d{4}[a-z]?)\](?![(\[])")

        def link(match: re.Match[str]) -> str:
            return (
                f'<a href="bibliography.html#{match[1]}">[{match[1]}]</a>'
                if match[1] in known
                else match[0]
            )

        return [key.sub(link, text) for text in lines]


class Citations(Extension):
    """Link `[key]` to its line; only docstrings cite so, and all their pages are in `reference/`."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(_Link(md), "citations", 19)


def on_config(config: Any) -> Any:
    """MkDocs calls this once its settings are read."""
    config.markdown_extensions.append(Citations())
    return config


def on_files(files: Any, config: Any) -> Any:
    """MkDocs calls this when it has found the pages."""
    files.append(File.generated(config, PAGE, content=page()))
    return files
