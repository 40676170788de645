"""`python -m benchmarks.page`: write docs/benchmarks.md from the JSON under benchmarks/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.table import COLUMNS, cells, warn_if_busy

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
MARKS = {
    "pass": "✓",
    "FAIL": "**missed**",
    "no goal": "",
    "not available": "not yet",
    "ERROR": "**error**",
}
INTRO = """\
# Benchmarks

<!-- Written by `python -m benchmarks.page` from benchmarks/results/*.json: do not edit by hand. -->

Ours and a peer answer the same question (a check asserts it) and are timed in turns in one run, so that
a busy machine slows both alike. Times are the best of several measurements of at least 20 ms; *by best* and
*by median* compare ours with the peer by either. `make bench` repeats all of this, with the peers in an
environment of their own. Times are wall time, except those in *cpu s*: processor time of a fresh process; *MB* are
the most memory that a call had on top of what was there before it.
A file holds the last whole run of its topic, whatever it showed.
"""


def render(documents: list[dict[str, Any]]) -> str:
    """The page, one section a topic."""
    return "\n".join([INTRO, *(_section(document) for document in documents)])


def _section(document: dict[str, Any]) -> str:
    rows = [_row(COLUMNS), _row(["---"] * len(COLUMNS))]
    for result in document["results"]:
        *texts, status, peer = cells(result)
        version = f", {result['package']} {result['version']}" if result["package"] else ""
        rows.append(_row([*texts, MARKS[status], f"`{peer}`{version}"]))
    return "\n".join(
        [f"## {document['topic'].capitalize()}\n", *rows, "", _machine(document["machine"]), ""]
    )


def _row(texts: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |"


def _machine(m: dict[str, Any]) -> str:
    commit = m["commit"] + (" with changes" if m["uncommitted_changes"] else "")
    text = (
        f"{m['cpu']} ({m['instructions']}), {m['cores']} cores, load {m['load_average'][0]}; {m['os']}; "
        f"Python {m['python']}, torch {m['torch']}, numpy {m['numpy']}, scipy {m['scipy']}, "
        f"numba {m['numba']}; {m['date'][:10]}, commit {commit}."
    )
    busy = warn_if_busy(m)
    return f"{text}\n\n{busy}" if busy else text


def read() -> list[dict[str, Any]]:
    """The committed results, in the order of their names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]


if __name__ == "__main__":
    PAGE.write_text(render(read()), encoding="utf-8")
    print(f"wrote {PAGE}")
