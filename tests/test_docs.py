"""The documentation does what it says: its code runs, its links lead somewhere, its numbers are the measured ones.

In a page's Python blocks (one namespace a page, in order),

- an assignment followed by a comment that starts with a shape, `y = f(x)  # (32, 10)`, has that shape;
- an expression followed by `# -> value` has that value (compared by `repr`);
- what a block prints is what the ```text block after it says, if there is one.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [*(p for p in sorted(ROOT.glob("*.md"))), *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")

# what matplotlib asks of a tensor when it draws one: between torch and numpy
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_code(pages: list[Path]) -> list[Path]:
    return [p for p in pages if "```python" in p.read_text(encoding="utf-8")]


@pytest.fixture(autouse=True)
def one_thread_and_own_seed() -> Iterator[None]:
    """Small examples are slower on several threads; and a page leaves torch's settings as they were."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize("page", with_code(PAGES), ids=name_of)
def test_examples_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Inductor itself is tested elsewhere, and starting its C++ compiler takes longer than all pages together.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    text = page.read_text(encoding="utf-8")
    if "import matplotlib" in text:
        import matplotlib.pyplot as plt

        plt.switch_backend("Agg")
        monkeypatch.setattr(plt, "show", lambda: None)
    module = ModuleType("page")
    monkeypatch.setitem(
        sys.modules, "page", module
    )  # the compiler looks for the globals of a function there
    namespace = module.__dict__
    blocks = list(FENCE.finditer(text))
    for place, block in enumerate(blocks):
        if block[1] != "python":
            continue
        first_line = text[: block.start()].count("\n") + 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            run_block(block[2], namespace, f"{name_of(page)}, the block at line {first_line}")
        follower = blocks[place + 1] if place + 1 < len(blocks) else None
        if follower is not None and follower[1] == "text":
            assert printed.getvalue() == follower[2], f"{name_of(page)}: the printed text has changed"


def run_block(source: str, namespace: dict[str, object], where: str) -> None:
    """Run statement by statement, so that each comment can be checked when its line has run."""
    lines = source.splitlines()
    for statement in ast.parse(source).body:
        comment = comment_of(lines, statement)
        place = f"{where}: {lines[statement.lineno - 1]}"
        if isinstance(statement, ast.Expr):
            value = eval(
                compile(ast.Expression(statement.value), where, "eval", dont_inherit=True), namespace
            )
            if "-> " in comment:
                assert repr(value) == comment.rpartition("-> ")[2], place
            continue
        exec(compile(ast.Module([statement], []), where, "exec", dont_inherit=True), namespace)
        shape = re.match(r"\(([\d, ]*)\)", comment)
        if shape and isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value = namespace[statement.targets[0].id]
            wanted = tuple(int(n) for n in shape[1].replace(" ", "").split(",") if n)
            assert isinstance(value, torch.Tensor), place
            assert value.shape == wanted, f"{place}: the shape is {tuple(value.shape)}"


def comment_of(lines: list[str], statement: ast.stmt) -> str:
    """The comment behind the last line of a statement."""
    assert statement.end_lineno is not None
    assert statement.end_col_offset is not None
    last = lines[statement.end_lineno - 1].encode()[statement.end_col_offset :].decode()
    return last.strip().removeprefix("#").strip()


def test_the_table_of_the_readme_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("| you need | write |")[2]
    scores = torch.randn(4, 6)
    namespace = {
        "torch": torch,
        "ag": importlib.import_module("argrad"),
        "logits": scores,
        "scores": scores.clone().requires_grad_(),
        "matrix": torch.randn(4, 5, 5),
        "allowed": torch.arange(6) > 1,
        "observed": torch.arange(4),
        "tau_of_row": torch.rand(4) + 0.5,
        "y": scores.softmax(-1),
        "f": lambda z: (z * torch.arange(6.0)).sum(-1),
    }
    namespace["q"] = namespace["ag"].Gibbs(namespace["ag"].OneHot(), namespace["scores"])
    rows = re.findall(r"^\| .* \| `(.+)` \|$", text.partition("\n\n")[0], re.MULTILINE)
    assert len(rows) >= 10
    for expression in rows:
        assert eval(expression, dict(namespace)) is not None, expression


def anchors(page: Path) -> set[str]:
    """The ids that MkDocs and GitHub give to the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", t).strip().lower()) for t in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [a or b for a, b in LINK.findall(text)]
    targets += re.findall(r'(?:src|srcset)="([^"]+)"', text)
    for target in targets:
        if re.match(r"[a-z]+:", target):  # the network is not a part of the tests
            continue
        path, _, anchor = target.partition("#")
        goal = page if not path else (page.parent / path).resolve()
        assert goal.exists(), f"{name_of(page)} links to {target}, which does not exist"
        if anchor and goal.suffix == ".md":
            assert anchor in anchors(goal), (
                f"{name_of(page)} links to {target}; there is no such heading"
            )


def public_names() -> list[str]:
    tree = ast.parse((ROOT / "src/argrad/__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return sorted({alias.asname or alias.name for node in imports for alias in node.names})


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / "reference").glob("*.md"))
    missing = [name for name in public_names() if not re.search(rf"\b{re.escape(name)}\b", text)]
    assert not missing, (
        f"run `docs/reference.py`: {', '.join(missing)} are on no page of docs/reference"
    )


def test_reference_pages_are_up_to_date() -> None:
    stale = load("reference").stale()
    assert not stale, f"run `.venv/bin/python docs/reference.py`: {', '.join(stale)} are stale"


def test_every_page_is_in_the_navigation() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")]
    missing = [page for page in pages if page not in settings]
    assert not missing, f"not in the `nav` of mkdocs.yml: {', '.join(missing)}"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_say_what_was_measured() -> None:
    measure = load("measure")
    results = json.loads((DOCS / "measured.json").read_text(encoding="utf-8"))
    stale = [
        name_of(p) for p in PAGES if measure.filled(t := p.read_text(encoding="utf-8"), results) != t
    ]
    assert not stale, f"run `docs/measure.py --write-only`: the tables of {', '.join(stale)} are stale"


def test_results_are_those_of_the_files() -> None:
    results = load("results")
    assert results.PAGE.read_text(encoding="utf-8") == results.page(), "run `docs/results.py`"


def test_the_gallery_is_that_of_its_scripts() -> None:
    """Pages, navigation and figures; that the code runs is tested above, on the pages."""
    stale = load("gallery").stale()
    assert not stale, f"run `.venv/bin/python docs/gallery.py`: {', '.join(stale)} are stale"


@pytest.mark.slow
def test_gallery_figures_come_out_the_same() -> None:
    gallery = load("gallery")
    for name in [name for group in gallery.GROUPS.values() for name in group]:
        with gallery.Image.open(gallery.FIGURES / f"{name}.png") as figure:
            kept = np.asarray(figure.convert("RGB"), float)
        drawn = np.asarray(gallery.image(name).convert("RGB"), float)
        assert drawn.shape == kept.shape, name
        # grey levels of 255; fonts and rounding differ a little between machines
        assert np.abs(drawn - kept).mean() < 4, name


def test_softmax_tables_say_what_was_measured() -> None:
    measure = load("softmax/measure")
    results = json.loads((DOCS / "softmax" / "measured.json").read_text(encoding="utf-8"))
    pages = sorted((DOCS / "softmax").glob("*.md"))
    stale = [
        name_of(p) for p in pages if measure.filled(t := p.read_text(encoding="utf-8"), results) != t
    ]
    assert not stale, f"run `docs/softmax/measure.py --write-only`: {', '.join(stale)} are stale"


def test_relaxation_tables_say_what_was_measured() -> None:
    measure = load("choose/measure")
    results = json.loads(measure.RESULTS.read_text(encoding="utf-8"))
    text = measure.PAGE.read_text(encoding="utf-8")
    assert measure.filled(text, results) == text, "run `docs/choose/measure.py --write-only`"


def test_the_picture_shows_what_the_code_draws() -> None:
    z = load("pictures").samples()  # (tau, draw, item)
    winners = z.argmax(-1)
    assert bool((winners == winners[0]).all()), "the winner of a column changes with tau"
    assert set(winners[0].tolist()) == set(range(z.shape[-1])), "some item never wins"
    assert bool((z.amax(-1).diff(dim=0) >= 0).all()), "a lower tau must be harder"


def test_displayed_formulas_get_paragraphs_of_their_own() -> None:
    from markdown import Markdown

    text = "One,\n$$ x_1\n   y_2 $$\nand so on.\n\n```\n$$ kept $$\n```"
    extensions = [load("hooks/maths").DisplayMaths(), "pymdownx.superfences", "pymdownx.arithmatex"]
    html = Markdown(extensions=extensions, extension_configs={"pymdownx.arithmatex": {"generic": True}})
    result = html.convert(text)
    assert '<div class="arithmatex">\\[ x_1\n   y_2 \\]</div>' in result
    assert "$$ kept $$" in result


def test_the_bibliography_is_readable() -> None:
    hook = load("hooks/bibliography")
    assert hook.plain(r"Ma{\"e}chler, {M}artin $\ell_1$") == r"Maëchler, Martin $\ell_1$"
    page = hook.page()
    assert (
        '<a id="jang2017"></a>**jang2017** Eric Jang, Shixiang Gu and Ben Poole. *Categorical' in page
    )
    assert not re.search(r"[{}\\]", re.sub(r"\$[^$]*\$", "", page)), "TeX is left over"


@pytest.mark.slow
def test_the_site_builds_and_fetches_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(
            r'(?:src|href)="(https?:[^"]+\.(?:js|css|woff2?|svg|png))"', page.read_text()
        )
        assert not fetched, f"{page.name} fetches {fetched}"
    assert dead_links(tmp_path) == set()


def dead_links(site: Path) -> set[tuple[str, str]]:
    """Links between the built pages, written in Markdown or by hand, whose file or anchor is not there."""
    pages = {p: p.read_text(encoding="utf-8") for p in site.rglob("*.html") if p.name != "play.html"}
    ids = {p: set(re.findall(r'\bid="([^"]+)"', text)) for p, text in pages.items()}
    dead = set()
    for page, text in pages.items():
        if page.name == "404.html":  # served at any address, so its links are absolute
            continue
        for link in re.findall(r'(?:href|src)="(?![a-z]+:)([^"]+)"', text):
            path, _, anchor = unquote(link).partition("#")
            goal = (page.parent / path.partition("?")[0]).resolve() if path else page
            known = goal.exists() and (
                not anchor or goal not in ids or anchor in ids[goal] or anchor.startswith("only-")
            )
            if not known:
                dead.add((str(page.relative_to(site)), link))
    return dead
