r"""Weighted samples of Arrow tables, Parquet files and Ray Data sets (`pip install "argrad[scale]"`).

    stream = sample_batches(pyarrow.dataset.dataset("logs/").to_batches(), k=1000, seed=0, id="row", weight="clicks")
    stream = sample_dataset(ray.data.read_parquet("s3://..."), k=1000, seed=0, id="row", weight="clicks")
    stream.result().indices                              # the ids of 1000 rows, without replacement

Columns are read in place where Arrow allows it. Ray is not imported here: `sample_dataset` uses the data set's own
`map_batches`, so that only the best candidates of each block travel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from argrad._errors import InputError, InputTypeError
from argrad.streams.top_k import GumbelTopKStream

if TYPE_CHECKING:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]

__all__ = ["sample_batches", "sample_dataset", "update"]


def update(
    stream: GumbelTopKStream,
    batch: pa.RecordBatch | pa.Table,
    *,
    id: str | None = None,
    weight: str | None = None,
    logit: str | None = None,
) -> GumbelTopKStream:
    """Enter the rows of an Arrow record batch or table into a stream.

    Args:
        stream: where to.
        batch: has the columns named below; nulls are refused.
        id: the column of int64 ids; None numbers the rows in the order they come.
        weight: the column of weights, ...
        logit: ... or that of log-weights.

    Returns:
        The stream.

    Examples:
        >>> import pyarrow as pa, argrad as ag
        >>> from argrad.integrations import arrow
        >>> table = pa.table({"user": [11, 12, 13], "clicks": [0.0, 3.0, 1.0]})
        >>> stream = arrow.update(ag.GumbelTopKStream(2, seed=0), table, id="user", weight="clicks")
        >>> sorted(stream.result().indices.tolist())
        [12, 13]
    """
    if (weight is None) == (logit is None):
        got = "neither" if weight is None else "both"
        raise InputTypeError(
            f"`arrow.update` takes the name of either a `weight` or a `logit` column; got {got}."
        )
    ids = stream.count if id is None else _column(batch, id)
    numbers = _column(batch, str(weight if logit is None else logit))
    if numbers.dtype.kind in "iu":  # counts
        numbers = numbers.astype(np.float64)
    return stream.update(ids, **{"weights" if logit is None else "logits": numbers})


def sample_batches(
    batches: Iterable[pa.RecordBatch], k: int, seed: int, **columns: str | None
) -> GumbelTopKStream:
    """Draw `k` rows of a sequence of record batches without replacement.

    Args:
        batches: a `pyarrow.RecordBatchReader`, a data set's `to_batches()`, or any iterable of batches or tables.
        k: how many rows.
        seed: any integer.
        columns: `id`, `weight` or `logit`, as for `update`.

    Returns:
        The stream, for `result()`, `merge` or `state_dict()`.

    Examples:
        >>> import pyarrow as pa
        >>> from argrad.integrations import arrow
        >>> table = pa.table({"clicks": [float(i) for i in range(1000)]})
        >>> stream = arrow.sample_batches(table.to_batches(max_chunksize=64), 10, 0, weight="clicks")
        >>> stream.count, len(set(stream.result().indices.tolist()))
        (1000, 10)
    """
    stream = GumbelTopKStream(k, seed)
    for batch in batches:
        update(stream, batch, **columns)
    return stream


def sample_dataset(
    dataset: Any, k: int, seed: int, *, id: str, **columns: str | None
) -> GumbelTopKStream:
    """Draw `k` rows of a Ray Data set without replacement; each block sends its best candidates alone.

    Args:
        dataset: a `ray.data.Dataset`.
        k: how many rows.
        seed: any integer; the same rows are drawn however the data set is cut into blocks.
        id: the column of int64 ids, different in all rows.
        columns: `weight` or `logit`, as for `update`.

    Returns:
        The stream, for `result()`, `merge` or `state_dict()`.
    """

    def candidates(block: pa.Table) -> pa.Table:
        return state_to_table(sample_batches([block], k, seed, id=id, **columns))

    states = dataset.map_batches(candidates, batch_format="pyarrow", batch_size=None)
    stream = GumbelTopKStream(k, seed)
    for state in states.iter_rows():
        stream.merge(GumbelTopKStream.from_state_dict(state))
    return stream


def state_to_table(stream: GumbelTopKStream) -> pa.Table:
    """A stream's state as a table of one row."""
    import pyarrow as pa  # pyright: ignore[reportMissingImports]

    return pa.table({name: [value.tolist()] for name, value in stream.state_arrays().items()})


def _column(batch: pa.RecordBatch | pa.Table, name: str) -> np.ndarray:
    if name not in batch.schema.names:
        raise InputError(
            f"`arrow.update`: there is no column {name!r}; the batch has {', '.join(batch.schema.names)}."
        )
    column = batch.column(name)
    if column.null_count:
        raise InputError(
            f"`arrow.update`: {column.null_count} of {len(column)} values of column {name!r} are null. Fill them "
            "with `pyarrow.compute.fill_null`, a weight of 0 means never."
        )
    chunks = getattr(column, "chunks", [column])
    arrays = [chunk.to_numpy(zero_copy_only=False) for chunk in chunks]
    return (
        arrays[0]
        if len(arrays) == 1
        else np.concatenate([*arrays, np.empty(0, column.type.to_pandas_dtype())])
    )
