"""The demo: it trains, repeats, keeps to its time, and writes a page that stands alone."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pty
import re
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence
from torch.nn.functional import one_hot

import argrad as ag
from argrad.cli import main
from argrad.recipes import charts, demo, pictures, report, ways
from argrad.recipes.digits import TRAIN, CategoricalVAE, load_digits
from argrad.recipes.files import check_writable, write_text
from argrad.recipes.live import Line, PlainProgress, Progress, Table, progress
from html_page import Page

TINY = demo.Config(
    steps=4, points=2, batch=10, hidden=8, test_draws=1, variance_images=2, variance_draws=2
)
SILENT = Progress(demo.TABLE)


def train(config: demo.Config) -> demo.Result:
    return demo.train_all(config, SILENT, time.perf_counter())


# ---- the whole command ---------------------------------------------------------------------------


def test_the_command_writes_a_page_that_stands_alone(tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["demo", "--steps", "3", "--seed", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "100 %" in printed and str(out) in printed
    assert list(tmp_path.iterdir()) == [out]
    text = out.read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert page.stands_alone(text)
    names = [way.name for way in ways.all_ways(3)]
    assert all(text.count(name) >= 4 and printed.count(name) >= 1 for name in names)
    assert page.count["img"] == len(names) + 1  # the originals and each way's reconstructions
    assert "argrad demo --steps 3 --seed 1" in text and "prefers-color-scheme: dark" in text
    assert "nan" not in re.sub(r"data:[^\"]*", "", text).lower().replace("nanum", "")
    assert out.stat().st_size < 300_000


def test_quiet_prints_nothing(tmp_path, capsys, monkeypatch):
    result = train(TINY)
    monkeypatch.setattr(demo, "train_all", lambda config, show, started: result)
    assert main(["demo", "--quiet", "--out", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().out == ""


def test_a_terminal_gets_the_live_table(tmp_path):
    master, slave = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "argrad",
        "demo",
        "--steps",
        "2",
        "--out",
        str(tmp_path / "r.html"),
    ]
    process = subprocess.Popen(
        command, stdout=slave, stderr=slave, env={**os.environ, "COLUMNS": "100"}
    )
    os.close(slave)
    text = b""
    while chunk := _read(master):
        text += chunk
    os.close(master)
    assert process.wait(60) == 0, text
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode())
    assert "gradient variance" in shown and "━" in shown and "100 %" in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


# ---- training ------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_numbers():
    def numbers(config):
        return [(r.steps, r.train, r.test, r.variance, r.kl) for r in train(config).runs]

    first = numbers(TINY)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert numbers(TINY) == first  # also with another number of threads
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert numbers(dataclasses.replace(TINY, seed=1)) != first


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    train(TINY)
    assert torch.equal(torch.get_rng_state(), before)


def test_all_ways_start_from_the_same_weights_and_data():
    runs = [demo.start(TINY, way) for way in ways.all_ways(4)]
    for a, b in itertools.pairwise(runs):
        pairs = zip(a.model.parameters(), b.model.parameters(), strict=True)
        assert all(torch.equal(p, q) for p, q in pairs)
        assert torch.equal(a.order.get_state(), b.order.get_state())


def test_training_helps():
    config = demo.Config(steps=40, points=4)
    for run in train(config).runs:
        assert run.test[-1] < 30 < run.test[0]  # 64 pixels cost 44 nats at the start
        assert run.steps == [10, 20, 30, 40]


def test_the_negative_elbo_is_that_of_the_enumerated_model():
    torch.manual_seed(0)
    model = CategoricalVAE(latents=2, classes=3, hidden=5)
    x = load_digits(0)[1][:4]
    logits = model.encode(x)
    q = Categorical(logits=logits)
    codes = torch.cartesian_prod(torch.arange(3), torch.arange(3))  # (9, 2)
    log_prob = q.log_prob(codes[:, None, :].expand(9, 4, 2)).sum(-1)  # (9, 4)
    cost = model.cost(x)(one_hot(codes, 3).float()[:, None].expand(9, 4, 2, 3))
    exact = (log_prob.exp() * cost).sum(0).mean().item()
    kl = kl_divergence(q, Categorical(torch.ones(3) / 3)).sum(-1)
    assert torch.allclose(model.kl(logits), kl, atol=1e-6)
    estimate, measured_kl = demo.hard_negative_elbo(model, x, 20_000, seed=0)
    spread = ((log_prob.exp() * (cost - exact) ** 2).sum(0) / 20_000 / 4).mean().sqrt().item()
    assert abs(estimate - exact) < 4.9 * spread  # alpha = 1e-6
    assert math.isclose(measured_kl, kl.mean().item(), rel_tol=1e-5)


def test_gradient_variance_of_known_samplers():
    config = dataclasses.replace(TINY, variance_draws=4000, variance_images=2, latents=1, classes=3)
    x = load_digits(0)[0][:2]

    def noisy(logits, step, generator):  # each coordinate's gradient is N(0, 1) times that of f
        return logits * torch.randn(logits.shape, generator=generator)

    calm = demo.start(
        config, ways.Way(name="", note="", sample=lambda logits, step, g: logits.softmax(-1))
    )
    assert demo.gradient_variance(config, calm, x) < 1e-12
    run = demo.start(config, ways.Way(name="", note="", sample=noisy))
    run.model.cost = lambda x: lambda z: z.sum((-2, -1))
    # three logits of variance 1; the variance of n normal values has a relative error of sqrt(2 / n)
    assert abs(demo.gradient_variance(config, run, x) - 3) < 4.9 * 3 * math.sqrt(2 / (4000 * 2 * 3))


def test_the_data_are_split_and_binary():
    train_images, test_images = load_digits(0)
    assert train_images.shape == (TRAIN, 64) and test_images.shape == (297, 64)
    assert set(train_images.unique().tolist()) == {0.0, 1.0}
    assert not torch.equal(load_digits(1)[1], test_images)


# ---- ways ----------------------------------------------------------------------------------------


def test_the_annealed_temperature_ends_at_its_floor(monkeypatch):
    seen = []
    monkeypatch.setattr(ag, "gumbel_softmax", lambda logits, tau, **_: seen.append(tau) or logits)
    annealed = next(way for way in ways.relaxations(1000) if "annealed" in way.name)
    for step in (0, 350, 700, 999):
        annealed.sample(torch.zeros(3), step, None)
    assert seen[0] == 1.0 and seen[2:] == pytest.approx([0.5, 0.5])
    assert seen[1] == pytest.approx(math.sqrt(0.5))


def test_hard_ways_are_hard_and_soft_ways_are_soft():
    logits = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for way in ways.relaxations(10):
        z = way.sample(logits, 0, torch.Generator().manual_seed(1))
        hard = bool(((z == 0) | (z == 1)).all())
        assert hard == (way.note.startswith("hard")), way.name
        assert torch.allclose(z.sum(-1), torch.ones(5, 2))
        assert torch.autograd.grad((z * z.detach().cumsum(-1)).sum(), logits)[0].abs().sum() > 0


class Fake(torch.nn.Module):
    """A fake estimator with a parameter: the mean cost at the marginals, plus its own penalty.

    More text.
    """

    demo = True

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, f, q, *, generator):
        assert isinstance(generator, torch.Generator) and q.batch_shape == q.scores.shape[:-2]
        return f(q.scores.softmax(-1)[None])[0] + self.weight**2


def test_flagged_estimators_join_by_themselves(monkeypatch):
    before = [way.name for way in ways.estimators()]
    monkeypatch.setattr(ag, "Fake", Fake, raising=False)
    monkeypatch.setattr(ag, "Plain", type("Plain", (), {}), raising=False)  # not flagged
    monkeypatch.setitem(vars(ag)["_names"], "Fake", "estimators.fake")
    monkeypatch.setitem(vars(ag)["_names"], "Plain", "estimators.fake")
    found = {way.name: way for way in ways.estimators()}
    assert sorted(found) == sorted([*before, "Fake"])
    assert found["Fake"].note.startswith("A fake estimator with a parameter")
    monkeypatch.setattr(demo, "all_ways", lambda steps: [found["Fake"]])
    (run,) = train(TINY).runs
    assert run.way.estimator.weight.item() < 1  # its parameter was trained
    assert run.variance == [0.0, 0.0]  # it does not draw


# ---- time ----------------------------------------------------------------------------------------


def test_the_plan_fits_the_time(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(demo.time, "perf_counter", lambda: next(clock) * 0.01)

    def advance(config, run, images, goal):
        run.seconds += 0.005 * (goal - run.step)
        run.step = goal

    monkeypatch.setattr(demo, "advance", advance)
    monkeypatch.setattr(demo, "measure", lambda *a: None)
    data = (torch.zeros(1), torch.zeros(1))
    count = len(ways.all_ways(1))
    for seconds in (5, 60, 300):
        config = demo.Config(seconds=seconds, most_steps=10**9)
        steps, points = demo.plan(config, data, demo.time.perf_counter())
        total = count * (0.005 * steps + 0.01 * points)  # 10 ms between two looks at the clock
        assert 0.6 * seconds < total < seconds - 1
        assert 1 <= points <= config.points
    assert demo.plan(demo.Config(seconds=0.01), data, 0.0) == (1, 1)
    assert demo.plan(demo.Config(seconds=1e9), data, 0.0) == (6000, 30)


def test_a_slow_machine_stops_early(monkeypatch):
    config = dataclasses.replace(TINY, steps=None, seconds=0.5, points=4)
    monkeypatch.setattr(demo, "plan", lambda *a: (8, 4))
    result = train(config)
    assert result.steps == 2 and {r.step for r in result.runs} == {2}  # one stretch, the same for all


def test_too_few_steps_are_called_too_few(monkeypatch, tmp_path, capsys):
    config = dataclasses.replace(TINY, steps=None, seconds=0.5, points=4)
    monkeypatch.setattr(demo, "plan", lambda *a: (8, 4))
    demo.main(config, tmp_path / "r.html")
    assert "too few to tell the ways apart" in capsys.readouterr().out
    demo.main(TINY, tmp_path / "r.html")  # the number of steps was asked for
    assert "too few" not in capsys.readouterr().out


def test_a_budget_is_kept(tmp_path):
    train(TINY)  # loads and compiles
    result = demo.main(demo.Config(seconds=4), tmp_path / "r.html", quiet=True)
    # the most steps would take minutes; the rest of the bound is for a machine that does other things too
    assert result.seconds < 40
    assert result.steps < demo.Config().most_steps


# ---- pieces of the report ------------------------------------------------------------------------


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_ticks_are_round_few_and_enclose(low, span):
    ticks = charts.nice_ticks(low, low + span)
    assert 2 <= len(ticks) <= 9
    assert ticks == sorted(set(ticks))
    step = ticks[1] - ticks[0]
    assert ticks[0] <= low + 1e-6 * step and ticks[-1] >= low + span - 1e-6 * step


@given(st.floats(-8, 8), st.floats(0, 8))
def test_log_ticks_are_few_and_reach_over_most(exponent, decades):
    low, high = 10**exponent, 10 ** (exponent + decades)
    ticks = charts.log_ticks(low, high)
    assert 2 <= len(ticks) <= 19 and ticks == sorted(set(ticks))
    assert ticks[0] < high * 1.01 and ticks[-1] > low * 0.99


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=6), st.booleans())
def test_a_chart_draws_any_numbers(values, log):
    series = [charts.Series("a <b>", range(len(values)), values, 9)]
    text = charts.line_chart(series, title="t & t", x_label="x", log_y=log)
    assert Page(text).open == [] and "<b>" not in text
    assert "nan" not in text.lower().replace("finite values", "") and "inf" not in text.replace(
        "finite", ""
    )


def test_a_chart_breaks_nothing_at_one_point():
    chart = charts.line_chart([charts.Series("a", [0], [5.0], 0)], title="t", x_label="x")
    assert 'class="dot"' in chart


def test_the_table_marks_the_smallest_and_escapes():
    rows = [report.Row("a<b", "n", 0, (2.0, -0.5)), report.Row("c", "n", 1, (1.0, math.nan))]
    text = report.table(("way", "x", "y"), rows, best=(0, 1))
    assert text.count('class="best"') == 2 and '<span class="best">1.00</span>' in text
    assert "a&lt;b" in text and "−0.50" in text and "–" in text


def test_png_holds_the_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 2), dtype=np.uint8)
    data = pictures.png(pixels)
    length = int.from_bytes(data[33:37], "big")
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[37:41] == b"IDAT"
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(3, 11)
    assert (rows[:, 0] == 0).all() and (rows[:, 1:].reshape(3, 5, 2) == pixels).all()
    image = pytest.importorskip("matplotlib.image")
    import io

    read = image.imread(io.BytesIO(data), format="png")
    assert read.shape[:2] == (3, 5)


def test_writing_is_all_or_nothing(tmp_path):
    path = tmp_path / "r.html"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \ud800")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    write_text(path, "new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "a.html", tmp_path / "b.html"
    link.symlink_to(target)
    write_text(check_writable("--out", link), "x")
    assert link.is_symlink() and target.read_text() == "x"


def test_plain_progress(capsys):
    show = progress(Table("title", ("way", "train", "test")))
    assert isinstance(show, PlainProgress)
    with show:
        for done in range(21):
            show.update([Line("a", (1.0, 2.0))], done, 20)
        show.finish([Line("a", (1.0, math.nan))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "title" and len(lines) == 1 + 10 + 2
    assert lines[1] == "  10 %  test from 2.00 (a) to 2.00 (a)" and lines[-1].split() == [
        "a",
        "1.00",
        "–",
    ]


def test_progress_without_rich(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "rich.live", None)
    assert isinstance(progress(demo.TABLE), PlainProgress)
