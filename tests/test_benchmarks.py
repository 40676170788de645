"""The benchmark runner measures what it says; the lines hold the goals; the page shows the JSON."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:  # `python -m pytest` has it, plain `pytest` does not
    sys.path.append(str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import baselines, page, runner  # noqa: E402
from benchmarks.inputs import forward_backward, normal  # noqa: E402
from benchmarks.line import Extra, Line, Speedup, Within, both  # noqa: E402
from benchmarks.lines import TOPICS  # noqa: E402
from benchmarks.memory import Peak  # noqa: E402
from benchmarks.table import COLUMNS, cells, warn_if_busy  # noqa: E402


class Clock:
    """Time that passes only when a step says so, and a diary of the steps."""

    def __init__(self) -> None:
        self.now, self.diary = 0.0, ""

    def __call__(self) -> float:
        return self.now

    def step(self, name: str, seconds: float) -> None:
        self.now += seconds
        self.diary += name


@pytest.fixture
def quick(monkeypatch):
    """Measurements of 0.1 ms, where the figures do not matter."""
    monkeypatch.setattr(runner, "SHORTEST", 1e-4)


def line(ours=lambda: lambda: 1, peer=lambda: lambda: 1, check=lambda a, b: None, **options) -> Line:
    return Line(name="x", ours=ours, peer=peer, peer_name="y", package="torch", check=check, **options)


def missing():
    raise ImportError("No module named 'nowhere'")


# ---- runner --------------------------------------------------------------------------------------


def test_ours_and_the_peer_are_timed_in_turns():
    clock = Clock()
    ours, peer = runner.measure(
        lambda: clock.step("a", 0.03), lambda: clock.step("b", 0.06), repeats=4, clock=clock
    )
    assert clock.diary == "ab" + "abababab"  # one look at each for the number of loops
    assert (ours.loops, ours.repeats, peer.repeats) == (1, 4, 4)
    assert ours.best == pytest.approx(0.03) and peer.median == pytest.approx(0.06)


def test_a_short_step_is_looped_for_20_ms():
    clock = Clock()
    ours, peer = runner.measure(
        lambda: clock.step("a", 1e-4), lambda: clock.step("b", 0.05), repeats=3, clock=clock
    )
    assert runner.SHORTEST <= ours.loops * 1e-4 < 2.1 * runner.SHORTEST  # it may double when just short
    assert ours.best == pytest.approx(1e-4) and peer.loops == 1


def test_best_and_median_are_over_the_repeats():
    clock, costs = Clock(), itertools.chain([1.0], [1.0, 5.0, 3.0])
    ours, _ = runner.measure(
        lambda: clock.step("a", next(costs)), lambda: clock.step("b", 1.0), repeats=3, clock=clock
    )
    assert (ours.best, ours.median) == (1.0, 3.0)


def test_a_slow_pair_stops_at_the_budget_but_not_before_three():
    clock = Clock()
    slow = runner.measure(lambda: clock.step("a", 30.0), lambda: clock.step("b", 30.0), 15, clock)
    assert slow[0].repeats == slow[1].repeats == runner.FEWEST


@pytest.mark.parametrize(
    ("goal", "ours", "peer", "met"),
    [
        (Speedup(4), 1.0, 4.0, True),
        (Speedup(4), 1.0, 3.9, False),
        (Speedup(1 / 3), 3.0, 1.01, True),
        (Speedup(1 / 3), 3.0, 0.99, False),
        (Extra(0.2), 1.1, 1.0, True),
        (Extra(0.2), 1.3, 1.0, False),
        (Within(0.5), 0.5, 0.1, True),
        (Within(0.5), 0.6, 9.9, False),
    ],
)
def test_goals(goal, ours, peer, met):
    assert goal.met(ours, peer) is met


def test_status_of_a_line(quick):
    def fails(a, b):
        assert a == b, "another question"

    assert runner.run_line(line(goals=both(Speedup(1e-9))), 1, 1).status == "pass"
    assert runner.run_line(line(goals=both(Speedup(1e9))), 1, 1).status == "FAIL"
    assert runner.run_line(line(), 1, 1).status == "no goal"
    unavailable = runner.run_line(line(ours=missing), 1, 1)
    assert (unavailable.status, unavailable.ours) == ("not available", None)
    assert "nowhere" in unavailable.reason
    wrong = runner.run_line(line(peer=lambda: lambda: 2, check=fails), 1, 1)
    assert wrong.status == "ERROR" and "another question" in wrong.reason


def test_a_peer_that_does_a_part_is_scaled(monkeypatch):
    timing = runner.Timing(best=1.0, median=2.0, loops=1, repeats=1)
    monkeypatch.setattr(runner, "measure", lambda *args: (timing, timing))
    quarter = runner.run_line(line(part=0.25), 1, 1)
    assert (quarter.peer.best, quarter.speedup, quarter.speedup_of_medians) == (4.0, 4.0, 4.0)


def test_threads_are_set_and_restored(quick):
    before, seen = torch.get_num_threads(), set()
    probe = line(ours=lambda: lambda: seen.add(torch.get_num_threads()))
    results = list(runner.run_lines([probe], None, 1))
    assert [r.threads for r in results] == [1, 2] and seen == {1, 2}
    assert [r.threads for r in runner.run_lines([probe], [2], 1)] == [2]
    assert torch.get_num_threads() == before


# ---- command -------------------------------------------------------------------------------------


@pytest.fixture
def topic(quick, monkeypatch, tmp_path):
    lines = (line(goals=both(Speedup(1e9))), line(ours=missing))
    monkeypatch.setattr(command, "TOPICS", {"toy": lines})
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    return tmp_path / "toy.json"


def test_a_missed_goal_fails_only_when_strict(topic):
    assert command.main(["--repeats", "1"]) == 0
    assert command.main(["--repeats", "1", "--strict"]) == 1


def test_json_holds_the_machine_and_each_result(topic, capsys):
    command.main(["--repeats", "1"])
    document = json.loads(topic.read_text())
    assert [r["status"] for r in document["results"]] == [
        "FAIL",
        "FAIL",
        "not available",
        "not available",
    ]
    facts = {
        "cpu",
        "cores",
        "os",
        "python",
        "torch",
        "numpy",
        "numba",
        "date",
        "load_average",
        "commit",
    }
    assert facts <= set(document["machine"])
    assert "No module named 'nowhere'" in capsys.readouterr().out


def test_a_part_of_a_topic_does_not_replace_its_json(topic, tmp_path):
    command.main(["--repeats", "1", "--threads", "1"])
    assert not topic.exists()
    command.main(["--repeats", "1", "--threads", "1", "--json", str(tmp_path / "here.json")])
    assert json.loads((tmp_path / "here.json").read_text())["toy"]["topic"] == "toy"


def test_list_and_only(capsys):
    assert command.main(["--list", "--only", "gumbel_max"]) == 0
    assert capsys.readouterr().out == "gumbel/gumbel_max (64, 50000)\n"
    assert list(command.select("imports/*")) == ["imports"]


# ---- lines ---------------------------------------------------------------------------------------


def test_names_are_unique():
    names = [f"{topic}/{x.name}" for topic, lines in TOPICS.items() for x in lines]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["gumbel_softmax fwd+bwd (32, 10)", "gumbel_max (64, 50000)"])
def test_gumbel_lines_run(name):
    (one,) = (x for x in TOPICS["gumbel"] if x.name == name)
    torch.manual_seed(0)
    one.check(one.ours()(), one.peer()())


def test_the_law_check_notices_a_wrong_law():
    from benchmarks.lines import gumbel

    with pytest.raises(AssertionError, match="wrong law"):
        gumbel._check_law(torch.zeros(64, dtype=torch.int64), 3 * normal((64, 100)))


def test_subset_baseline_against_enumeration():
    scores, k = normal((3, 6)), 2
    sets = torch.tensor(
        [[i in s for i in range(6)] for s in itertools.combinations(range(6), k)]
    ).float()
    totals = scores @ sets.T
    log_z, mu = baselines.sequential_subsets(scores, k)
    torch.testing.assert_close(log_z, totals.logsumexp(-1))
    torch.testing.assert_close(mu, totals.softmax(-1) @ sets)


def test_tree_baselines():
    mu, grad = forward_backward(baselines.inverse_tree_marginals, torch.zeros(1, 4, 4))()
    torch.testing.assert_close(mu, 0.5 * (1 - torch.eye(4))[None])  # 16 trees of 3 edges, 6 edges alike
    assert grad.shape == mu.shape
    chain = torch.tensor([[[0.0, 5.0, 1.0], [5.0, 0.0, 4.0], [1.0, 4.0, 0.0]]])
    (tree,) = baselines.scipy_trees(chain)()
    assert {tuple(edge) for edge in zip(*tree.nonzero(), strict=True)} == {(0, 1), (1, 2)}
    (arcs,) = baselines.networkx_arborescences(chain)()
    assert set(arcs.edges) == {(0, 1), (1, 2)}


def test_assignment_baseline():
    assert baselines.scipy_assignments(torch.eye(3).roll(1, 0)[None])().tolist() == [[2, 0, 1]]


def test_peak_memory_is_measured():
    peak = Peak()
    for count, least, most in ((4_000_000, 15, 40), (16_000_000, 60, 100)):  # float32: 15.3 and 61 MiB
        before = peak()
        assert peak.of(lambda n=count: torch.ones(n).sum())() == count
        assert least <= peak() - before <= most


# ---- page ----------------------------------------------------------------------------------------


def test_the_page_is_that_of_the_committed_json():
    assert page.PAGE.read_text(encoding="utf-8") == page.render(page.read()), (
        "run python -m benchmarks.page"
    )


def test_cells():
    timing = {"best": 0.002, "median": 0.004}
    result = {
        "name": "n", "threads": 1, "unit": "ms", "peer_name": "p", "goal": ">= 4x", "status": "pass",
        "ours": timing, "peer": {"best": 0.01, "median": 0.01},
    }  # fmt: skip
    assert len(cells(result)) == len(COLUMNS)
    assert cells(result)[2:6] == ("2 ms", "10 ms", "5.00x", "2.50x")
    difference = cells(result | {"goal": "<= +0.2 s", "unit": "cpu s"})
    assert difference[2:5:2] == ("0.002 cpu s", "-0.008 cpu s")
    assert cells(result | {"ours": None})[2:6] == ("-",) * 4


def test_a_busy_machine_is_mentioned():
    assert warn_if_busy({"load_average": [0.3, 0, 0], "cores": 2}) == ""
    assert "load 7.5 on 2 cores" in warn_if_busy({"load_average": [7.5, 0, 0], "cores": 2})


def test_peers_agree_with_the_constraints():
    def pins(path):
        rows = (ROOT / path).read_text().splitlines()
        return {r.split("==")[0].lower(): r.split("==")[1] for r in rows if "==" in r}

    ours, peers = pins("constraints.txt"), pins("benchmarks/peers.txt")
    assert {name: ours.get(name, version) for name, version in peers.items()} == peers
