"""The softmax toolbox: noise over many classes, and losses that avoid summing over them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import argrad as ag
from benchmarks.inputs import normal
from benchmarks.line import Extra, Goal, Line, Speedup, Step, both

CLASSES = 50_000
MANY = 1_000_000
DRAWS = 100_000
FEATURES = 128
BATCH = 256
K = 25


def _zipf(n: int) -> Tensor:
    """Frequencies as words have them, float64."""
    return 1 / torch.arange(1, n + 1, dtype=torch.float64)


# ---- noise ---------------------------------------------------------------------------------------


def _check_table(table: ag.AliasTable, nothing: None) -> None:
    """The cells give every class its share."""
    keep, other = table._on(torch.device("cpu"))[0].unbind(-1)
    share = keep.clone().index_add_(0, other.long(), 1 - keep) / MANY
    weights = _zipf(MANY)
    torch.testing.assert_close(share, weights / weights.sum(), rtol=1e-9, atol=0)


def _check_draws(ours: Tensor, peer: Tensor, n: int) -> None:
    """The mean log-probability of the drawn classes is that of the law; |z| < 5 once in two million runs."""
    p = _zipf(n) / _zipf(n).sum()
    mean = (p * p.log()).sum()
    deviation = ((p * p.log().square()).sum() - mean.square()).sqrt()
    for drawn in (ours, peer):
        z = (p.log()[drawn].mean() - mean) / deviation * len(drawn) ** 0.5
        assert abs(z) < 5, f"drawn with the wrong law: z = {z:.1f}"


def _draw(n: int) -> Line:
    weights = _zipf(n)
    return Line(
        name=f"AliasTable.sample, {n} classes, {DRAWS} draws",
        ours=lambda: partial(ag.AliasTable(weights).sample, (DRAWS,)),
        peer=lambda: partial(torch.multinomial, weights.float(), DRAWS, replacement=True),
        peer_name="torch.multinomial(float32)",
        package="torch",
        check=partial(_check_draws, n=n),
        goals=both(Speedup(3)),
    )


NOISE = (
    Line(
        name=f"AliasTable, {MANY} weights",
        ours=lambda: partial(ag.AliasTable, _zipf(MANY)),
        peer=lambda: lambda: None,
        peer_name="nothing",
        package=None,
        check=_check_table,
        goals={1: Extra(0.1)},
        threads=(1,),
        unit="cpu s",
        clock=time.process_time,
    ),
    _draw(CLASSES),
    _draw(MANY),
)


# ---- one training step of a layer with many classes ------------------------------------------------


def _step(head: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """Forward, backward, and plain gradient descent (by so little that later steps are like the first)."""
    hidden = normal((BATCH, FEATURES)).requires_grad_()
    target = torch.randint(CLASSES, (BATCH,), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-6)

    def step() -> Tensor:
        hidden.grad = None
        optimizer.zero_grad()
        value = loss(hidden, target)
        value.mean().backward()
        optimizer.step()
        return value.detach()

    return step


def _nce(sparse: bool) -> Step:
    torch.manual_seed(0)
    head = ag.NCE(FEATURES, ag.Unigram(_zipf(CLASSES)), k=K, sparse=sparse)
    return _step(head, head)


def _full_softmax() -> Step:
    torch.manual_seed(0)
    head = nn.Linear(FEATURES, CLASSES)
    return _step(head, lambda h, y: F.cross_entropy(head(h), y, reduction="none"))


def _check_losses(ours: Tensor, peer: Tensor) -> None:
    assert ours.shape == peer.shape == (BATCH,)
    assert bool(ours.isfinite().all()) and bool(peer.isfinite().all())


def _training(name: str, sparse: bool, goals: dict[int, Goal]) -> Line:
    return Line(
        name=f"{name}, {BATCH} items, {CLASSES} classes, k={K}",
        ours=lambda: _nce(sparse),
        peer=_full_softmax,
        peer_name="cross_entropy of nn.Linear, SGD",
        package="torch",
        check=_check_losses,
        goals=goals,
    )


LOSSES = (
    _training("NCE step", False, both(Speedup(5))),
    _training("NCE step, sparse gradients", True, {}),
)

# ---- word2vec: words a second are WORDS divided by the time ---------------------------------------------

WORDS, VOCABULARY, SENTENCE = 200_000, 20_000, 20


def _text() -> Tensor:
    """Words with the frequencies of a language, in sentences."""
    g = torch.Generator().manual_seed(0)
    words = ag.AliasTable(_zipf(VOCABULARY)).sample((WORDS,), generator=g)
    return words.view(-1, SENTENCE)


def _skip_gram() -> Step:
    from argrad.recipes.skip_gram import Sentences, SkipGram

    words = _text()
    text = Sentences(words.reshape(-1).int(), torch.arange(0, WORDS + 1, SENTENCE))
    counts = torch.bincount(words.reshape(-1), minlength=VOCABULARY)
    model = SkipGram(counts, 100, k=5, window=5)

    def step() -> Tensor:
        model.learn(text, 0, len(text), 0.025)
        return model.vectors

    return step


def _gensim() -> Step:
    from gensim.models import Word2Vec

    lines = [[str(word) for word in line] for line in _text().tolist()]
    model = Word2Vec(
        sg=1, negative=5, hs=0, vector_size=100, window=5, min_count=1, sample=0, workers=torch.get_num_threads()
    )  # fmt: skip
    model.build_vocab(lines)

    def step() -> Tensor:
        model.train(lines, total_examples=len(lines), epochs=1)
        return torch.from_numpy(model.wv.vectors)

    return step


def _check_vectors(ours: Tensor, peer: Tensor) -> None:
    """After a few passes over random words, vectors have grown to about the same size."""
    a, b = (x.norm(dim=-1).sort().values[-2000:].mean() for x in (ours, peer))
    assert 1 / 3 < a / b < 3, f"vectors of mean length {a:.3f} and {b:.3f}"


WORD2VEC = (
    Line(
        name=f"skip-gram, NEG-5, {WORDS} words, d=100",
        ours=_skip_gram,
        peer=_gensim,
        peer_name="gensim Word2Vec.train",
        package="gensim",
        check=_check_vectors,
        goals=both(Speedup(1 / 3)),
    ),
)

LINES = NOISE + LOSSES + WORD2VEC
