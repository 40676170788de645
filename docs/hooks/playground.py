"""The playground as a file of the site, written when the site is built."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from argrad.play import page


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add `play.html`; its estimator bench holds what this machine measured just now."""
    files.append(File.generated(config, "play.html", content=page.build(measured=page.measure())))
    return files
