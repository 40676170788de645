"""The playground in a real Chromium: every tab works, sliders change pictures, and its numbers are the library's.

Pictures of every tab (light, dark, as wide as a phone, from disk) are kept in `runs/playground/`,
or in the folder that `ARGRAD_SCREENSHOTS` names.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import playground
from argrad.play import answers, page
from argrad.play.server import Playground

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright drives the browser: pip install playwright"
)
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")

ROOT = Path(__file__).resolve().parents[1]
TABS = list(answers.TABS)
COMPUTING = [tab for tab in TABS if tab != "estimators"]
PATIENCE = 120_000  # milliseconds: the first request compiles kernels, on a machine that may be busy
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
    "phone": {
        "viewport": {"width": 375, "height": 800},
        "color_scheme": "light",
        "device_scale_factor": 2,
        "has_touch": True,
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[Playground]:
    with playground.serving() as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page as a file of its own, with answers to one question about each law."""
    path = tmp_path_factory.mktemp("playground") / "play.html"
    questions = [{**state, "replicates": 20} for state in answers.presets()]
    measured = [{"state": state, "numbers": answers.estimators(state)} for state in questions]
    path.write_text(page.build(measured=measured), encoding="utf-8")
    return path.as_uri()


class Visit:
    """A page in the browser, and what it complained about."""

    def __init__(self, browser: Any, address: str, look: str = "light") -> None:
        self.context = browser.new_context(**LOOKS[look], reduced_motion="reduce")
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console",
            lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None,
        )
        self.page.goto(address)

    def open(self, tab: str) -> None:
        self.page.click(f"#tab-{tab}")
        self.page.wait_for_selector(f"#panel-{tab} svg")

    def settled(self, tab: str) -> str:
        """The verdict of the library on the tab's numbers."""
        badge = f"#panel-{tab} .badge"
        self.page.wait_for_selector(f"{badge}.good, {badge}.bad")
        return self.page.inner_text(badge)

    def picture(self, tab: str) -> str:
        return self.page.eval_on_selector(f"#panel-{tab} .stage", "stage => stage.innerHTML")

    def program(self, tab: str) -> str:
        return self.page.eval_on_selector(f"[data-python={tab}]", "code => code.textContent")

    def control(self, tab: str, name: str) -> Any:
        return self.page.locator(f'#panel-{tab} [data-control="{name}"]')

    def shown(self, tab: str) -> list[tuple[str, list[int], float]]:
        """Every number in the tab's table: its name, its place, its value."""
        found = self.page.eval_on_selector_all(
            f"#panel-{tab} [data-key]",
            "all => all.map(x => [x.dataset.key, x.dataset.index, x.textContent])",
        )
        return [
            (key, [int(i) for i in at.split(",")], float(text.replace("−", "-")))
            for key, at, text in found
        ]

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def visit(browser, server: Playground) -> Iterator[Visit]:
    made = Visit(browser, server.address)
    yield made
    made.close()


def keep(visit: Visit, name: str) -> None:
    """A picture of the whole page, for people to look at."""
    folder = Path(os.environ.get("ARGRAD_SCREENSHOTS", ROOT / "runs" / "playground"))
    folder.mkdir(parents=True, exist_ok=True)
    visit.page.screenshot(path=folder / f"{name}.png", full_page=True)


@pytest.mark.parametrize("look", LOOKS)
def test_every_tab_loads_and_fits(look: str, browser, server: Playground) -> None:
    visit = Visit(browser, server.address, look)
    for tab in TABS:
        visit.open(tab)
        if tab == "estimators":
            visit.page.wait_for_selector("[data-estimator]")
        else:
            assert "computes the same numbers" in visit.settled(tab)
        keep(visit, f"{tab}-{look}")
        assert visit.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (
            f"{tab} is too wide"
        )
        assert visit.page.locator("main section:visible").count() == 1
    assert visit.complaints == []
    visit.close()


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_works_from_disk(tab: str, browser, on_disk: str) -> None:
    visit = Visit(browser, on_disk)
    visit.open(tab)
    text = visit.page.inner_text(f"#panel-{tab}")
    assert ("no library is behind it" in text) == (tab == "estimators")
    if tab != "estimators":
        assert "Computed in your browser" in text
    keep(visit, f"{tab}-file")
    assert visit.complaints == []
    visit.close()


SLIDERS = [
    ("simplex", ["temperature τ", "logit A", "samples", "follow sample"]),
    ("race", ["races", "logit C"]),
    ("structures", ["temperature τ", "k"]),
    ("beam", ["k", "level"]),
]


@pytest.mark.parametrize(("tab", "names"), SLIDERS)
def test_sliders_change_the_picture_and_the_numbers_stay_the_librarys(
    tab: str, names: list[str], visit: Visit
) -> None:
    visit.open(tab)
    for name in names:
        before = visit.picture(tab)
        visit.control(tab, name).focus()
        for _ in range(3):
            visit.page.keyboard.press("ArrowLeft" if name in ("level", "k") else "ArrowRight")
        assert visit.picture(tab) != before, name
    assert "computes the same numbers" in visit.settled(tab)
    assert visit.complaints == []


@pytest.mark.parametrize("tab", COMPUTING)
def test_what_is_shown_is_what_the_copied_program_computes(tab: str, visit: Visit) -> None:
    visit.open(tab)
    visit.control(tab, "new noise").click()
    names = playground.run_program(visit.program(tab))
    shown = visit.shown(tab)
    assert len(shown) >= 9
    for key, place, value in shown:
        expected = names[key]
        for index in place:
            expected = expected[index]
        assert abs(float(expected) - value) <= 0.5e-3 + 1e-9, (key, place)  # three digits are shown


@pytest.mark.parametrize("kind", ["permutation", "tree", "arborescence"])
def test_structures_have_the_librarys_numbers(kind: str, visit: Visit) -> None:
    visit.open("structures")
    visit.control("structures", "structure").select_option(kind)
    names = playground.run_program(visit.program("structures"))
    for key, (i, j), value in visit.shown("structures"):
        assert abs(float(names[key][i, j]) - value) <= 0.5e-3 + 1e-9
    keep(visit, f"structures-{kind}")
    assert "computes the same numbers" in visit.settled("structures")


def test_scores_are_dragged_and_moved_by_keys(visit: Visit) -> None:
    visit.open("structures")
    cell = visit.control("structures", "score B")
    before, first = visit.picture("structures"), float(cell.inner_text())
    box = cell.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.page.mouse.move(x, y - 40, steps=4)
    visit.page.mouse.up()
    assert float(cell.inner_text()) == pytest.approx(first + 2)  # twenty pixels are one
    assert visit.picture("structures") != before
    cell.press("ArrowDown")
    assert float(cell.inner_text()) == pytest.approx(first + 1.9)
    assert cell.get_attribute("aria-valuenow") == str(round(first + 1.9, 1))


def test_an_undirected_edge_has_one_score(visit: Visit) -> None:
    visit.open("structures")
    visit.control("structures", "structure").select_option("tree")
    visit.control("structures", "score A B").press("PageUp")
    both = [visit.control("structures", f"score {name}").inner_text() for name in ("A B", "B A")]
    assert both[0] == both[1] == "2.5"


def test_the_expectation_is_dragged_on_the_triangle(visit: Visit) -> None:
    visit.open("simplex")
    box = visit.page.locator("#panel-simplex .ring").bounding_box()
    visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 100, box["y"] - 60, steps=4)
    visit.page.mouse.up()
    names = playground.run_program(visit.program("simplex"))
    assert names["logits"].tolist() != [0.8, 0.2, -0.6]
    assert "computes the same numbers" in visit.settled("simplex")


def test_tabs_are_reached_by_keys(visit: Visit) -> None:
    visit.page.focus("#tab-simplex")
    for tab in ("race", "estimators", "structures", "beam", "simplex"):
        visit.page.keyboard.press("ArrowRight")
        assert visit.page.evaluate("document.activeElement.id") == f"tab-{tab}"
        assert visit.page.get_attribute(f"#tab-{tab}", "aria-selected") == "true"
        assert visit.page.evaluate("location.hash") == f"#{tab}"


def test_every_control_has_a_name(visit: Visit) -> None:
    for tab in TABS:
        visit.open(tab)
    unnamed = visit.page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, [tabindex="0"], svg')].filter(
            x => !(x.ariaLabel || x.textContent.trim() || x.closest('label')?.textContent.trim())).length"""
    )
    assert unnamed == 0


def test_races_are_counted(visit: Visit) -> None:
    visit.open("race")
    before = visit.page.locator("#panel-race figcaption").first.inner_text()
    visit.control("race", "race").click()
    visit.control("race", "100 races").click()
    after = visit.page.locator("#panel-race figcaption").first.inner_text()
    assert int(after.split()[1]) == int(before.split()[1]) + 101


def test_the_search_goes_step_by_step(visit: Visit) -> None:
    visit.open("beam")
    seen = []
    for level in range(4):
        visit.control("beam", "step").click()
        seen.append(visit.page.locator("#panel-beam .leaf:not(.unseen)").count())
        assert visit.page.locator("#panel-beam .leaf.kept").count() <= 3, level
    assert seen == sorted(seen) and seen[0] == 1 and seen[1] == 4


def test_estimators_are_measured_by_the_library(visit: Visit) -> None:
    visit.open("estimators")
    visit.page.wait_for_selector("[data-estimator]")
    visit.control("estimators", "Imle").click()
    visit.page.wait_for_selector("[data-estimator=Imle]")
    names = playground.run_program(visit.program("estimators"))
    rows = {row.name: row for row in names["report"].rows}
    for key, _, value in visit.shown("estimators"):
        name, what = key.split(".")
        row = rows[name]
        expected = row.variance**0.5 if what == "deviation" else max(row.mse - row.variance, 0.0) ** 0.5
        assert value == pytest.approx(expected, abs=0.5e-4 + 1e-9), key  # four digits are shown
    assert visit.complaints == []


def test_any_choice_of_estimators_can_be_drawn(browser, on_disk: str) -> None:
    visit = Visit(browser, on_disk)
    visit.open("estimators")
    pressed = visit.page.eval_on_selector_all(
        "[aria-pressed=true]", "all => all.map(x => x.dataset.control)"
    )
    visit.control("estimators", "LocalExpectation").click()
    for name in pressed:
        visit.control("estimators", name).click()
    assert visit.page.locator("[data-estimator]").count() == 1  # without any spread
    visit.control("estimators", "GumbelST").click()
    visit.control("estimators", "LocalExpectation").click()
    visit.control("estimators", "choice").select_option("subset")
    text = visit.page.inner_text("#panel-estimators .stage")
    assert "None of the chosen estimators works" in text and "GumbelST refused" in text
    assert visit.complaints == []
    visit.close()


def test_the_theme_can_be_switched(visit: Visit) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    before = visit.page.evaluate(colour)
    visit.page.click("#theme")
    assert visit.page.evaluate(colour) != before
    visit.page.click("#theme")
    assert visit.page.evaluate(colour) == before


def test_code_is_copied(browser, server: Playground) -> None:
    visit = Visit(browser, server.address)
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.open("beam")
    visit.page.click("#panel-beam .copy")
    visit.page.wait_for_selector("#status:has-text('Copied')", state="attached")
    assert visit.page.evaluate("navigator.clipboard.readText()") == visit.program("beam")
    visit.close()


def test_a_stopped_server_is_noticed(browser) -> None:
    with playground.serving() as server:
        visit = Visit(browser, server.address)
    visit.control("simplex", "new noise").click()
    visit.page.wait_for_selector("#panel-simplex .badge.bad")
    assert re.search("stopped", visit.page.inner_text("#panel-simplex .badge"))
    visit.close()
