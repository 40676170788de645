"""Keys of counter-based noise as Python integers; `_hash` and `_kernels/bits.py` go on from them.

Without torch, so that a process that only streams (`argrad.streams`) need not load it.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
ROW_2 = 0xD1342543DE82EF95  # a second odd multiplier (Steele & Vigna 2021), for the second row key
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def signed(x: int) -> int:
    """The int64 with the bits of an unsigned word."""
    return x - (1 << 64) if x >= 1 << 63 else x


def splitmix(x: int) -> int:
    """A word with its bits mixed, modulo 2^64."""
    x &= MASK
    x = ((x ^ (x >> 30)) * MIX_1) & MASK
    x = ((x ^ (x >> 27)) * MIX_2) & MASK
    return x ^ (x >> 31)


def key_words(seed: int, row: int = 0, column: int = 0) -> list[int]:
    """Two key words, first row, first column and seed, as int64: what every noise function takes."""
    words = splitmix(seed + GOLDEN), splitmix(seed + 2 * GOLDEN), row, column, seed
    return [signed(x & MASK) for x in words]
