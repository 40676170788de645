"""Arrow batches, Parquet files and Ray Data sets: the sample of the whole, whatever the blocks."""

from __future__ import annotations

import pytest
import torch

import argrad as ag

pa = pytest.importorskip("pyarrow")

from argrad.integrations import arrow  # noqa: E402


def table(n: int = 5000) -> pa.Table:
    g = torch.Generator().manual_seed(0)
    weights = torch.rand(n, generator=g, dtype=torch.float64)
    return pa.table(
        {
            "id": (torch.randperm(n, generator=g) + 2**40).numpy(),
            "weight": weights.numpy(),
            "logit": weights.log().float().numpy(),
            "clicks": torch.randint(0, 9, (n,), generator=g).numpy(),
        }
    )


def indices(stream: ag.GumbelTopKStream) -> list[int]:
    return stream.result().indices.tolist()


@pytest.mark.parametrize("column", ["weight", "logit", "clicks"])
@pytest.mark.parametrize("size", [7, 1000, 10_000])
def test_batches_of_any_size(column: str, size: int) -> None:
    data = table()
    name = {"logit": "logit"}.get(column, "weight")
    values = torch.from_numpy(data[column].to_numpy().copy())
    values = values.double() if column == "clicks" else values
    whole = ag.GumbelTopKStream(20, 1)
    whole.update(torch.from_numpy(data["id"].to_numpy().copy()), **{f"{name}s": values})
    parts = arrow.sample_batches(data.to_batches(max_chunksize=size), 20, 1, id="id", **{name: column})
    assert indices(parts) == indices(whole)
    assert parts.count == 5000


def test_rows_are_numbered_without_an_id() -> None:
    data = table(1000)
    stream = arrow.sample_batches(data.to_batches(max_chunksize=33), 5, 0, weight="weight")
    whole = ag.GumbelTopKStream(5, 0).update(0, weights=data["weight"].to_numpy())
    assert indices(stream) == indices(whole)


def test_tables_of_several_chunks_and_of_none() -> None:
    data = table(1000)
    chunked = pa.concat_tables([data.slice(0, 10), data.slice(10)])
    assert chunked["id"].num_chunks == 2
    assert indices(arrow.sample_batches([chunked], 5, 0, id="id", weight="weight")) == indices(
        arrow.sample_batches([data], 5, 0, id="id", weight="weight")
    )
    empty = pa.chunked_array([], pa.float64())
    assert arrow.update(ag.GumbelTopKStream(2, 0), pa.table({"w": empty}), weight="w").count == 0


def test_parquet(tmp_path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    data = table()
    parquet.write_table(data, tmp_path / "rows.parquet", row_group_size=600)
    file = parquet.ParquetFile(tmp_path / "rows.parquet")
    stream = arrow.sample_batches(file.iter_batches(450), 9, 3, id="id", weight="weight")
    assert indices(stream) == indices(arrow.sample_batches([data], 9, 3, id="id", weight="weight"))


def test_states_travel_as_tables() -> None:
    stream = arrow.sample_batches([table()], 9, 3, id="id", weight="weight")
    (state,) = arrow.state_to_table(stream).to_pylist()
    again = ag.GumbelTopKStream.from_state_dict(state)
    assert indices(again) == indices(stream)
    assert again.count == stream.count


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({}, "either a `weight` or a `logit` column; got neither"),
        ({"weight": "weight", "logit": "logit"}, "got both"),
        ({"weight": "price"}, "no column 'price'; the batch has id, weight, logit, clicks"),
        ({"weight": "weight", "id": "weight"}, "must be an integer tensor or array"),
        ({"logit": "holes"}, "1 of 2 values of column 'holes' are null"),
        ({"weight": "names"}, "must be floating point"),
    ],
)
def test_sentences(columns: dict[str, str], sentence: str) -> None:
    data = table(2)
    if "holes" in columns.values():
        data = data.append_column("holes", pa.array([1.0, None]))
    if "names" in columns.values():
        data = data.append_column("names", pa.array(["a", "b"]))
    with pytest.raises((ag.InputError, ag.InputTypeError), match=sentence):
        arrow.update(ag.GumbelTopKStream(2, 0), data, **columns)


class Blocks:
    """What `sample_dataset` needs of a Ray data set."""

    def __init__(self, blocks: list[pa.Table]) -> None:
        self.blocks = blocks

    def map_batches(self, function, *, batch_format: str, batch_size: int | None) -> Blocks:
        assert (batch_format, batch_size) == ("pyarrow", None)
        return Blocks([function(block) for block in self.blocks])

    def iter_rows(self):
        return iter(pa.concat_tables(self.blocks).to_pylist())


def test_a_data_set_in_blocks() -> None:
    data = table()
    blocks = Blocks([data.slice(0, 100), data.slice(100, 3000), data.slice(3100)])
    stream = arrow.sample_dataset(blocks, 20, 1, id="id", weight="weight")
    assert indices(stream) == indices(arrow.sample_batches([data], 20, 1, id="id", weight="weight"))
    assert stream.count == 5000


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Ray itself
def test_ray_data() -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("pandas")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        import ray.data

        data = table(20_000)
        dataset = ray.data.from_arrow([data.slice(a, 4000) for a in range(0, 20_000, 4000)])
        stream = arrow.sample_dataset(dataset, 50, 1, id="id", weight="weight")
    finally:
        ray.shutdown()
    assert indices(stream) == indices(arrow.sample_batches([data], 50, 1, id="id", weight="weight"))
    assert stream.count == 20_000
