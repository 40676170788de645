"""Build the gallery from its scripts: `.venv/bin/python docs/gallery.py [NAME ...]` (all by default).

A script in `docs/gallery/` has one idea and one figure. Its docstring is the text of its page (first line: the
title), its last line is `plt.show()`. Running it here draws the figure into `docs/assets/gallery/`, with the script's
hash inside, so that the tests see when a figure is older than its script; the tests also run the code of every page.
"""

from __future__ import annotations

import ast
import hashlib
import io
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch

mpl.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from argrad.plot.style import STYLE

DOCS = Path(__file__).resolve().parent
SCRIPTS, FIGURES, SETTINGS = DOCS / "gallery", DOCS / "assets" / "gallery", DOCS.parent / "mkdocs.yml"
NAV_START, NAV_END = "      # written by docs/gallery.py\n", "      # end of the gallery\n"
GROUPS = {
    "Choose": ["simplex", "race", "tails", "given_max", "counterfactual", "without_replacement"],
    "Relax": [
        *("regularizers", "subsets", "permutations", "trees", "sentence_tree", "tags", "grid_path"),
        *("two_laws", "hard_limit"),
    ],
    "Estimate": [
        "bias_variance",
        "baseline",
        "temperature",
        "curvature",
        "budget",
        "one_bit",
        "starvation",
    ],
    "Train": ["clusters", "features", "unscramble", "imitate"],
    "Sequences and trust": ["beam", "coverage", "reliability", "hotter_trees", "even_noise"],
}
INTRO = """# Gallery

One idea and one figure each, from a script of a screenful that you can run. Every figure here was drawn by the code
beside it.
"""


def script(name: str) -> tuple[str, str, str]:
    """Title, text and code of a script."""
    source = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n")
    end = tree.body[0].end_lineno
    return title.rstrip("."), text.strip(), "\n".join(source.splitlines()[end:]).strip() + "\n"


def fingerprint(name: str) -> str:
    """Of the code, not of the words about it."""
    return hashlib.sha256(script(name)[2].encode()).hexdigest()[:16]


def drawn_by(name: str) -> str:
    """The fingerprint inside a figure."""
    path = FIGURES / f"{name}.png"
    if not path.exists():
        return ""
    with Image.open(path) as figure:
        return str(figure.info.get("script", ""))


def run(name: str) -> Any:
    """The figure that a script shows."""
    plt.close("all")
    torch.manual_seed(0)
    with mpl.rc_context({**STYLE, "figure.dpi": 100}):
        plt.show = lambda: None
        exec(compile(script(name)[2], f"gallery/{name}.py", "exec"), {"__name__": "__main__"})
        return plt.gcf()


def image(name: str) -> Image.Image:
    """What `run` drew, in few colours, so that the repository stays small."""
    drawn = io.BytesIO()
    with mpl.rc_context(STYLE):
        run(name).savefig(drawn, dpi=150, format="png", facecolor="white")
    return Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE)


def draw(name: str) -> None:
    about = PngInfo()
    about.add_text("script", fingerprint(name))
    image(name).save(FIGURES / f"{name}.png", optimize=True, pnginfo=about)


def page(name: str) -> str:
    title, text, code = script(name)
    figure = f"![{title}](../assets/gallery/{name}.png)"
    return (
        f"# {title}\n\n<!-- Written by docs/gallery.py from docs/gallery/{name}.py. -->\n\n"
        f"{text}\n\n{figure}{{ .figure }}\n\n"
        f"```python\n{code}```\n\n*The script: `docs/gallery/{name}.py`. [All of the gallery](index.md).*\n"
    )


def index() -> str:
    parts = [INTRO]
    for group, names in GROUPS.items():
        cards = [
            f"[![{title}](../assets/gallery/{name}.png){{ loading=lazy }}<br>{title}]({name}.md)"
            for name in names
            for title in [script(name)[0]]
        ]
        body = "\n\n".join(cards)
        parts.append(f'## {group}\n\n<div class="gallery" markdown>\n\n{body}\n\n</div>\n')
    return "\n".join(parts)


def settings() -> str:
    """`mkdocs.yml` with the pages in its navigation."""
    text = SETTINGS.read_text(encoding="utf-8")
    before, _, rest = text.partition(NAV_START)
    lines = []
    for group, names in GROUPS.items():
        lines.append(f"      - {group}:\n")
        lines += [f"          - {script(name)[0]}: gallery/{name}.md\n" for name in names]
    return before + NAV_START + "".join(lines) + NAV_END + rest.partition(NAV_END)[2]


def wanted() -> dict[Path, str]:
    """Every text that this script writes."""
    names = [name for group in GROUPS.values() for name in group]
    pages = {SCRIPTS / f"{name}.md": page(name) for name in names}
    return {**pages, SCRIPTS / "index.md": index(), SETTINGS: settings()}


def stale() -> list[str]:
    """Texts and figures that are not those of the scripts, and scripts that are in no group."""
    texts = wanted()
    found = [p for p, text in texts.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    found += [p for p in SCRIPTS.glob("*.py") if p.with_suffix(".md") not in texts]
    names = [name for group in GROUPS.values() for name in group]
    found += [FIGURES / f"{n}.png" for n in names if drawn_by(n) != fingerprint(n)]
    return sorted(str(p.relative_to(DOCS.parent)) for p in found)


def main(names: list[str]) -> None:
    FIGURES.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for name in names or [name for group in GROUPS.values() for name in group]:
        start = time.perf_counter()
        draw(name)
        size = (FIGURES / f"{name}.png").stat().st_size
        print(f"{name:24}{time.perf_counter() - start:6.2f} s{size / 1024:8.0f} kB")
    for path, text in wanted().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
