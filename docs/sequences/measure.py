"""Measure the tables of the pages in this folder, and copy the code that they show.

    .venv/bin/python docs/sequences/measure.py                # measure everything (a quarter of an hour), then write
    .venv/bin/python docs/sequences/measure.py words pays     # measure some tables, then write
    .venv/bin/python docs/sequences/measure.py --write-only   # put measured.json and the sources into the pages again

A table stands between `<!-- sequences: NAME -->` and `<!-- end -->`, code between `<!-- source: FILE -->` (or
`FILE:function`) and `<!-- end -->`. `tests/sequences/test_pages.py` says when the pages are stale.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import argrad as ag

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import packages  # noqa: E402
import speller  # noqa: E402

RESULTS = HERE / "measured.json"
PAGES = sorted(HERE.glob("*.md"))
BLOCK = re.compile(r"(<!-- (sequences|source): ([\w.:]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
Row = dict[str, Any]
OPTIONS = {"eos": 0, "max_len": 14}

# ---- the model of number words -------------------------------------------------------------------


def draw_words(model: speller.Speller, k: int = 8) -> ag.SequenceSample:
    return ag.stochastic_beam_search(
        model.step, model.start(), k, generator=ag.CounterRNG(0), **OPTIONS
    )


def measure_words() -> list[Row]:
    sample = draw_words(speller.train())
    return [
        {"word": speller.spell(tokens), "p": p.exp().item(), "value": g.item(), "weight": w.item()}
        for tokens, p, g, w in zip(
            sample.tokens[0], sample.log_prob[0], sample.perturbed[0], sample.weights()[0], strict=True
        )
    ]


def table_words(rows: list[Row]) -> list[str]:
    lines = ["| drawn | $p_s$ | $G_s$ | weight |", "|---|---|---|---|"]
    return lines + [
        f"| {r['word']} | {r['p']:.4f} | {r['value']:.2f} | {r['weight']:.3f} |" for r in rows
    ]


# ---- when it pays --------------------------------------------------------------------------------

ROWS, K = 2000, 8
TEMPERATURES = (0.25, 0.5, 1.0, 2.0)


def measure_pays() -> list[Row]:
    """Spread of estimates of the mean number of letters, and of its gradient, from eight sequences."""
    model = speller.train()
    rows = []
    for tau in TEMPERATURES:
        options = {"tau": tau, "generator": ag.CounterRNG(1), **OPTIONS}
        start = model.start(ROWS)
        free = ag.ancestral_sample(model.step, start, K, **options)
        even = ag.arithmetic_sample(model.step, start, K, **options)
        unique = ag.stochastic_beam_search(model.step, start, K, **options)
        spread = {
            "free": free.expectation(lambda s: s.length).std().item(),
            "even": even.expectation(lambda s: s.length).std().item(),
            "unordered": unique.expectation(lambda s: s.length).std().item(),
            "importance": unique.expectation(lambda s: s.length, "importance").std().item(),
        }
        rows.append(
            {
                "tau": tau,
                "entropy": unique.entropy().mean().item(),
                "mass": unique.log_prob.exp().sum(-1).mean().item(),
                "distinct": distinct(free.tokens),
                "spread": spread,
                "gradient_free": gradient_spread(model, free, tau),
                "gradient_unordered": gradient_spread(model, unique, tau),
            }
        )
        print(rows[-1], flush=True)
    return rows


def distinct(tokens: Tensor) -> float:
    """How many different sequences there are in a row, on average."""
    return sum(len(torch.unique(row, dim=0)) for row in tokens) / len(tokens)


def gradient_spread(model: speller.Speller, sample: Any, tau: float) -> float:
    """Total standard deviation of the gradient for the output's bias, over 300 rows."""
    grads = []
    for i in range(300):
        one = type(sample)(**{n: _row(getattr(sample, n), i) for n in sample.__dataclass_fields__})
        log_prob = ag.sequence_log_prob(model.step, model.start(1), one.tokens, one.length, tau=tau)
        value = one.surrogate(lambda s: s.length.float(), log_prob).sum()
        grads.append(torch.autograd.grad(value, model.out.bias)[0])
    return torch.stack(grads).var(0).sum().sqrt().item()


def _row(value: Any, i: int) -> Any:
    return value[i : i + 1] if isinstance(value, Tensor) else value


def table_pays(rows: list[Row]) -> list[str]:
    lines = [
        "| `tau` | entropy (nats) | $p(S)$ | different among 8 independent | independent | arithmetic | "
        "without replacement, `unordered` | same, `importance` | gradient: leave-one-out | gradient: `unordered` |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        s = r["spread"]
        cells = [r["tau"], f"{r['entropy']:.2f}", f"{r['mass']:.3f}", f"{r['distinct']:.1f}"]
        cells += [f"{s[name]:.3f}" for name in ("free", "even", "unordered", "importance")]
        cells += [f"{r['gradient_free']:.3f}", f"{r['gradient_unordered']:.3f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


# ---- letters to phonemes -------------------------------------------------------------------------

SPOKEN = ("tomato", "read", "gumbel")


def pronounce(model: packages.Pronouncer, word: str, k: int) -> ag.SequenceSample:
    return ag.stochastic_beam_search(
        model.step, model.read(word), k, eos=packages.END, max_len=20, generator=ag.CounterRNG(0)
    )


def measure_sounds() -> list[Row]:
    model, rows = packages.Pronouncer(), []
    for word in SPOKEN:
        sample = pronounce(model, word, 4)
        for tokens, length, log_p in zip(
            sample.tokens[0], sample.length[0], sample.log_prob[0], strict=True
        ):
            sounds = " ".join(packages.PHONEMES[t] for t in tokens[: length - 1].tolist())
            rows.append({"word": word, "sounds": sounds, "p": log_p.exp().item()})
        rows.append({"word": word, "entropy": pronounce(model, word, 64).entropy().item()})
    return rows


def table_sounds(rows: list[Row]) -> list[str]:
    lines = ["| word | pronunciation, in the order of drawing | $p_s$ | all four | entropy (nats) |"]
    lines.append("|---|---|---|---|---|")
    for word in SPOKEN:
        own = [r for r in rows if r["word"] == word]
        said, entropy = [r for r in own if "p" in r], next(r["entropy"] for r in own if "entropy" in r)
        for i, r in enumerate(said):
            last = f"{sum(s['p'] for s in said):.3f} | {entropy:.2f}" if i == 0 else " | "
            lines.append(f"| {word if i == 0 else ''} | {r['sounds']} | {r['p']:.4f} | {last} |")
    return lines


# ---- a language model ----------------------------------------------------------------------------

PROMPT = "The capital of France is"
SETTINGS = ((0.3, 2), (0.3, 12), (0.7, 2), (0.7, 12), (1.0, 2), (1.0, 12))  # temperature, tokens


def continue_prompt(
    model: Any, tokenizer: Any, *, tau: float, tokens: int, k: int
) -> ag.SequenceSample:
    return model.generate(
        **tokenizer(PROMPT, return_tensors="pt"),
        custom_generate=ag.integrations.huggingface.stochastic_beam_search,
        generator=ag.CounterRNG(0),
        num_beams=k,
        max_new_tokens=tokens,
        do_sample=True,
        temperature=tau,
        top_k=0,
    )


def measure_text() -> list[Row]:
    model, tokenizer = packages.load_smollm()
    rows: list[Row] = []
    for tau, length in SETTINGS:
        sample = continue_prompt(model, tokenizer, tau=tau, tokens=length, k=K)
        free = ag.ancestral_sample(
            n=K,
            generator=ag.CounterRNG(0),
            **ag.integrations.huggingface.decoder(
                model,
                **tokenizer(PROMPT, return_tensors="pt"),
                do_sample=True,
                temperature=tau,
                top_k=0,
                max_new_tokens=length,
            ),
        )
        weights = sample.weights()[0]
        rows.append(
            {
                "tau": tau,
                "tokens": length,
                "mass": sample.log_prob.exp().sum().item(),
                "distinct": distinct(free.tokens),
                "effective": (1 / weights.square().sum()).item(),
                "texts": [tokenizer.decode(t) for t in sample.tokens[0]],
                "p": sample.log_prob[0].exp().tolist(),
                "weights": weights.tolist(),
            }
        )
        print(rows[-1], flush=True)
    return rows


def table_text(rows: list[Row]) -> list[str]:
    """The eight continuations of two tokens at the lowest temperature."""
    r = next(r for r in rows if (r["tau"], r["tokens"]) == SETTINGS[0])
    lines = ["| continuation | $p_s$ | weight |", "|---|---|---|"]
    for text, p, w in zip(r["texts"], r["p"], r["weights"], strict=True):
        lines.append(f"| `{text!r}` | {p:.3g} | {w:.3f} |")
    return lines


def table_lengths(rows: list[Row]) -> list[str]:
    lines = ["| temperature | tokens | $p(S)$ of 8 different | different among 8 independent |"]
    lines.append("|---|---|---|---|")
    return lines + [
        f"| {r['tau']} | {r['tokens']} | {r['mass']:.2g} | {r['distinct']:.0f} |" for r in rows
    ]


MEASURES: dict[str, Callable[[], list[Row]]] = {
    "words": measure_words,
    "pays": measure_pays,
    "sounds": measure_sounds,
    "text": measure_text,
}
# table -> (what it is made of, how)
TABLES: dict[str, tuple[str, Callable[[list[Row]], list[str]]]] = {
    "words": ("words", table_words),
    "pays": ("pays", table_pays),
    "sounds": ("sounds", table_sounds),
    "text": ("text", table_text),
    "lengths": ("text", table_lengths),
}

# ---- writing -------------------------------------------------------------------------------------


def source(name: str) -> str:
    """A file without its docstring, or one function of it."""
    file, _, function = name.partition(":")
    text = (HERE / file).read_text(encoding="utf-8")
    if not function:
        return re.sub(r'\A""".*?"""\n\n', "", text, flags=re.DOTALL)
    nodes = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == function]
    return f"{ast.get_source_segment(text, nodes[0])}\n"


def filled(text: str, results: dict[str, list[Row]]) -> str:
    """A page with every block as it should be."""

    def fill(block: re.Match[str]) -> str:
        start, kind, name, _, end = block.groups()
        if kind == "source":
            fence = "py" if ":" in name else "python"  # a whole file runs as a test, a part cannot
            return f"{start}```{fence}\n{source(name)}```\n{end}"
        key, table = TABLES[name]
        return start + "\n".join(table(results[key])) + "\n" + end

    return BLOCK.sub(fill, text)


def main() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    names = [a for a in sys.argv[1:] if a in MEASURES]
    if "--write-only" not in sys.argv:
        for name in names or MEASURES:
            results[name] = MEASURES[name]()
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
