"""`python tests/audit.py`: what PyPI's advisories say about every version in constraints.txt; exit code 1 if anything.

`pip-audit` asks the same questions; this needs nothing installed, and works through mirrors that serve the newest
version of a project alone.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def pins() -> list[tuple[str, str]]:
    """Names and public versions."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and line[0] != "#")
    return [(name, version.split("+")[0]) for name, version in pairs]


def ask(name: str, version: str) -> list[dict[str, Any]] | None:
    """The advisories about this version that were not withdrawn; None if PyPI does not tell."""
    # not above: once pip is loaded, inductor finds no distutils
    from pip._internal.models.index import PyPI

    for place in (f"{name}/{version}", name):
        try:
            with urllib.request.urlopen(f"{PyPI.pypi_url}/{place}/json", timeout=60) as answer:
                found = json.load(answer)
        except (urllib.error.URLError, TimeoutError, ValueError):
            continue
        if found["info"]["version"] == version:
            return [x for x in found["vulnerabilities"] if not x.get("withdrawn")]
    return None


def main() -> int:
    """Print every advisory."""
    wanted = pins()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda pin: ask(*pin), wanted))
    bad = 0
    for (name, version), found in zip(wanted, answers, strict=True):
        for advisory in found or ():
            bad += 1
            fixed = ", ".join(advisory.get("fixed_in") or ["no version"])
            print(
                f"{name} {version}: {advisory['id']}, fixed in {fixed}. {advisory.get('summary') or ''}"
            )
    unknown = [f"{n} {v}" for (n, v), found in zip(wanted, answers, strict=True) if found is None]
    print(
        f"{len(wanted) - len(unknown)} of {len(wanted)} versions known to PyPI here: {bad} advisories."
    )
    if unknown:
        print(f"Not told: {', '.join(unknown)}.")
    return 1 if bad or len(unknown) == len(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
