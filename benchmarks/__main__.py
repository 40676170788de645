"""`python -m benchmarks`: run the lines, show a table, write JSON with the facts of the machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks import machine
from benchmarks.line import Line
from benchmarks.lines import TOPICS
from benchmarks.runner import REPEATS, Result, run_lines
from benchmarks.table import COLUMNS, cells, warn_if_busy

RESULTS = Path(__file__).parent / "results"
WIDTHS = (50, 7, 11, 11, 12, 12, 9, 13, 0)


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    chosen = select(args.only)
    if args.list:
        print("\n".join(f"{topic}/{line.name}" for topic, lines in chosen.items() for line in lines))
        return 0
    documents = {
        topic: run_topic(topic, lines, args.threads, args.repeats) for topic, lines in chosen.items()
    }
    write(documents, args.json, whole_threads=args.threads is None)
    missed = [r for d in documents.values() for r in d["results"] if r["status"] in ("FAIL", "ERROR")]
    return 1 if args.strict and missed else 0


def select(pattern: str) -> dict[str, list[Line]]:
    """The lines whose `topic/name` contains the pattern or matches it as a shell wildcard."""
    chosen = {
        topic: [
            x for x in lines if pattern in f"{topic}/{x.name}" or fnmatch(f"{topic}/{x.name}", pattern)
        ]
        for topic, lines in TOPICS.items()
    }
    return {topic: lines for topic, lines in chosen.items() if lines}


def run_topic(topic: str, lines: list[Line], threads: list[int] | None, repeats: int) -> dict:
    """Run and show the lines of one topic; returns what is written as JSON."""
    facts = machine.facts()
    print(f"\n{topic}\n{warn_if_busy(facts)}\n{_row(COLUMNS)}")
    results = []
    for result in run_lines(lines, threads, repeats):
        results.append(result.to_json())
        _show(result)
    return {"topic": topic, "machine": facts, "results": results}


def write(documents: dict[str, dict], path: Path | None, *, whole_threads: bool) -> None:
    """To `path` when given; else each topic that was run whole to its file, so that no file mixes runs."""
    if path is not None:
        _dump(documents, path)
        return
    for topic, document in documents.items():
        names = {result["name"] for result in document["results"]}
        if whole_threads and names == {line.name for line in TOPICS[topic]}:
            _dump(document, RESULTS / f"{topic}.json")
        else:
            print(f"{topic}: only a part was run, so its JSON is left alone (--json PATH writes one)")


def _dump(document: dict, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def _show(result: Result) -> None:
    print(_row(cells(result.to_json())), flush=True)
    if result.reason:
        print(f"    {result.reason.splitlines()[0]}", flush=True)


def _row(texts: Sequence[str]) -> str:
    return "  ".join(f"{text:<{width}}" for text, width in zip(texts, WIDTHS, strict=True)).rstrip()


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--only", metavar="PATTERN", default="", help="a part of `topic/name`, or a wildcard")
    add("--threads", type=_counts, help="numbers of torch threads, as 1,2 (default: the line's own)")
    add("--repeats", type=int, default=REPEATS, help="measurements of each side (default %(default)s)")
    add("--json", metavar="PATH", type=Path, help="write there and not to benchmarks/results")
    add("--list", action="store_true", help="name the lines and stop")
    add("--strict", action="store_true", help="exit with 1 when a goal is missed or a line fails")
    return parser


if __name__ == "__main__":
    sys.exit(main())
