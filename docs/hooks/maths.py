"""Displayed formulas in the middle of a paragraph.

Our docstrings put `$$ ... $$` on lines of its own but leave no empty lines around it, which reads well as
source. Markdown only sees a display formula in a paragraph of its own, so empty lines are added here.
"""

from __future__ import annotations

import re
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

DISPLAY = re.compile(r"^([ ]*)\$\$(.+?)\$\$[ ]*$", re.MULTILINE | re.DOTALL)


class _SetApart(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return DISPLAY.sub(r"\n\1$$\2$$\n", "\n".join(lines)).split("\n")


class DisplayMaths(Extension):
    """Give each displayed formula its own paragraph."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        # after the fenced code blocks (priority 25) have been taken out
        md.preprocessors.register(_SetApart(md), "display_maths", 20)


def on_config(config: Any) -> Any:
    """MkDocs calls this once its settings are read."""
    config.markdown_extensions.append(DisplayMaths())
    return config
