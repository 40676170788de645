"""Photograph the playground for its page: `.venv/bin/python docs/screenshots.py` (needs Chromium)."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from argrad.play.server import Playground

ASSETS = Path(__file__).resolve().parent / "assets" / "playground"


def main() -> None:
    ASSETS.mkdir(parents=True, exist_ok=True)
    with Playground(port=0) as server, sync_playwright() as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1120, "height": 800}, color_scheme=scheme)
            page.goto(server.address)
            # the port would be another one each time
            page.eval_on_selector("#origin", "line => line.textContent = 'served on this machine'")
            page.wait_for_selector("#panel-simplex .badge.good", timeout=120_000)
            page.screenshot(path=ASSETS / f"simplex-{scheme}.png")
        browser.close()
        server.shutdown()


if __name__ == "__main__":
    main()
