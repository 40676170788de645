"""Read a page of HTML: are its tags balanced, and does it refer to anything outside of itself?"""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """Collects what a page refers to and checks that tags are balanced."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.addresses += [
            value for name, value in attrs if name in ("src", "href", "srcset", "action")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def stands_alone(self, text: str) -> bool:
        """Nothing is fetched and nothing is run."""
        inside = all(address.startswith("data:") for address in self.addresses)
        return inside and not re.search(r"@import|url\(|<script", text)
