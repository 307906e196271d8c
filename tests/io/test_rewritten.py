"""Files that other software wrote again: re-batched, sliced, compressed, with other types, or with an index."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from strategies import assert_same_log

import ibcb


def a_log():
    rng = np.random.default_rng(0)
    return ibcb.BehaviorLog.from_episodes(
        [(rng.normal(size=(30, 4, 2)), rng.integers(4, size=30)) for _ in range(3)],
        feature_names=["price", "stars"],
        step_ids=[f"s{step}" for step in range(90)],
        propensities=np.full(360, 0.25),
    )


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """What we wrote, as tables: a row per candidate, of Arrow and of Parquet, and a row per step."""
    folder, log = tmp_path_factory.mktemp("forms"), a_log()
    ibcb.write_log(log, folder / "log.arrow")
    ibcb.write_log(log, folder / "long.parquet", long=True)
    ibcb.write_log(log, folder / "log.parquet")
    with pa.memory_map(str(folder / "log.arrow")) as file:
        arrow = pa.ipc.open_file(file).read_all()
    return {
        "arrow": arrow,
        "long": pq.read_table(folder / "long.parquet"),
        "steps": pq.read_table(folder / "log.parquet"),
    }


def ipc(table, path, rows, new=pa.ipc.new_file, **options):
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)


def indexed(table):
    """With an index that pandas keeps as a column."""
    frame = table.to_pandas()
    return frame.set_index(pd.Index(np.arange(len(frame))[::-1]))


def by_duckdb(rows, path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    duckdb.sql(f"copy (select * from rows) to '{path}' (format parquet)")


def other_types(table, path):
    columns = dict(zip(table.column_names, table.columns, strict=True))
    columns["episode"] = pc.run_end_encode(columns["episode"])
    columns["step_id"] = columns["step_id"].cast(pa.string_view())
    columns["step"] = columns["step"].cast(pa.int16())
    return pa.table(columns)


WAYS = {
    "other row groups": ("log.parquet", lambda table, path: pq.write_table(table, path, row_group_size=37)),
    "other batches": ("log.arrow", lambda table, path: ipc(table, path, 17)),
    "a stream": ("log.arrow", lambda table, path: ipc(table, path, 50, pa.ipc.new_stream)),
    "compressed": ("log.arrow", lambda table, path: ipc(table, path, 50, compression="zstd")),
    "slices": (
        "log.arrow",
        lambda table, path: ipc(pa.concat_tables([table.slice(0, 13), table.slice(13)]), path, None),
    ),
    "feather": ("log.feather", feather.write_feather),
    "other types": (None, other_types),
    "pandas to parquet": ("log.parquet", lambda table, path: indexed(table).to_parquet(path)),
    "pandas to feather": ("log.feather", lambda table, path: feather.write_feather(indexed(table), path)),
    "pandas": (None, lambda table, path: indexed(table)),
    "polars to parquet": ("log.parquet", lambda table, path: pl.from_arrow(table).write_parquet(path)),
    "polars to arrow": ("log.arrow", lambda table, path: pl.from_arrow(table).write_ipc(path)),
    "polars": (None, lambda table, path: pl.from_arrow(table)),
    "duckdb": ("log.parquet", by_duckdb),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["arrow", "long", "steps"])
def test_what_other_software_wrote_again_is_the_same_log(tmp_path, forms, form, way):
    name, write = WAYS[way]
    made = write(forms[form], tmp_path / name if name else None)
    read = ibcb.read_log(made if name is None else tmp_path / name)
    if form == "steps" and read.feature_names is None:
        # The metadata is gone, and with it the names.
        read = ibcb.BehaviorLog(
            read.contexts,
            read.step_offsets,
            read.chosen,
            read.episode_offsets,
            feature_names=a_log().feature_names,
            step_ids=read.step_ids,
            propensities=read.propensities,
        )
    assert_same_log(read, a_log())


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_a_column_that_was_taken_out_is_said_and_the_rest_read(tmp_path, forms, suffix):
    path = tmp_path / f"log{suffix}"
    table = forms["long"].drop_columns(["stars"])
    ipc(table, path, None) if suffix == ".arrow" else pq.write_table(table, path)
    log = ibcb.read_log(path)
    assert log.feature_names == ("price",)
    np.testing.assert_array_equal(log.contexts, a_log().contexts[:, :1])
    assert any("no column 'stars' any more" in str(note) for note in log.notes)
