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

# topic -> what a reader of its table should know: above all why a goal is missed, and what was tried
NOTES = {
    "estimators": """\
Three bits: the goal of 50x is stated for each of three ways to take a step. A *compiled* step passes
(`ag.compile_gradient`: value and gradient as one function without guards and without autograd around it), and so
does the time of one estimate when many are made at once (*1000 estimates*, as an audit of bias and variance needs
them). A *single eager step* misses it and cannot reach it: 50x would leave it 15 to 130 us, and the calls to torch
alone (draw, cost, log-probability, backward) take about 100 us. The compiled step writes the product of the bits as
`z[0] * z[1] * z[2]`, the others as `prod`, each the faster way.
""",
    "recipes": """\
The training step of the categorical VAE: matrix products run at the machine's peak on both sides and take 1.9
ms of it on one thread, 1.1 ms on two. The rest of our eager step is noise and softmax (0.2 ms), KL (0.15),
likelihood (0.25), Adam (0.15) and 0.7 ms of Python and autograd, which is as much as the usual step has. Compiled
(`argrad reproduce vae --compile`), loss and gradient are one function without an autograd graph between two halves:
0.3 ms are left outside of the arithmetic. With the usual step compiled in the usual way, loss by `torch.compile`
and then `backward()`, it is 0.5 ms. Tried without gain: kernels on torch's own threads, bfloat16 inside of
products, skipping the zeros of the pixels, turned weights. A kernel for the likelihood was taken out: on two
threads torch's own cross-entropy is faster.
""",
    "structures": """\
Small assignments: one call costs about 3.5 us here. The loops to which the goals refer begin and end with
tensors as ours does, and return 0/1 matrices or only columns. The *bare* loop takes arrays and returns arrays;
for a single tiny matrix it is twice as fast as any call through a tensor.
""",
}


def render(documents: list[dict[str, Any]]) -> str:
    """The page, one section a topic."""
    return "\n".join([INTRO, *(_section(document) for document in documents)])


def _section(document: dict[str, Any]) -> str:
    rows = [_row(COLUMNS), _row(["---"] * len(COLUMNS))]
    for result in document["results"]:
        *texts, status, peer = cells(result)
        version = f", {result['package']} {result['version']}" if result["package"] else ""
        rows.append(_row([*texts, MARKS[status], f"`{peer}`{version}"]))
    notes = [NOTES[document["topic"]]] if document["topic"] in NOTES else []
    title = f"## {document['topic'].capitalize()}\n"
    return "\n".join([title, *rows, "", *notes, _machine(document["machine"]), ""])


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
