"""The changelog of the repository as a page of the site."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SOURCE = Path(__file__).resolve().parents[2] / "CHANGELOG.md"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add `changelog.md`."""
    files.append(File.generated(config, "changelog.md", content=SOURCE.read_text(encoding="utf-8")))
    return files
