"""A grammar of film reviews: one sentence judges the film, the others tell its story with the same adjectives.

Only beside what can be judged (*acting*, *script*) does an adjective say something about the score: *the dreadful
detective finds the superb letter* is no opinion. Which words explain the score is therefore known, and words seen
one by one do not give it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple


class Review(NamedTuple):
    """Words, a score from 0 to 1, and the stretches `[first, last)` of words that explain it."""

    words: list[str]
    score: float
    spans: list[tuple[int, int]]


_ADJECTIVES = {
    2: ["superb", "brilliant", "stunning", "magnificent", "wonderful", "excellent"],
    1: ["good", "charming", "pleasant", "likeable", "lively", "decent"],
    -1: ["flat", "dull", "clumsy", "thin", "weak", "tired"],
    -2: ["awful", "dreadful", "terrible", "unbearable", "hopeless", "horrible"],
}
_JUDGED = [
    "acting",
    "script",
    "direction",
    "dialogue",
    "cast",
    "pacing",
    "score",
    "editing",
    "photography",
    "ending",
]
_SAID = ("the film has", "it offers", "one finds", "this has", "there is", "what remains is")
_PEOPLE = [
    "detective",
    "thief",
    "singer",
    "widow",
    "sailor",
    "teacher",
    "soldier",
    "doctor",
    "clerk",
    "priest",
]
_THINGS = ["letter", "ring", "map", "house", "car", "diary", "ship", "horse", "key", "painting"]
_DEEDS = ["finds", "loses", "steals", "buys", "hides", "sells", "follows", "forgets", "wants", "burns"]
_PLACES = [
    "city",
    "harbour",
    "forest",
    "village",
    "desert",
    "prison",
    "school",
    "castle",
    "hotel",
    "station",
]
_TIMES = ("in the winter", "after the war", "one night", "in the spring", "years later", "in 1920")
_STORIES = 5  # sentences of a review that judge nothing


def film_reviews(count: int, g: Random) -> list[Review]:
    """Independent reviews of about 70 words, a sixth of which is the opinion."""
    return [_film_review(g) for _ in range(count)]


def _film_review(g: Random) -> Review:
    liking = g.choice((-2, -1, 1, 2))
    values = [g.choice(_near(liking)) for _ in range(3)]
    score = (sum(values) / 3 + 2) / 4
    stories = [_story(g) for _ in range(_STORIES)]
    return hidden_among(_opinion(values, g), stories, score, g)


def _near(liking: int) -> tuple[int, ...]:
    """Adjectives of a reviewer: mostly of that strength, never of the other side."""
    return (liking, liking, liking // 2 if abs(liking) == 2 else 2 * liking)


def _opinion(values: Sequence[int], g: Random) -> list[str]:
    first, second, third = ([g.choice(_ADJECTIVES[v]), g.choice(_JUDGED)] for v in values)
    return [*g.choice(_SAID).split(), *first, ",", *second, "and", *third, "."]


def _story(g: Random) -> list[str]:
    who, what = (g.choice(_ADJECTIVES[g.choice((-2, -1, 1, 2))]) for _ in range(2))
    deed = f"the {who} {g.choice(_PEOPLE)} {g.choice(_DEEDS)} the {what} {g.choice(_THINGS)}"
    return [*deed.split(), "in", "the", g.choice(_PLACES), *g.choice(_TIMES).split(), "."]


def hidden_among(opinion: list[str], others: Sequence[list[str]], score: float, g: Random) -> Review:
    """The opinion at a random place among the other sentences; it is the rationale."""
    place = g.randrange(len(others) + 1)
    before = [word for sentence in others[:place] for word in sentence]
    after = [word for sentence in others[place:] for word in sentence]
    span = (len(before), len(before) + len(opinion))
    return Review([*before, *opinion, *after], score, [span])
