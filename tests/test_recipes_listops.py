"""The recipe listops: expressions and their trees, every law over graphs, the smoke run."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from random import Random

import pytest
import torch

import argrad as ag
from argrad.cli import main
from argrad.recipes import listops
from argrad.recipes.data.listops import OPERATORS, TOKENS, ListOps, expression
from argrad.recipes.data.listops import listops as generate
from argrad.recipes.listops_model import GUMBEL, LSTM, TRUE, WAYS, Parser

G = torch.Generator
LATENT = [name for name, way in WAYS.items() if way.law is not None]


# ---- expressions ---------------------------------------------------------------------------------


def evaluated(words: list[str]) -> tuple[int, int]:
    """Value and depth by a stack: another way than the generator's."""
    stack: list[list] = [[]]
    deepest = 0
    for word in words:
        if word in OPERATORS:
            stack.append([word])
            deepest = max(deepest, len(stack) - 1)
        elif word == "]":
            operator, *values = stack.pop()
            known = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(statistics.median(v))}
            stack[-1].append(known[operator](values))
        else:
            stack[-1].append(int(word))
    ((value,),) = stack
    return value, deepest


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_values_depths_and_heads(depth: int) -> None:
    g = Random(depth)
    for _ in range(100):
        words, heads, value = expression(depth, g)
        assert evaluated(words) == (value, depth)
        for i, head in enumerate(heads[1:], 1):
            assert words[head] in OPERATORS and head < i
            inside = words[head + 1 : i]  # its list is still open where the token is
            assert sum(w in OPERATORS for w in inside) == inside.count("]")


def test_the_expressions_are_seeded_different_and_mixed() -> None:
    one, other = (generate(200, (1, 2, 3), 20, seed=3) for _ in range(2))
    assert torch.equal(one.tokens, other.tokens) and torch.equal(one.trees, other.trees)
    assert len(one.tokens.unique(dim=0)) == 200
    assert torch.bincount(one.depth).tolist() == [0, 67, 67, 66]
    assert len(set(one.depth[:20].tolist())) == 3  # not one depth after the other
    length = (one.tokens > 0).sum(-1)
    assert torch.equal(one.trees.sum((1, 2)), length - 1.0)
    for tokens, tree, n in zip(one.tokens[:20], one.trees[:20], length[:20], strict=True):
        assert bool(ag.Arborescence(root=0).contains(tree[:n, :n]))
        assert TOKENS[int(tokens[0])] in OPERATORS


def test_training_and_test_expressions_are_different() -> None:
    seen, test = listops.expressions(listops.RECIPE.smoke)
    both = torch.cat([seen.tokens, test.tokens])
    assert len(both.unique(dim=0)) == len(both) == 600


# ---- laws over graphs ----------------------------------------------------------------------------


def some() -> ListOps:
    return generate(6, (1, 2), 16, seed=0)


@pytest.mark.parametrize("column", LATENT)
def test_every_law_draws_graphs_of_tokens(column: str) -> None:
    torch.manual_seed(0)
    made, way = some(), WAYS[column]
    model = Parser(way, 8, 2)
    valid, length = made.tokens > 0, (made.tokens > 0).sum(-1)
    q = model.law(made.tokens)
    z = way.graph(q.sample(generator=G().manual_seed(1)), valid)
    assert z.shape == (6, 16, 16) and bool(((z == 0) | (z == 1)).all())
    assert bool((z[:, ~valid[0]][0] == 0).all()) and bool((z.diagonal(dim1=1, dim2=2) == 0).all())
    if way.undirected:
        assert torch.equal(z, z.mT)
    if "Arborescence" in column:
        assert torch.equal(z.sum((1, 2)), length - 1.0)
        for graph, n in zip(z, length, strict=True):
            assert bool(ag.Arborescence(root=0).contains(graph[:n, :n]))


@pytest.mark.parametrize("column", [*LATENT, TRUE, LSTM])
def test_every_column_trains_all_of_its_network(column: str) -> None:
    torch.manual_seed(0)
    made, config = some(), listops.RECIPE.smoke
    batch = (made.tokens, made.value, made.trees)
    model = listops.model_of(config, column)
    listops.loss_of(config, column, model, batch, G().manual_seed(0)).backward()
    missing = {name for name, p in model.named_parameters() if p.grad is None}
    unused = (
        {f"archer.{name}" for name, _ in model.archer.named_parameters()} if column == TRUE else set()
    )
    assert missing == unused
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    made = some()
    model = Parser(WAYS[TRUE], 8, 3)
    n = int((made.tokens[0] > 0).sum())
    longer = model.cost(made.tokens[:1], made.value[:1], made.trees[:1])
    shorter = model.cost(made.tokens[:1, :n], made.value[:1], made.trees[:1, :n, :n])
    torch.testing.assert_close(longer, shorter)


def test_arcs_are_compared_with_their_direction_or_without() -> None:
    trees = some().trees
    assert listops.arcs(trees, trees, undirected=False) == {"precision": 100, "recall": 100}
    assert listops.arcs(trees.mT, trees, undirected=False) == {"precision": 0, "recall": 0}
    both = trees + trees.mT
    assert listops.arcs(both, trees, undirected=True) == {"precision": 100, "recall": 100}
    assert listops.arcs(both, trees, undirected=False) == {"precision": 50, "recall": 100}


# ---- the recipe ----------------------------------------------------------------------------------


def test_the_smoke_run_draws_trees(tmp_path: Path) -> None:
    assert main(["reproduce", "listops", "--smoke", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "listops" / "report.html").read_text()
    assert page.count('class="arcs"') == 3 * (len(WAYS) - 1) and 'class="right"' in page
    cells = json.loads((tmp_path / "listops" / "results.json").read_text())["cells"]
    found = {c["column"]: c["metrics"] for c in cells}
    assert set(found) == set(WAYS) and set(found[LSTM]) == {"accuracy"}
    assert found[TRUE]["precision"] == [100.0]
    assert found[GUMBEL]["precision"] == pytest.approx(found[GUMBEL]["recall"])


def test_an_unknown_column_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce", "listops", "--columns", "Forest", "--out", str(tmp_path)]) == 2
    assert "there is no column 'Forest'" in capsys.readouterr().err
