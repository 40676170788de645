"""Write the lists of names in `docs/reference/*.md` and in `mkdocs.yml`: `.venv/bin/python docs/reference.py`.

The names come from `src/argrad/__init__.pyi`, in the groups that `argrad list` shows. What stands above the marker
of a page is written by hand and is kept; a group without a page gets one. `tests/test_docs.py` says when to run this.
"""

from __future__ import annotations

from pathlib import Path

from argrad import _catalogue
from argrad._catalogue import Part

DOCS = Path(__file__).resolve().parent
SETTINGS = DOCS.parent / "mkdocs.yml"
MARKER = "<!-- below: written by docs/reference.py -->\n"
NAV_START, NAV_END = "      # written by docs/reference.py\n", "      # end\n"
# Shared by the modules of the package; not meant for users.
INTERNAL = {f"random.{name}" for name in ("check_generator", "draw_key", "offsets", "split", "words")}


def groups() -> dict[str, list[Part]]:
    """Kind -> its public names."""
    parts = [p for p in _catalogue.parts().values() if p.name not in INTERNAL]
    return {kind: [p for p in parts if p.kind == kind] for kind in _catalogue.kinds()}


def _upper_part(path: Path, title: str) -> str:
    if not path.exists():
        return f"# {title}\n\n"
    return path.read_text(encoding="utf-8").partition(MARKER)[0]


def _page(path: Path, kind: str, parts: list[Part]) -> str:
    blocks = [f"::: {_place(part)}\n" for part in parts]
    return _upper_part(path, _catalogue.title(kind)) + MARKER + "\n" + "\n".join(blocks)


def _place(part: Part) -> str:
    """Where a name is defined; a module of a package is its own place."""
    package, _, name = part.name.rpartition(".")
    return part.module if package and part.module == f"argrad.{part.name}" else f"{part.module}.{name}"


def _index(path: Path) -> str:
    lines = ["| page | names |", "|---|---|"]
    for kind, parts in groups().items():
        names = ", ".join(f"`{part.name}`" for part in parts)
        lines.append(f"| [{_catalogue.title(kind)}]({kind}.md) | {names} |")
    return _upper_part(path, "Reference") + MARKER + "\n" + "\n".join(lines) + "\n"


def _settings() -> str:
    text = SETTINGS.read_text(encoding="utf-8")
    before, _, rest = text.partition(NAV_START)
    after = rest.partition(NAV_END)[2]
    lines = [f"      - {_catalogue.title(kind)}: reference/{kind}.md\n" for kind in groups()]
    return before + NAV_START + "".join(lines) + NAV_END + after


def wanted() -> dict[Path, str]:
    """Every file that this script writes, and its text."""
    folder = DOCS / "reference"
    pages = {folder / f"{kind}.md": (kind, parts) for kind, parts in groups().items()}
    texts = {path: _page(path, kind, parts) for path, (kind, parts) in pages.items()}
    return {**texts, folder / "index.md": _index(folder / "index.md"), SETTINGS: _settings()}


def stale() -> list[str]:
    """The files that do not hold their text, and the pages whose group is gone."""
    texts = wanted()
    old = [p for p, text in texts.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    gone = [p for p in (DOCS / "reference").glob("*.md") if p not in texts]
    return sorted(str(p.relative_to(DOCS.parent)) for p in [*old, *gone])


def main() -> None:
    """Write every file; a page whose group is gone goes too, unless somebody wrote something on it."""
    texts = wanted()
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    for path in (DOCS / "reference").glob("*.md"):
        if path not in texts and len(_upper_part(path, "").split("\n\n")) <= 2:
            path.unlink()


if __name__ == "__main__":
    main()
