r"""Which tokens a gate keeps, to be looked at: in a terminal, in a notebook, in a page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from argrad.integrations.sentences.attention import evaluating

if TYPE_CHECKING:
    from argrad.integrations.sentences.encoder import GatedEncoder

_DROPPED, _KEPT = (178, 24, 43), (33, 102, 172)  # red and blue: told apart by colour-blind eyes too


@dataclass(frozen=True)
class Explanation:
    """One sentence.

    Attributes:
        text: as it was given.
        tokens: as the tokenizer writes them.
        keep_prob: the probability of each to be kept.
        kept: whether it is, at inference.
    """

    text: str
    tokens: tuple[str, ...]
    keep_prob: tuple[float, ...]
    kept: tuple[bool, ...]

    @property
    def kept_fraction(self) -> float:
        """Of all tokens."""
        return sum(self.kept) / len(self.kept)

    def __str__(self) -> str:
        """Plain text: dropped tokens are struck out, `(-the-)`."""
        pairs = zip(self.tokens, self.kept, strict=True)
        return " ".join(token if kept else f"(-{token}-)" for token, kept in pairs)

    def ansi(self) -> str:
        """For a terminal: the more a token is kept, the bluer; dropped ones are red and struck out."""
        parts = []
        for token, prob, kept in zip(self.tokens, self.keep_prob, self.kept, strict=True):
            red, green, blue = _colour(prob)
            parts.append(f"\x1b[{'' if kept else '9;'}38;2;{red};{green};{blue}m{token}\x1b[0m")
        return " ".join(parts)

    def html(self) -> str:
        """A paragraph; the probability of a token is its title."""
        parts = []
        for token, prob, kept in zip(self.tokens, self.keep_prob, self.kept, strict=True):
            tag = "span" if kept else "del"
            strength = abs(2 * prob - 1) * 0.6
            red, green, blue = _KEPT if prob >= 0.5 else _DROPPED
            style = f"background:rgba({red},{green},{blue},{strength:.2f});padding:0 .2em;border-radius:.2em"
            parts.append(f'<{tag} title="{prob:.3f}" style="{style}">{html.escape(token)}</{tag}>')
        return f'<p class="argrad-explain">{" ".join(parts)}</p>'

    _repr_html_ = html


class Explanations(list[Explanation]):
    """Several sentences; `str`, `.ansi()` and `.html()` show them all."""

    def __str__(self) -> str:
        return "\n".join(str(one) for one in self)

    def ansi(self) -> str:
        """For a terminal, a line a sentence."""
        return "\n".join(one.ansi() for one in self)

    def html(self) -> str:
        """For a page, a paragraph a sentence."""
        return "\n".join(one.html() for one in self)

    _repr_html_ = html


@torch.no_grad()
def explain(encoder: GatedEncoder, texts: Sequence[str], *, truncate: bool = False) -> Explanations:
    """Each token of each sentence with its probability of being kept (1 without a gate).

    Examples:
        >>> from argrad.integrations.sentences import GatedEncoder, explain
        >>> encoder = GatedEncoder.tiny(["a man plays"], gate={"keep_bias": 9.0})
        >>> print(explain(encoder, ["a man plays"]))
        [CLS] a man plays [SEP]
        >>> explain(encoder, ["a man plays"])[0].html()[:26]
        '<p class="argrad-explain">'
    """
    found = Explanations()
    with evaluating(encoder):
        for text in texts:
            batch = encoder.tokenize([text], truncate=truncate)
            ids, mask = batch["input_ids"], batch["attention_mask"]
            prob = kept = mask.float()
            if encoder.gate is not None:
                scores = encoder.gate.score(ids, mask)
                prob, kept = encoder.gate.keep_prob(scores), encoder.gate.hard(scores)
            tokens = encoder.tokenizer.convert_ids_to_tokens(ids[0].tolist())
            shown = tuple(token.replace("Ġ", "").replace("▁", "") or token for token in tokens)
            found.append(
                Explanation(text, shown, tuple(prob[0].tolist()), tuple((kept[0] > 0).tolist()))
            )
    return found


def _colour(prob: float) -> tuple[int, int, int]:
    """From red at 0 over grey at one half to blue at 1."""
    end, grey, share = (_KEPT if prob >= 0.5 else _DROPPED), 128, abs(2 * prob - 1)
    red, green, blue = (round(share * c + (1 - share) * grey) for c in end)
    return red, green, blue
