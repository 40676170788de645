"""Put the page together: one HTML file with its style, its program and its settings inside."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from argrad import __version__

# In the order in which they need each other.
SCRIPTS = (
    # mathematics
    "arrays.js",
    "noise.js",
    "structures.js",
    "sequences.js",
    "numbers.js",
    "python.js",
    # the page
    "elements.js",
    "controls.js",
    "library.js",
    "tab_simplex.js",
    "tab_race.js",
    "tab_estimators.js",
    "graphs.js",
    "tab_structures.js",
    "tab_beam.js",
    "main.js",
)
MATHEMATICS = SCRIPTS[:6]


def build(*, measured: list[dict[str, Any]] | None = None) -> str:
    """The page as it is served, or with answers measured beforehand (`measure`) as a file of its own."""
    from argrad.play.answers import ESTIMATORS

    settings = {
        "version": __version__,
        "served": measured is None,
        "measured": measured or [],
        "estimators": ESTIMATORS,
    }
    # `<` would end the script element wherever it is followed by /script
    text = json.dumps(settings, allow_nan=False).replace("<", "\\u003c")
    script = f'"use strict";\nconst SETTINGS = {text};\n' + "\n".join(source(n) for n in SCRIPTS)
    page = source("index.html").replace("/* style */", source("style.css"))
    return page.replace("/* script */", script)


def measure() -> list[dict[str, Any]]:
    """Questions about estimators with the library's answers, for a page that has no library behind it."""
    from argrad.play.answers import estimators, presets

    return [{"state": state, "numbers": estimators(state)} for state in presets()]


def source(name: str) -> str:
    """One of the files that the page is made of."""
    return (resources.files("argrad.play") / "page" / name).read_text(encoding="utf-8")
