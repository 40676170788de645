"""STS scores, training sentences, losses and the gradient cache."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch.nn.functional import cross_entropy, normalize

from argrad._errors import InputError
from argrad.integrations.sentences.data import (
    generated_examples,
    generated_sts,
    nli_triples,
    read_examples,
    wiki_sentences,
)
from argrad.integrations.sentences.encoder import Counted
from argrad.integrations.sentences.evaluate import COLUMNS, evaluate, spearman
from argrad.integrations.sentences.gradient_cache import cached_backward
from argrad.integrations.sentences.losses import alignment, simcse_loss, uniformity
from argrad.integrations.sentences.sts import PARTS, Pairs, join, key, load_sts, sentences

SETS = generated_sts(30)


def letters(texts: list[str]) -> torch.Tensor:
    """How often each letter occurs: a poor encoder."""
    return torch.tensor([[float(t.count(c)) for c in "abcdefghijklmnopqrstuvwxyz"] for t in texts])


# ---- scores --------------------------------------------------------------------------------------


def expected(pairs: Pairs) -> float:
    cosine = torch.cosine_similarity(letters(list(pairs.first)), letters(list(pairs.second)))
    return 100 * spearmanr(cosine.numpy(), pairs.score)[0]


def test_columns_are_those_of_the_published_table():
    scores = evaluate(letters, SETS)
    assert list(scores.all)[:3] == list(COLUMNS[:3]) and set(COLUMNS) <= set(scores.all)
    assert scores.all["sts14"] == pytest.approx(expected(SETS["STS14"]), abs=1e-3)
    stsb = [SETS[f"STSB-{part}"] for part in ("train", "dev", "test")]
    assert scores.all["stsbenchmark"] == pytest.approx(expected(join(*stsb)), abs=1e-3)
    assert scores.all["stsbenchmark_train_and_dev"] == pytest.approx(
        expected(join(*stsb[:2])), abs=1e-3
    )
    sick = join(*(SETS[f"SICK-{part}"] for part in ("train", "dev", "test")))
    assert scores.all["sickrelatedness"] == pytest.approx(expected(sick), abs=1e-3)
    years = [scores.all[f"sts{year}"] for year in range(12, 17)]
    seven = [*years, scores.all["stsbenchmark_test"], scores.all["sickrelatedness"]]
    assert scores.all["avg_test"] == pytest.approx(np.mean(seven))
    assert scores.all["avg_train_and_dev"] == scores.all["stsbenchmark_train_and_dev"]


def test_parts_are_averaged_plainly_and_by_size():
    rows = [*SETS["STS12"].rows()]
    pairs = Pairs.of([(*row[:3], "one" if i < 20 else "two") for i, row in enumerate(rows)])
    one, two = (expected(Pairs.of(list(pairs.rows())[s])) for s in (slice(20), slice(20, None)))
    scores = evaluate(letters, {"STS12": pairs})
    assert scores.mean["sts12"] == pytest.approx((one + two) / 2, abs=1e-3)
    assert scores.wmean["sts12"] == pytest.approx((20 * one + 10 * two) / 30, abs=1e-3)
    assert scores.all["sts12"] == pytest.approx(expected(pairs), abs=1e-3)


def test_duplicates_of_stsb_are_left_out():
    known = SETS["STSB-dev"]
    first, second, score, _ = next(known.rows())
    again = Pairs.of(
        [(second.upper() + "!", first, score, "x")]
    )  # the other way round, in other letters
    sets = {**SETS, "STS13": join(SETS["STS13"], again)}
    scores, plain = evaluate(letters, sets), evaluate(letters, SETS)
    assert len(sets["STS13"].without(known)) == 30
    assert scores.dedup["sts13"] == pytest.approx(plain.dedup["sts13"])
    assert scores.all["sts13"] != pytest.approx(plain.all["sts13"])
    assert "stsbenchmark_dev" not in scores.dedup and "avg_test" in scores.dedup
    assert evaluate(letters, {"STS13": again}).dedup == {}


def test_selection_and_sparsity():
    def counted(texts: list[str]) -> Counted:
        return Counted(letters(texts), torch.full((len(texts),), 3), torch.full((len(texts),), 4))

    scores = evaluate(counted, SETS, batch_size=7)
    assert scores.selected == scores.all["stsbenchmark_dev"]
    assert (scores.kept, scores.sparsity) == (0.75, 0.25)
    assert scores.table()["sparsity"] == 0.25 and "avg_test_dedup" in scores.table()
    published = evaluate(letters, SETS, select_on="stsb-train+dev")
    assert published.selected == published.all["stsbenchmark_train_and_dev"] and published.kept == 1
    assert scores.all == pytest.approx(published.all, abs=1e-4)  # batches do not matter
    arrays = evaluate(lambda texts: letters(texts).numpy(), SETS)
    assert arrays.all == pytest.approx(published.all, abs=1e-4)


@pytest.mark.parametrize(
    ("encode", "sentence"),
    [
        (lambda texts: torch.zeros(len(texts), 3) / 0, "NaN or infinity in"),
        (lambda texts: torch.zeros(3), r"one row for each of 128 sentences; got shape \(3,\)"),
    ],
)
def test_embeddings_that_mean_nothing(encode, sentence):
    with pytest.raises(InputError, match=sentence):
        evaluate(encode, SETS)
    with pytest.raises(InputError, match="`select_on` must be one of stsb-dev"):
        evaluate(letters, SETS, select_on="test")


def test_spearman_of_ties_and_constants():
    x, y = [1.0, 2, 2, 3, 3, 3], [2.0, 1, 4, 4, 6, 5]
    assert spearman(x, y) == pytest.approx(100 * spearmanr(x, y)[0])
    assert math.isnan(spearman([1.0, 1.0], [1.0, 2.0]))


# ---- files ---------------------------------------------------------------------------------------


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_sts_files(tmp_path):
    parts = {
        f"STS12-en-test/STS.{kind}.{part}.txt": ""
        for kind in ("input", "gs")
        for part in PARTS["STS12"]
    }
    files = {name: "a b\tc d\n" if "input" in name else "2.5\n" for name in parts}
    files["STS12-en-test/STS.input.MSRpar.txt"] = "a\u2028b\tc\nd\te\nf\tg\n"  # not a new line
    files["STS12-en-test/STS.gs.MSRpar.txt"] = "1.0\n\n3\n"  # the second was not judged
    for part in ("train", "dev", "test"):
        files[f"STSBenchmark/sts-{part}.csv"] = "genre\tfile\tyear\t1\t4.5\tone\ttwo\tmore\n"
    found = load_sts(put(tmp_path, files), ["STS12", "STSB"])
    assert list(found) == ["STS12", "STSB-train", "STSB-dev", "STSB-test"]
    assert len(found["STS12"]) == 2 + 4 and found["STS12"].first[0] == "a\u2028b"
    assert list(found["STSB-dev"].rows()) == [("one", "two", 4.5, "genre")]
    assert sentences({"x": found["STSB-dev"]}) == ["one", "two"]
    with pytest.raises(
        InputError, match=r"STS13-en-test.*is not there. The folder must hold the sets as SentEval"
    ):
        load_sts(tmp_path)
    with pytest.raises(InputError, match="there is no STS task 'STS17'"):
        load_sts(tmp_path, ["STS17"])
    put(tmp_path, {"STS12-en-test/STS.gs.MSRvid.txt": "1\n2\n"})
    with pytest.raises(InputError, match="part MSRvid has 1 pairs and 2 scores"):
        load_sts(tmp_path, ["STS12"])


def test_pairs_have_no_order():
    assert key("A man, here.", "it") == key("It!", "a man here") != key("a man", "it")


def test_wikitext_and_snli(tmp_path):
    text = " \n = Title = \n it is a well @-@ known thing . the <unk> was 1 @,@ 000 m long . no\n"
    found = wiki_sentences(put(tmp_path, {"valid.txt": text}), shortest=4)
    assert found == [("it is a well-known thing .",), ("the something was 1,000 m long .",)]
    files = {
        "s1.dev": "p\np\nq\np\n",
        "s2.dev": "yes\nno\nmaybe\nno too\n",
        "labels.dev": "entailment\ncontradiction\nentailment\ncontradiction\n",
    }
    assert nli_triples(put(tmp_path / "nli", files)) == [("p", "yes", "no")]
    for read in (wiki_sentences, nli_triples):
        with pytest.raises(InputError, match="has no"):
            read(tmp_path / "nowhere")


def test_own_files(tmp_path):
    put(
        tmp_path,
        {"a.txt": "one\n\n two \n", "b.csv": 'sent0,sent1,hard_neg\n"a, b",c,d\n', "c.txt": "\n"},
    )
    put(tmp_path, {"d.json": '{"sent0": "a", "sent1": "b"}\n', "e.csv": "text\nx\n"})
    assert read_examples(tmp_path / "a.txt") == [("one",), ("two",)]
    assert read_examples(tmp_path / "b.csv") == [("a, b", "c", "d")]
    assert read_examples(tmp_path / "d.json") == [("a", "b")]
    for name, sentence in {
        "c.txt": "holds no sentences",
        "e.csv": "needs columns sent0, sent1, hard_neg; got text",
        "f.txt": "is not there",
        "g.pdf": r"must end in \.txt, \.csv, \.json",
    }.items():
        with pytest.raises(InputError, match=sentence):
            read_examples(tmp_path / name)


def test_generated_sentences_say_what_their_score_says():
    triples = generated_examples(50, triples=True)
    assert len(triples) == 50 and all(len(t) == 3 for t in triples)
    assert (
        triples == generated_examples(50, triples=True) != generated_examples(50, triples=True, seed=1)
    )
    assert set(SETS["STS12"].score) <= {0.0, 1.25, 2.5, 3.75, 5.0}
    assert evaluate(letters, SETS).all["stsbenchmark"] > 10  # similar letters, similar meaning


# ---- losses --------------------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_of_cosines():
    torch.manual_seed(0)
    a, p, n = torch.randn(3, 6, 8, dtype=torch.float64)
    cosine = normalize(a, dim=-1) @ normalize(torch.cat([p, n]), dim=-1).mT / 0.05
    assert simcse_loss(a, p) == pytest.approx(cross_entropy(cosine[:, :6], torch.arange(6)).item())
    assert simcse_loss(a, p, n) == pytest.approx(cross_entropy(cosine, torch.arange(6)).item())
    heavier = cosine + torch.cat([torch.zeros(6, 6), 0.7 * torch.eye(6)], -1)
    found = simcse_loss(a, p, n, hard_negative_weight=0.7)
    assert found == pytest.approx(cross_entropy(heavier, torch.arange(6)).item())


def test_alignment_and_uniformity():
    torch.manual_seed(0)
    x, y = normalize(torch.randn(2, 5, 3, dtype=torch.float64), dim=-1)
    assert alignment(3 * x, y) == pytest.approx((x - y).square().sum(-1).mean().item())
    distances = torch.pdist(x).square()
    assert uniformity(2 * x) == pytest.approx((-2 * distances).exp().mean().log().item())


def test_the_gradient_cache_gives_the_gradient_of_the_whole_batch():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 3)
    ).double()
    x, noise = torch.randn(10, 4, dtype=torch.float64), torch.Generator().manual_seed(3)

    def encode(chunk):  # two kinds of noise, an output that is used and one that is not
        e = net(chunk)
        return e + torch.randn(e.shape, generator=noise, dtype=e.dtype), e.sum(), chunk.sum()

    def loss(parts):
        e = torch.cat([part[0] for part in parts])
        return simcse_loss(e[:5], e[5:]) + sum(part[1] for part in parts) ** 2

    state, own = torch.get_rng_state(), noise.get_state()
    value = cached_backward(encode, x.split(3), loss, generators=[noise], scale=2.0)
    found, after = [p.grad.clone() for p in net.parameters()], torch.rand(())
    torch.set_rng_state(state)
    noise.set_state(own)
    net.zero_grad()
    whole = loss([encode(chunk) for chunk in x.split(3)])
    (2 * whole).backward()
    torch.testing.assert_close(value, whole.detach())
    torch.testing.assert_close(found, [p.grad for p in net.parameters()])
    assert torch.rand(()) == after  # what follows draws as if nothing had been encoded twice
