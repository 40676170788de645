r"""Weighted sampling without replacement from a stream, in memory for the sample alone.

The noise of an item is a hash of (seed, id), so that the race $\theta_i + \varepsilon_i$ has one outcome whatever
the order, the batches or the machines the items came in. The best $k + 1$ of a union are among the best
$k + 1$ of its parts: samples of parts can be merged, stored and sent.

This module does without torch until a tensor comes in or is asked for, so that a process that only streams arrays
stays below 200 MB; sentences for bad input come from `_checks`, which loads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from argrad._counter import key_words
from argrad._errors import InputError, InputTypeError
from argrad.streams.pool import Pool

if TYPE_CHECKING:
    from torch import Tensor

    from argrad.sequences.linear import NormalizedTopK

PIECE = 1 << 22  # items handled at once, so that copies of them stay small
_FIELDS = ("k", "seed", "count", "log_sum", "ids", "logits")


class GumbelTopKStream:
    r"""Draw `k` different items of a stream, with probabilities proportional to their weights.

    $$ (i_1, \dots, i_k) = \text{the places of the } k \text{ largest } \theta_i + \varepsilon_i, \quad
       \theta_i = \log w_i, \quad \varepsilon_i = \mathrm{Gumbel}(\mathrm{hash}(\text{seed}, i)) $$
    The law is that of drawing $k$ times without replacement from $w / \sum w$, exact for any number of items
    (62 random bits an item, keys in float64). Items $0, \dots, n-1$ give the sample of
    `gumbel_topk(logits, k, generator=CounterRNG(seed))`. O(k) memory; some nanoseconds an item.

    The sample depends on the *set* of (id, weight) alone: an id that comes twice counts once (by its
    largest weight), so that overlapping shards and repeated deliveries do no harm. `count` and the
    log-partition do add up whatever came.

    Args:
        k: how many to draw.
        seed: any integer; streams that are to be merged have the same.

    Examples:
        >>> import torch, argrad as ag
        >>> logits = torch.randn(100_000)
        >>> one = ag.GumbelTopKStream(5, seed=0).update(0, logits)
        >>> left = ag.GumbelTopKStream(5, seed=0).update(0, logits[:30_000])
        >>> right = ag.GumbelTopKStream(5, seed=0).update(30_000, logits[30_000:])
        >>> torch.equal(one.result().indices, right.merge(left).result().indices)
        True

    References: [efraimidis2006], [cohen2007], [vieira2014].
    """

    def __init__(self, k: int, seed: int) -> None:
        self.k, words = _count(k), key_words(_seed(seed))
        self.seed = words[4]  # modulo 2^64, which is all that counts
        self.count = 0  # items that came, those of weight 0 and repeated ones included
        self._key = np.array(words).view(np.uint64)
        self._pool = Pool(self.k + 1)

    def __repr__(self) -> str:
        return f"<GumbelTopKStream({self.k}, seed={self.seed}) of {self.count} items>"

    def update(
        self, ids: Tensor | np.ndarray | int, logits: Any = None, *, weights: Any = None
    ) -> GumbelTopKStream:
        r"""Enter a batch of items.

        Args:
            ids: integers, one an item; or the id of the first item, if they are consecutive.
            logits: $\theta$, log-weights up to a constant that is the same for the whole stream; `-inf` is
                never drawn. A floating tensor or array of any shape.
            weights: $w = e^\theta \ge 0$, instead of `logits`.

        Returns:
            Itself. When a batch is refused, the stream is as it was before.
        """
        name = _one_of(logits, weights)
        values = _floats(name, logits if weights is None else weights)
        numbers, first = _integers(ids, len(values))
        pool = self._pool.copy()
        for start in range(0, len(values), PIECE):
            part = _writeable(values[start : start + PIECE])
            inner = _writeable(numbers[start : start + PIECE].astype(np.int64, copy=False))
            x = _log(part) if name == "weights" else part
            if pool.race(x, inner, first + start, self._key):
                raise _bad_weights(part) if name == "weights" else _bad_logits(part)
        self._pool, self.count = pool, self.count + len(values)
        return self

    def merge(self, other: GumbelTopKStream) -> GumbelTopKStream:
        """Enter what another stream (with the same k and seed) has seen; returns itself."""
        if not isinstance(other, GumbelTopKStream):
            raise InputTypeError(
                f"`GumbelTopKStream.merge` takes another stream; got {type(other).__name__}. "
                "Make one from a stored state with `GumbelTopKStream.from_state_dict(...)`."
            )
        for name in ("k", "seed"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise InputError(
                    f"`GumbelTopKStream.merge` needs streams of the same {name}; got {ours} and {theirs}. "
                    "Only then are the parts one race."
                )
        pool = self._pool.copy()
        pool.add(other._pool.best(), other._pool.log_sum)
        self._pool, self.count = pool, self.count + other.count
        return self

    def result(self) -> NormalizedTopK:
        """The sample so far, in float64: shapes `(k,)`, `valid` is False where the stream was too short."""
        import torch

        from argrad.sequences.linear import NormalizedTopK

        best = self._pool.best()
        peak, total = self._pool.log_sum
        log_z = peak + math.log(total) if total > 0 else -math.inf
        shift = log_z if total > 0 else 0.0
        keys, logits = (np.full(self.k + 1, -math.inf) for _ in range(2))
        ids = np.zeros(self.k, np.int64)
        found = len(best.keys)
        keys[:found], logits[:found] = best.keys - shift, best.logits - shift
        ids[: min(found, self.k)] = best.ids[: self.k]
        perturbed, log_prob = torch.from_numpy(keys), torch.from_numpy(logits)[: self.k]
        kappa, drawn = perturbed[self.k].clone(), perturbed[: self.k]
        z = torch.tensor(log_z, dtype=torch.float64)
        return NormalizedTopK(torch.from_numpy(ids), log_prob, drawn, kappa, drawn > -math.inf, z)

    def state_dict(self) -> dict[str, Tensor]:
        """All of it as tensors, for `safetensors`, `torch.save`, `numpy.savez` or (by `.tolist()`) JSON."""
        import torch

        return {name: torch.from_numpy(array) for name, array in self.state_arrays().items()}

    def state_arrays(self) -> dict[str, np.ndarray]:
        """The same as arrays, without loading torch: what a process that only streams sends to others."""
        best, log_sum = self._pool.best(), self._pool.log_sum
        # -inf, the peak of nothing, is not JSON
        log_sum = log_sum if log_sum[1] > 0 else np.zeros(2)
        numbers = (np.array(n) for n in (self.k, self.seed, self.count))
        arrays = (a.copy() for a in (log_sum, best.ids, best.logits))
        return dict(zip(_FIELDS, (*numbers, *arrays), strict=True))

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> GumbelTopKStream:
        """The stream that `state_dict` came from; noise is a hash of the ids, so it need not be stored.

        Args:
            state: what `state_dict` or `state_arrays` returned, as tensors, arrays or plain lists and numbers.
        """
        k, seed, count, log_sum, ids, logits = _read_state(state)
        stream = cls(k, seed).update(ids, logits)
        stream.count = count
        stream._pool.log_sum = log_sum if log_sum[1] > 0 else np.array([-math.inf, 0.0])
        return stream


# ---- arguments -----------------------------------------------------------------------------------

_CALL = "GumbelTopKStream.update"


def _count(k: object) -> int:
    if isinstance(k, int | np.integer) and not isinstance(k, bool) and 0 < k < 1 << 63:
        return int(k)
    from argrad._checks import check_count

    return check_count("GumbelTopKStream", "k", k, 1, None, "It is the number of items to draw.")


def _seed(seed: object) -> int:
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
        return int(seed)
    from argrad.random import CounterRNG

    return CounterRNG(seed).seed  # type: ignore[arg-type]


def _one_of(logits: object, weights: object) -> str:
    if (logits is None) == (weights is None):
        got = "neither" if logits is None else "both"
        raise InputTypeError(
            f"`{_CALL}` takes either `logits` or `weights`; got {got}. A weight is the exponential of a logit."
        )
    return "weights" if logits is None else "logits"


def _floats(name: str, values: object) -> np.ndarray:
    """One dimension of float32 or float64, in place where that is possible."""
    if not isinstance(values, np.ndarray):
        return _tensor_floats(name, values)
    flat = np.asarray(values).reshape(-1)
    if flat.dtype == np.float16:
        return flat.astype(np.float32)
    if flat.dtype not in (np.float32, np.float64):
        raise InputTypeError(
            f"`{_CALL}({name}=...)` must be floating point; got an array of {flat.dtype}. "
            "Call `.astype(float)` if these are meant as real numbers."
        )
    return flat


def _tensor_floats(name: str, values: Any) -> np.ndarray:
    from argrad._checks import check_floating, refuse_meta
    from argrad._numerics import widen

    check_floating(_CALL, name, values)
    refuse_meta(_CALL, name, values)
    return widen(values.detach()).cpu().reshape(-1).numpy()


def _log(weights: np.ndarray) -> np.ndarray:
    """The logarithm: -inf of 0, NaN below (which the kernel finds)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(weights)


def _integers(ids: Any, count: int) -> tuple[np.ndarray, int]:
    """(ids, 0), or (nothing, first id) where they are consecutive."""
    if isinstance(ids, int | np.integer) and not isinstance(ids, bool):
        if not -(1 << 63) <= int(ids) <= (1 << 63) - max(count, 1):
            raise _fail(_CALL, "ids", "must fit into int64", ids, "Number the items from 0.")
        return np.empty(0, np.int64), int(ids)
    array = _on_host(ids)
    if not isinstance(array, np.ndarray) or not np.can_cast(array.dtype, np.int64):
        kind = getattr(array, "dtype", type(ids).__name__)
        raise InputTypeError(
            f"`{_CALL}(ids=...)` must be an integer tensor or array, or the first of consecutive ids; got "
            f"{kind}. Keys that are not numbers can be hashed to int64."
        )
    if array.size != count:
        rule = f"must have one id for each of the {count} items"
        raise _fail(_CALL, "ids", rule, f"{array.size} of them", "Ids and logits are matched in order.")
    return array.reshape(-1), 0


def _on_host(value: Any) -> Any:
    """A tensor as an array, anything else as it is."""
    if not hasattr(value, "detach"):
        return value
    return (value.double() if value.is_floating_point() else value).detach().cpu().numpy()


def _numbers(value: Any) -> np.ndarray:
    array = np.asarray(_on_host(value))
    if array.dtype.kind not in "iuf":
        raise InputTypeError(f"an array of {array.dtype}")
    return array


def _fail(*parts: Any) -> InputError:
    from argrad._checks import fail

    return fail(*parts)


def _writeable(part: np.ndarray) -> np.ndarray:
    """Read-only memory (a file that is mapped) has no compiled kernel, and torch warns of it."""
    return np.ascontiguousarray(part) if part.flags.writeable else np.array(part)


def _bad_logits(values: np.ndarray) -> InputError:
    import torch

    from argrad._checks import bad_values

    return bad_values(_CALL, "logits", torch.from_numpy(values))


def _bad_weights(values: np.ndarray) -> InputError:
    bad = ~((values >= 0) & (values < math.inf))
    first = values[bad][0]
    return _fail(
        _CALL,
        "weights",
        "must be finite and not negative",
        f"{int(bad.sum())} others, the first is {first}",
        "A weight of 0 means never; for log-weights pass `logits=`.",
    )


def _read_state(state: Mapping[str, Any]) -> tuple[int, int, int, np.ndarray, np.ndarray, np.ndarray]:
    call = "GumbelTopKStream.from_state_dict"
    missing = [name for name in _FIELDS if name not in state]
    if missing:
        advice = "Pass what `state_dict()` returned."
        raise _fail(call, "state", "must have all fields", f"no {', '.join(missing)}", advice)
    try:
        k, seed, count = (int(state[name]) for name in _FIELDS[:3])
        fields = zip(_FIELDS[3:], (np.float64, np.int64, np.float64), strict=True)
        log_sum, ids, logits = (_numbers(state[n]).astype(d) for n, d in fields)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise _fail(
            call, "state", "must hold numbers", f"{error}", "It is not a stream's state."
        ) from None
    whole = log_sum.shape == (2,) and bool(np.isfinite(log_sum).all()) and log_sum[1] >= 0
    if (
        not whole
        or not ids.shape == logits.shape == (ids.size,)
        or len(ids) > k + 1
        or count < len(ids)
    ):
        rule, got = "must be whole", f"k={k}, count={count}, {ids.size} ids, {logits.size} logits"
        raise _fail(call, "state", rule, got, "It was cut short or changed; read it again.")
    return k, seed, count, log_sum, ids, logits
