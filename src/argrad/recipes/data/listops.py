"""ListOps (Nangia and Bowman 2018): nested lists of digits under MIN, MAX and MED, with their value and their tree.

`[MAX 2 9 [MIN 4 7 ] 0 ]` is 9. Our own generator: every draw comes from one seeded source, and an expression has
exactly the depth asked for (one argument of each list on the way down is a list, the others are lists now and then).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

OPERATORS = ("[MIN", "[MAX", "[MED")
TOKENS = ("", "]", *OPERATORS, *map(str, range(10)))  # the first is none
_NUMBER = {token: i for i, token in enumerate(TOKENS)}
_LIST = 0.2  # how often an argument that need not be a list is one


@dataclass(frozen=True)
class ListOps:
    """Expressions, padded to the longest.

    Attributes:
        tokens: numbers into `TOKENS`, int64, `(count, length)`; 0 where there is none.
        value: 0 to 9, int64, `(count,)`.
        trees: arcs from an operator to all that its brackets enclose, its `]` too, `(count, length, length)`,
            [head, child]; token 0 is the root.
        depth: of each expression, `(count,)`.
    """

    tokens: Tensor
    value: Tensor
    trees: Tensor
    depth: Tensor


def listops(count: int, depths: tuple[int, ...], longest: int, seed: int) -> ListOps:
    """Different expressions of at most `longest` tokens, equally many of each depth, mixed."""
    g = Random(seed)
    made: dict[tuple[str, ...], tuple[int, list[int], int]] = {}
    while len(made) < count:
        depth = depths[len(made) % len(depths)]
        words, heads, value = expression(depth, g)
        if len(words) <= longest:
            made[tuple(words)] = (value, heads, depth)
    chosen = g.sample(list(made), count)
    tokens = torch.zeros(count, longest, dtype=torch.int64)
    heads = torch.zeros(count, longest, dtype=torch.int64)
    for i, words in enumerate(chosen):
        tokens[i, : len(words)] = torch.tensor([_NUMBER[word] for word in words])
        heads[i, : len(words)] = torch.tensor(made[words][1])
    value, depth = (torch.tensor([made[words][j] for words in chosen]) for j in (0, 2))
    trees = torch.zeros(count, longest, longest).scatter_(1, heads[:, None], 1.0)
    trees *= (tokens > 0)[:, None]
    trees[:, :, 0] = 0.0  # the root has no head
    return ListOps(tokens, value, trees, depth)


def expression(depth: int, g: Random) -> tuple[list[str], list[int], int]:
    """Tokens, the number of the operator that each belongs to (0 for the first), and the value."""
    words: list[str] = []
    heads: list[int] = []

    def add(word: str, head: int) -> int:
        words.append(word)
        heads.append(head)
        return len(words) - 1

    def enclosed(left: int, head: int) -> int:
        own = add(g.choice(OPERATORS), head)
        count = g.randint(2, 5)
        deep = g.randrange(count)  # the argument that goes all the way down
        values = [_argument(left, own, i == deep) for i in range(count)]
        add("]", own)
        return apply(words[own], values)

    def _argument(left: int, head: int, deep: bool) -> int:
        if left > 1 and (deep or g.random() < _LIST):
            return enclosed(left - 1 if deep else g.randint(1, left - 1), head)
        digit = g.randrange(10)
        add(str(digit), head)
        return digit

    value = enclosed(depth, 0)
    return words, heads, value


def apply(operator: str, values: list[int]) -> int:
    """MIN, MAX, or MED rounded down.

    >>> apply("[MIN", [4, 7]), apply("[MAX", [2, 9, 4, 0]), apply("[MED", [1, 2, 5, 9])
    (4, 9, 3)
    """
    if operator == "[MIN":
        return min(values)
    if operator == "[MAX":
        return max(values)
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
