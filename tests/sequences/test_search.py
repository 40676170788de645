"""Stochastic beam search against the list of all sequences, at its limits, and with every option."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad.sequences import expand
from argrad.sequences.nodes import draw_key, gumbel_at, root_nodes
from argrad.testing import assert_cdf, assert_frequencies
from sequence_oracle import Tabular, inclusion, pair_law

SMALL, LARGE = Tabular.random(4, 4), Tabular.random(4, 5, seed=1)  # 121 and 364 sequences


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def draw(model: Tabular, k: int, batch: int = 1, seed: int = 0, **options) -> ag.SequenceSample:
    options = {"generator": ag.CounterRNG(seed), **model.options, **options}
    return ag.stochastic_beam_search(model.step, model.start(batch), k, **options)


def same(a: ag.SequenceSample, b: ag.SequenceSample) -> bool:
    width = max(a.tokens.shape[-1], b.tokens.shape[-1])
    x, y = (torch.nn.functional.pad(s.tokens, (0, width - s.tokens.shape[-1]), value=3) for s in (a, b))
    return torch.equal(x, y)


# ---- the law -------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(("model", "k"), [(SMALL, 3), (SMALL, 10), (LARGE, 5)], ids=str)
def test_inclusion_and_order_have_the_law_of_draws_without_replacement(model: Tabular, k: int) -> None:
    rows = 30_000
    sample = draw(model, k, rows)
    which, log_p = model.which(sample.tokens), model.log_prob()
    p, n = log_p.exp(), len(log_p)
    torch.testing.assert_close(sample.log_prob, log_p[which], rtol=0, atol=1e-12)  # float64 sums
    assert (which.sort(-1).values.diff() > 0).all(), "a sequence was drawn twice"
    assert_frequencies(torch.bincount(which[:, 0], minlength=n), p)
    pairs = which[:, 0] * n + which[:, 1]
    assert_frequencies(torch.bincount(pairs, minlength=n * n), pair_law(p))
    exact = inclusion(p, k)
    assert abs(exact.sum().item() - k) < 1e-6, "the oracle itself"
    seen = torch.bincount(which.flatten(), minlength=n) / rows
    often = exact * rows > 10
    z = ((seen - exact) / (exact * (1 - exact) / rows).sqrt())[often]
    assert z.abs().max() < 5.5, "largest of 364 at 1e-6"
    # inclusion counts are negatively correlated: their chi-square has a smaller mean and spread than independent ones
    assert z.square().mean() < 1 + 5 * math.sqrt(2 / len(z))


@pytest.mark.statistical
def test_the_order_of_three() -> None:
    model = Tabular.random(3, 2)  # 7 sequences
    sample = draw(model, 3, 40_000)
    which, p = model.which(sample.tokens), model.log_prob().exp()
    n = len(p)
    law = torch.zeros(n, n, n, dtype=torch.float64)
    for i in range(n):
        for j in set(range(n)) - {i}:
            for k in set(range(n)) - {i, j}:
                law[i, j, k] = p[i] * p[j] / (1 - p[i]) * p[k] / (1 - p[i] - p[j])
    cells = (which[:, 0] * n + which[:, 1]) * n + which[:, 2]
    assert_frequencies(torch.bincount(cells, minlength=n**3), law)


@pytest.mark.statistical
def test_perturbed_values_are_those_of_a_race() -> None:
    """The largest is Gumbel(0), and the first gap is that of the Gumbel below it."""
    sample = draw(SMALL, 3, 20_000)
    assert_cdf(sample.perturbed[:, 0], lambda x: torch.exp(-torch.exp(-torch.tensor(x))).numpy())
    assert (sample.perturbed.diff() < 0).all()
    assert (sample.perturbed[:, -1] > sample.kappa).all()
    # kappa of a draw of 3 is the fourth largest value: same race, longer sample
    longer = draw(SMALL, 4, 20_000)
    torch.testing.assert_close(longer.perturbed[:, 3], sample.kappa, rtol=0, atol=1e-9)
    assert torch.equal(longer.tokens[:, :3], sample.tokens)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_maximum_is_exact_down_to_improbable_sequences(dtype: torch.dtype) -> None:
    """400 tokens of two nats: the winner still has the root's value, bit for bit."""
    table = torch.randn(8, generator=torch.Generator().manual_seed(0), dtype=dtype)

    def step(token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        return table.roll(1).expand(len(state), -1), state

    rng = ag.CounterRNG(3)
    sample = ag.stochastic_beam_search(
        step, torch.zeros(50, 1), 5, eos=None, max_len=400, generator=rng
    )
    assert sample.log_prob.max() < -500
    key = draw_key("test", rng)
    node = root_nodes(key, torch.arange(50))
    assert torch.equal(sample.perturbed[:, :1], gumbel_at(key, node, torch.full_like(node, -1)))
    assert sample.perturbed.isfinite().all()
    assert (sample.perturbed.diff() <= 0).all()


# ---- limits --------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_one_sample_is_an_ancestral_sample() -> None:
    one = draw(SMALL, 1, 30_000)
    assert_frequencies(
        torch.bincount(SMALL.which(one.tokens[:, 0]), minlength=121), SMALL.log_prob().exp()
    )


@pytest.mark.parametrize("k", [121, 200])
def test_the_whole_support(k: int) -> None:
    sample = draw(SMALL, k, 2)
    assert sample.valid.sum(-1).tolist() == [121, 121]
    for which, valid in zip(SMALL.which(sample.tokens), sample.valid, strict=True):
        assert sorted(which[valid].tolist()) == list(range(121))
    assert (sample.kappa == -math.inf).all()
    log_p = SMALL.log_prob()
    exact = (log_p.exp() * log_p).sum()
    for kind in ("unordered", "importance", "normalized", "hindsight", "sum_and_sample"):
        weights = sample.weights(kind)
        torch.testing.assert_close(weights, sample.log_prob.exp(), rtol=1e-6, atol=1e-9)
        assert (weights[~sample.valid] == 0).all()
        assert (sample.entropy(kind) + exact).abs().max() < 1e-6
    assert (sample.tokens[~sample.valid] == SMALL.eos).all()
    assert (sample.length[~sample.valid] == 0).all()
    assert not sample.finished[~sample.valid].any()


@pytest.mark.parametrize("k", [1, 4, 30])
def test_cold_models_are_searched_as_by_beam_search(k: int) -> None:
    cold = draw(SMALL, k, tau=1e-7)
    beam = ag.beam_search(SMALL.step, SMALL.start(), k, tau=1e-7, **SMALL.options)
    assert torch.equal(cold.tokens, beam.tokens)
    torch.testing.assert_close(cold.log_prob, beam.log_prob)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_coldest_models(dtype: torch.dtype) -> None:
    """Logits over tau overflow downwards only: the arg max stays."""
    model = Tabular((1000 * SMALL.table).to(dtype), 4, 3)
    greedy = ag.beam_search(model.step, model.start(), 1, **model.options)
    cold = draw(model, 1, tau=1e-300)
    assert torch.equal(cold.tokens, greedy.tokens)
    assert cold.log_prob.item() == 0


def test_a_wide_beam_finds_the_most_probable_sequences() -> None:
    beam = ag.beam_search(SMALL.step, SMALL.start(), 121, **SMALL.options)
    torch.testing.assert_close(beam.log_prob[0], SMALL.log_prob().sort(descending=True).values)
    greedy = ag.beam_search(SMALL.step, SMALL.start(), 1, **SMALL.options)
    assert greedy.tokens[0, 0, 0] == SMALL.table[0].argmax()


# ---- same seed, same sample ----------------------------------------------------------------------


def test_rows_do_not_depend_on_their_neighbours() -> None:
    rng, whole = ag.CounterRNG(5), draw(SMALL, 4, 8, seed=5)
    first, second = draw(SMALL, 4, 3, seed=5), draw(SMALL, 4, 5, generator=rng.shift(rows=3))
    parts = torch.cat([x.tokens for x in (first, second)])
    assert torch.equal(whole.tokens, parts)
    assert torch.equal(whole.perturbed[3:], second.perturbed)
    order = torch.tensor([6, 0, 7, 1, 5, 2, 4, 3])
    assert torch.equal(draw(SMALL, 4, 8, seed=5, rows=order).tokens, whole.tokens[order])
    assert not torch.equal(draw(SMALL, 4, 8, seed=6).tokens, whole.tokens)


def test_a_smaller_beam_finds_the_same_first_ones() -> None:
    assert torch.equal(draw(LARGE, 3, 50).tokens, draw(LARGE, 20, 50).tokens[:, :3])


def test_generators() -> None:
    def by(seed: int | None) -> Tensor:
        g = None if seed is None else torch.Generator().manual_seed(seed)
        return draw(SMALL, 4, 20, generator=g).tokens

    before = torch.get_rng_state()
    assert torch.equal(by(1), by(1))
    assert not torch.equal(by(1), by(2))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(0)
    first = by(None)
    assert not torch.equal(first, by(None))
    torch.manual_seed(0)
    assert torch.equal(first, by(None))
    torch.set_rng_state(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk", [1, 7, 100, 10_000])
def test_torch_and_kernel_and_any_chunk_agree(
    chunk: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = torch.randn(300, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    table[:, ::7] = -math.inf

    def step(token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        state = state if token is None else token
        return table[state], state

    def run() -> ag.SequenceSample:
        start = torch.arange(1, 7)
        return ag.stochastic_beam_search(step, start, 5, eos=299, max_len=6, generator=ag.CounterRNG(1))

    kernel = run()
    monkeypatch.setattr(expand, "has_kernel", lambda _: False)
    monkeypatch.setattr(expand, "CHUNK", chunk)
    plain = run()
    assert torch.equal(plain.tokens, kernel.tokens)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12  # of log sum exp
    torch.testing.assert_close(plain.log_prob, kernel.log_prob, rtol=0, atol=tolerance)
    torch.testing.assert_close(plain.perturbed, kernel.perturbed, rtol=0, atol=tolerance)
    torch.testing.assert_close(plain.kappa, kernel.kappa, rtol=0, atol=tolerance)


def test_threads_do_not_change_the_sample() -> None:
    table = torch.randn(4, 60_000, generator=torch.Generator().manual_seed(0))

    def run() -> ag.SequenceSample:
        step = lambda token, state: (table[: len(state)], state)  # noqa: E731
        return ag.stochastic_beam_search(
            step, torch.zeros(4), 1, eos=0, max_len=3, generator=ag.CounterRNG(0)
        )

    one = run()
    torch.set_num_threads(2)
    assert torch.equal(run().tokens, one.tokens)


# ---- options -------------------------------------------------------------------------------------


def test_temperature_mask_and_processors_come_before_the_softmax() -> None:
    allowed = torch.tensor([True, False, True, True])

    def favour(tokens: Tensor, logits: Tensor) -> Tensor:
        assert len(tokens) == len(logits)
        return logits + torch.tensor([0.0, 0.0, 1.0, 0.0]) * tokens.shape[-1]

    sample = draw(SMALL, 4, 20, tau=0.5, mask=allowed, processors=[favour])
    assert not (sample.tokens == 1).any()
    rows = SMALL.table.clone()
    node = torch.zeros_like(sample.tokens[..., 0])
    expected = torch.zeros_like(sample.log_prob)
    for t in range(sample.tokens.shape[-1]):
        logits = rows[node.clamp(max=len(rows) - 1)] / 0.5
        logits = logits.masked_fill(~allowed, -math.inf) + torch.tensor([0, 0, 1.0, 0]) * t
        token = sample.tokens[..., t]
        gain = logits.log_softmax(-1).gather(-1, token[..., None])[..., 0]
        expected += torch.where(t < sample.length, gain, 0.0)
        node = node * 4 + token + 1
    torch.testing.assert_close(sample.log_prob, expected)


def test_a_mask_for_each_row() -> None:
    mask = torch.tensor([[True, False, True, True], [False, True, True, True]])
    sample = draw(SMALL, 5, 2, mask=mask)
    assert not (sample.tokens[0] == 1).any()
    assert not (sample.tokens[1] == 0).any()


def test_shortest_and_longest_length() -> None:
    sample = draw(SMALL, 10, 20, min_len=3)
    assert (sample.length >= 3).all()
    assert (sample.length <= 4).all()
    assert (sample.finished == (sample.tokens == SMALL.eos).any(-1)).all()
    cut = draw(SMALL, 10, 20, max_len=2)
    assert cut.tokens.shape[-1] == 2
    assert not cut.finished.all()


def test_sequences_are_padded_behind_their_end() -> None:
    def step(token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        assert token is None or ((token >= 0) & (token < 4)).all(), (
            "a model could not embed the padding"
        )
        return SMALL.step(token, state)

    sample = ag.stochastic_beam_search(step, SMALL.start(5), 20, pad=-7, **SMALL.options)
    place = torch.arange(sample.tokens.shape[-1])
    inside = place < sample.length[..., None]
    assert ((sample.tokens == -7) == ~inside).all()
    last = sample.tokens.gather(-1, sample.length[..., None] - 1)[..., 0]
    assert ((last == SMALL.eos) == sample.finished).all()


def test_prefixes_condition_the_model() -> None:
    prefix = torch.tensor([[0, 2], [1, 1]])
    sample = draw(LARGE, 6, 2, prefix=prefix, max_len=3)
    whole = torch.cat([prefix[:, None].expand(-1, 6, -1), sample.tokens], -1)
    log_p = LARGE.table.log_softmax(-1)
    head = torch.stack([log_p[0, a] + log_p[a + 1, b] for a, b in prefix.tolist()])
    total = LARGE.log_prob()[LARGE.which(whole)]
    torch.testing.assert_close(sample.log_prob, total - head[:, None])


def test_processors_see_the_prefix() -> None:
    seen: list[int] = []

    def note(tokens: Tensor, logits: Tensor) -> Tensor:
        seen.append(tokens.shape[-1])
        assert (tokens[:, 0] == 1).all()
        return logits

    draw(SMALL, 2, 1, prefix=torch.tensor([[1]]), max_len=3, processors=note, eos=None)
    assert seen == [1, 2, 3]


def test_several_ends_and_a_criterion() -> None:
    sample = draw(SMALL, 10, 5, eos=[2, 3])
    ends = (sample.tokens == 2) | (sample.tokens == 3)
    assert (ends.any(-1) == sample.finished).all()
    stopped = draw(SMALL, 10, 5, stop=lambda tokens: tokens[:, -2:].sum(-1) == 3)
    last = stopped.tokens.gather(-1, (stopped.length[..., None] - 2).clamp(min=0))[..., 0]
    end = stopped.tokens.gather(-1, stopped.length[..., None] - 1)[..., 0]
    total = end + torch.where(stopped.length > 1, last, 0)
    assert ((total == 3) | (end == SMALL.eos) | ~stopped.finished).all()
    free = draw(SMALL, 10, 5, eos=None)
    assert (free.length == 4).all()
    assert not free.finished.any()


def test_state_in_any_nesting_and_by_reorder() -> None:
    plain = draw(SMALL, 5, 3)

    def nested(token: Tensor | None, state: dict) -> tuple[Tensor, dict]:
        logits, new = SMALL.step(token, state["pair"][0])
        return logits, {"pair": (new, [new.double(), None]), "word": "kept", "number": torch.tensor(3)}

    start = {"pair": (SMALL.start(3), [SMALL.start(3).double(), None]), "word": "", "number": 0}
    options = {**SMALL.options, "generator": ag.CounterRNG(0)}
    assert same(ag.stochastic_beam_search(nested, start, 5, **options), plain)

    def sideways(token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        logits, new = SMALL.step(token, state[0])
        return logits, new[None]

    reorder = lambda state, index: state[:, index]  # noqa: E731
    sample = ag.stochastic_beam_search(sideways, SMALL.start(3)[None], 5, reorder=reorder, **options)
    assert same(sample, plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_widened(dtype: torch.dtype) -> None:
    model = Tabular(SMALL.table.to(dtype), 4, 3)
    wide = Tabular(SMALL.table.to(dtype).float(), 4, 3)
    assert same(draw(model, 5, 10), draw(wide, 5, 10))


def test_an_empty_batch() -> None:
    sample = draw(SMALL, 3, 0)
    assert sample.tokens.shape[:2] == (0, 3)
    assert sample.weights().shape == (0, 3)


def test_the_step_gets_one_row_for_each_prompt_at_first() -> None:
    rows: list[int | None] = []

    def step(token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        rows.append(None if token is None else len(token))
        logits, state = SMALL.step(token, state)
        return logits, state

    ag.stochastic_beam_search(step, SMALL.start(2), 3, eos=None, max_len=3, batch_size=2)
    assert rows == [None, 6, 6]
