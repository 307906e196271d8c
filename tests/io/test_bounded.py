"""Files that are small and unpack to much, that never end, or that are damaged: refused, in bounded memory and time.

Each by its cause. Limits are set low, so that small files reach them.
"""

import gzip
import io
import os
import re
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import ibcb_command
from conftest import slow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import WAYS, mutated
from strategies import assert_same_log

import ibcb
from ibcb import LogFormatError
from ibcb.io import open_log, parquet_footer
from ibcb.log.memory import machine_memory, memory_budget

FINE = {"contexts": np.ones((4, 2, 2)), "chosen": np.array([0, 1, 1, 0]), "episode": np.array([0, 0, 1, 1])}
BUDGET = r", and reading may take [\d.]+ [kM]?B of memory; .*raise max_memory \(--max-memory\)"


def npz(path, *, how=zipfile.ZIP_DEFLATED, raw=(), **arrays):
    """An archive of some arrays, and of some whose bytes are given."""
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, values in (FINE | arrays).items():
            if name not in dict(raw):
                with archive.open(f"{name}.npy", "w") as file:
                    np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)
        for name, content in dict(raw).items():
            archive.writestr(f"{name}.npy", content)
    return path


def header(shape, dtype):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def texts(*codes):
    """An array of texts of one character each, by their code points."""
    return header((len(codes),), "<U1") + np.array(codes, "<u4").tobytes()


def lists(path, **options):
    """Steps whose lists take next to nothing in the file, and 8 MB in memory."""
    counts = np.full(10, 50_000)
    contexts = pa.LargeListArray.from_arrays(np.arange(11) * 100_000, np.ones(1_000_000))
    columns = {"episode": [0] * 10, "step": range(10), "chosen": [0] * 10, "n_candidates": counts, "contexts": contexts}
    pq.write_table(pa.table(columns), path, **options)
    return path


def refused(path, words, **options):
    """That reading whole and part by part refuse a file in the same words, and the command line in one line."""
    messages = set()
    for read in (ibcb.read_log, lambda path, **options: list(open_log(path, **options).parts())):
        with pytest.raises(LogFormatError, match=words) as caught:
            read(path, **options)
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert messages.pop().isprintable()
    more = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    result = ibcb_command("validate", path, *more)
    assert result.exit_code == 1
    assert re.fullmatch(r"error: .*\n", result.stderr), result.stderr


# -- the budget ------------------------------------------------------------------------------------------------------


def test_a_budget_is_an_amount_of_memory():
    assert memory_budget(None) == machine_memory() // 2
    assert [memory_budget(text) for text in ("1", "2 kB", "3MiB", "0.5gb")] == [1, 2000, 3 * 2**20, 500_000_000]
    for wrong in ("", "0", -1, "much", "1 XB", True, "1e3", 0.5j, "nan"):
        with pytest.raises(ValueError, match="is not an amount of memory; write 500MB"):
            memory_budget(wrong)
        with pytest.raises(ValueError, match="is not an amount of memory"):
            ibcb.read_log(pa.table({"step": [1]}), max_memory=wrong)
    result = ibcb_command("validate", "nothing.csv", "--max-memory", "much")
    assert result.exit_code == 2


@pytest.mark.parametrize("name", ["log.parquet", "log.npz", "log.csv", "log.arrow", "log.vw", "log.dsjson"])
def test_a_log_larger_than_the_budget_is_refused_whole_and_read_part_by_part(tmp_path, rng, name):
    log = ibcb.BehaviorLog.from_episodes(
        [(rng.normal(size=(400, 2, 20)), [0] * 400)] * 2, feature_names=[f"f{i}" for i in range(20)]
    )
    options = {"episode_size": 400} if name.endswith(".vw") else {}
    path = tmp_path / name
    ibcb.write_log(log, path)
    with pytest.raises(LogFormatError, match=rf"{name}: .*{BUDGET}"):
        ibcb.read_log(path, max_memory="200kB", **options)
    assert sum(part.n_steps for _, part in open_log(path, max_memory="1MB", **options).parts()) == 800
    assert ibcb.read_log(path, max_memory="1MB", **options).n_steps == 800


# -- much from little ------------------------------------------------------------------------------------------------


def test_lists_that_unfold_are_read_in_bounded_memory(tmp_path):
    path = lists(tmp_path / "log.parquet")
    assert path.stat().st_size < 50_000
    with pytest.raises(LogFormatError, match=rf"row group 0 holds lists that take 8\.0 MB{BUDGET}"):
        ibcb.read_log(path, max_memory="4MB")
    with pytest.raises(LogFormatError, match=rf"row group 0 holds lists that take 8\.0 MB{BUDGET}"):
        list(open_log(path, max_memory="4MB").parts())
    small = lists(tmp_path / "small.parquet", row_group_size=1)
    parts = [part.n_rows for _, part in open_log(small, max_memory="4MB").parts()]
    assert parts == [50_000] * 10


@pytest.mark.parametrize(
    "size, n, words",
    [
        (2_000_000, 20, "a text of 2000000 bytes, of at most 1048576"),
        (500_000, 200, rf"200 rows .*take 100\.\d MB{BUDGET}"),
    ],
)
def test_long_texts_of_a_dictionary_are_not_unfolded(tmp_path, size, n, words):
    steps = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array(["a" * size]))
    table = pa.table({"episode": [0] * n, "step": steps, "chosen": [1] + [0] * (n - 1), "x": np.arange(float(n))})
    table = table.cast(table.schema.set(1, pa.field("step", pa.string())))
    pq.write_table(table, tmp_path / "log.parquet")
    for read in (ibcb.read_log, lambda path, **options: list(open_log(path, **options).parts())):
        with pytest.raises(LogFormatError, match=words):
            read(tmp_path / "log.parquet", max_memory="50MB")


def test_arrays_that_unpack_to_much_are_refused_before_they_are_read(tmp_path):
    steps = 100_000
    zeros = {
        name: header(shape, kind) + bytes(8 * steps)
        for name, shape, kind in (
            ("contexts", (steps, 1, 1), "<f8"),
            ("chosen", (steps,), "<i8"),
            ("episode", (steps,), "<i8"),
        )
    }
    path = npz(tmp_path / "log.npz", raw=zeros)
    assert path.stat().st_size < 20_000
    refused(path, BUDGET, max_memory="1MB")  # so that no import is measured
    tracemalloc.start()
    tracemalloc.reset_peak()
    refused(path, rf"the arrays take 4\.0 MB to read, most of it 'chosen'.*{BUDGET}", max_memory="1MB")
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()
    refused(
        npz(tmp_path / "ids.npz", raw={"step_ids": header((4,), "<U2000000") + bytes(32_000_000)}),
        "step_ids holds texts of 2000000 characters; a name or an id has at most 1048576",
    )


@pytest.mark.parametrize(
    "name, values, words",
    [
        ("warmup", np.zeros(10**7, int), r"warmup has shape \(10000000,\); expected a whole number: a single one"),
        ("preparation", np.zeros(10**6, "U10"), "preparation has shape"),
        ("chosen", np.zeros(10**7, int), r"chosen has shape \(10000000,\); expected .*one entry per step, \(4,\)"),
        ("episode_offsets", np.zeros(10**7, int), r"episode_offsets has shape .*, but there are 4 steps"),
    ],
)
def test_shapes_are_checked_before_an_array_is_read(tmp_path, name, values, words):
    np.savez_compressed(tmp_path / "log.npz", **(FINE | {name: values}))
    tracemalloc.start()
    with pytest.raises(LogFormatError, match=words):
        ibcb.read_log(tmp_path / "log.npz")
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


def test_a_header_without_end_is_refused_before_it_is_read(tmp_path):
    content = b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b" " * 1_000_000
    path = npz(tmp_path / "log.npz", raw={"chosen": content})
    refused(path, r"array 'chosen' cannot be read \(.* header, expected 2147483648 bytes got \d+\); the file is")
    # Nobody asks for the others.
    assert len(ibcb.read_log(npz(tmp_path / "log.npz", raw={"other": content}))) == 2


ENDLESS = {
    "a step, CSV": ("log.csv.gz", b"episode,step,chosen,x\n", b"0,0,0,1\n", r"row 0 \(from 0\) has \d+ rows or more"),
    "a step, JSON": ("log.jsonl.gz", b"", b'{"episode":0,"step":0,"chosen":0,"x":1}\n', r"has \d+ rows or more"),
    "a step, VW": ("log.vw", b"0:1:1 |a x\n", b"|a x:1\n", r"line 1: the block that begins here has \d+ lines or more"),
    "a line, JSON": ("log.jsonl.gz", b'{"a":"', b"xxxxxxxx", "line 1: it is longer than"),
    "a line, VW": ("log.vw", b"|a ", b"xxxxxxxx", "line 1: it is longer than"),
    "a line, dsjson": ("log.dsjson", b'{"a":"', b"xxxxxxxx", "line 1: it is longer than"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr("ibcb.io.jsonlines._BLOCK", 1 << 16)
    monkeypatch.setattr("ibcb.io.csvfiles._CSV_BLOCK", 1 << 16)
    file, first, again, words = ENDLESS[name]
    (tmp_path / file).write_bytes(gzip.compress(first + again * 100_000, 1))
    options = {} if "csv" in file or "jsonl" in file else {"episode_size": 5}
    refused(tmp_path / file, words + f".*{BUDGET}", max_memory="4MB", **options)


@pytest.mark.parametrize(
    "name, start", [("log.vw", b""), ("log.dsjson", b""), ("log.jsonl.gz", b""), ("log.csv.gz", b"a,b\n")]
)
def test_blank_lines_without_end_are_refused(tmp_path, monkeypatch, name, start):
    monkeypatch.setattr("ibcb.io.opened._MOST_BLANK", 10_000)
    monkeypatch.setattr("ibcb.io.csvfiles._CSV_BLOCK", 1 << 12)
    monkeypatch.setattr("ibcb.io.jsonlines._BLOCK", 1 << 12)
    (tmp_path / name).write_bytes(gzip.compress(start + b"\n" * 10**6))
    refused(tmp_path / name, r"blank lines follow each other for more than 10000 bytes.*is it the right file")


READ_STEP = """
import re, sys, ibcb
try:
    ibcb.read_log(sys.argv[1], max_memory="100MB")
except ibcb.LogFormatError:
    print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what a process has held is not told here")
def test_an_endless_step_of_csv_is_refused_before_many_blocks_are_read_ahead(tmp_path):
    with gzip.open(tmp_path / "log.csv.gz", "wb", 1) as file:
        file.write(b"episode,step,chosen,x\n" + b"0,0,0,1\n" * 10_000_000)
    (tmp_path / "small.csv").write_text("episode,step,chosen,x\n0,0,0,1\n")
    command = [sys.executable, "-c", READ_STEP]
    held = [
        int(subprocess.run([*command, tmp_path / name], capture_output=True, text=True, check=True).stdout)
        for name in ("small.csv", "log.csv.gz")
    ]
    assert held[1] - held[0] < 150_000


# -- only regular files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_pipes_and_devices_are_not_read(tmp_path, make):
    words, begun = "a pipe or device, which can be read only once; save what it gives to a file", time.monotonic()
    (tmp_path / "bandit").mkdir()
    (tmp_path / "bandit" / "item_context.csv").write_text("item_id,item_feature_0\n0,1\n1,2\n")
    make(tmp_path / "bandit" / "all.csv")
    refused(tmp_path / "bandit", words)
    make(tmp_path / "pipe.csv")
    refused(tmp_path / "pipe.csv", words)
    refused(tmp_path / "pipe.csv", words, format="csv")
    (tmp_path / "log.csv").write_text("step,chosen,item_id\n0,1,0\n0,0,1\n")
    for option in ({"items": tmp_path / "pipe.csv"}, {"arm": "x", "arm_features": tmp_path / "pipe.csv"}):
        with pytest.raises(LogFormatError, match=words):
            ibcb.read_log(tmp_path / "log.csv", **option)
    with pytest.raises(ValueError, match=words):
        ibcb.read_log(tmp_path / "log.csv", options=tmp_path / "pipe.csv")
    assert time.monotonic() - begun < 30


# -- errors of one kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how, name", [(zipfile.ZIP_LZMA, "lzma"), (zipfile.ZIP_BZIP2, "bzip2")])
def test_compressions_that_numpy_does_not_write_are_refused(tmp_path, how, name):
    refused(npz(tmp_path / "log.npz", how=how), f"'contexts' is compressed by {name}; .*numpy.savez_compressed")


@pytest.mark.parametrize("name", ["episode", "step_ids", "timestamps"])
@pytest.mark.parametrize("code", [0x110000, 0xD800])
def test_characters_that_do_not_exist_are_refused(tmp_path, name, code):
    path = npz(tmp_path / "log.npz", raw={name: texts(97, 98, code, 99)})
    refused(path, f"array '{name}' holds {code:#x} where a character should be, which is none")


def test_other_wrong_cells_are_refused(tmp_path):
    pq.write_table(pa.table({}), tmp_path / "log.parquet")
    refused(tmp_path / "log.parquet", "the file has no columns; a log has one for the step")
    nested = npz(tmp_path / "log.npz", feature_names=["a", "b"], preparation="[" * 10**5)
    refused(nested, "array 'preparation' is damaged; write the log again")
    times = np.array(["2024-01-01", "NaT", "2024-01-02", "2024-01-03"], "M8[s]")
    refused(npz(tmp_path / "log.npz", timestamps=times), "step 1: the time is NaT; give the step its time")
    refused(npz(tmp_path / "log.npz", timestamps=[0, np.nan, 1, 2]), "step 1: the time is nan; give the step its time")


@pytest.mark.parametrize("value", [str(10**30), "9" * 5000])
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_ids_that_lose_digits_are_refused(tmp_path, name, value):
    rows = [("0", "1", "1", "2"), ("0", "0", value, "3"), ("1", "1", "1", "2"), ("1", "0", value, "3")]
    csv = "step,chosen,item_id,x\n" + "".join(",".join(row) + "\n" for row in rows)
    lines = "".join('{"step": %s, "chosen": %s, "item_id": %s, "x": %s}\n' % row for row in rows)  # noqa: UP031
    (tmp_path / name).write_text(csv if name == "log.csv" else lines)
    refused(
        tmp_path / name, r"'item_id' holds \S+ in row 1 \(from 0\), of which not all digits are kept", episode_size=1
    )


@pytest.mark.parametrize("value", [10**30, "9" * 5000, 2**63, "1_0", "²"])
@pytest.mark.parametrize("of_items", [True, False])
def test_items_that_are_no_numbers_are_refused(tmp_path, value, of_items):
    (tmp_path / "item_context.csv").write_text(f"item_id,item_feature_0\n0,1\n{value if of_items else 1},2\n")
    rows = f"2019-11-24 00:00:22,0,0,0\n2019-11-24 00:00:23,{0 if of_items else value},0,0\n"
    columns = f"timestamp,item_id,user-item_affinity_0,user-item_affinity_{value if of_items else 1}\n"
    (tmp_path / "all.csv").write_text(columns + rows)
    refused(tmp_path, r"row 1 \(from 0\): item_id is '.{1,62}; expected a whole number of at most 18", episode_size=1)


# -- damage ----------------------------------------------------------------------------------------------------------


def small_log():
    rng = np.random.default_rng(0)
    episodes = [(rng.normal(size=(3, 2, 2)), [0, 1, 0]), (rng.normal(size=(3, 2, 2)), [1, 1, 0])]
    return ibcb.BehaviorLog.from_episodes(episodes, feature_names=["price", "stars"], step_ids=list("uvwxyz"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A small log in every format that has checksums or a structure, as bytes."""
    folder, found = tmp_path_factory.mktemp("written"), {}
    for suffix in (".parquet", ".npz", ".arrow", ".dsjson", ".csv", ".vw"):
        ibcb.write_log(small_log(), folder / f"log{suffix}")
        found[suffix] = (folder / f"log{suffix}").read_bytes()
    return found


def read_damaged(path, content, **options):
    """The log, if it can be read: None where it is refused, whole and part by part alike."""
    path.write_bytes(content)
    outcomes = []
    for read in (ibcb.read_log, lambda path, **options: list(open_log(path, **options).parts())):
        try:
            outcomes.append(read(path, max_memory="200MB", **options))
        except LogFormatError as error:
            assert str(error).isprintable()  # noqa: PT017
            outcomes.append(None)
    # What only all of it tells, such as that every episode is warm-up, the parts cannot.
    assert outcomes[1] is not None or outcomes[0] is None
    return outcomes[0]


@pytest.mark.parametrize("suffix", [".arrow", ".npz"])
def test_damage_of_a_bit_is_never_read(tmp_path, rng, written, suffix):
    content, refusals = written[suffix], 0
    for place in rng.integers(len(content), size=150).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        log = read_damaged(tmp_path / f"log{suffix}", damaged)
        refusals += log is None
        # Where nothing is told of a part, an array of the archive is missing: its name was damaged.
        if log is not None and not log.notes:
            assert_same_log(log, small_log())
    assert refusals > 50


def test_every_column_and_the_schema_have_a_digest(tmp_path, written):
    path = tmp_path / "log.arrow"
    path.write_bytes(written[".arrow"])
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        schema, (batch, more) = reader.schema, reader.get_batch_with_custom_metadata(0)
        renamed = schema.set(4, schema.field(4).with_name("costs"))
        meta = schema.metadata[b"ibcb"].replace(b"price", b"costs")
        for other in (schema.with_metadata(schema.metadata | {b"ibcb": meta}), renamed.with_metadata(schema.metadata)):
            with pa.ipc.new_file(tmp_path / "other.arrow", other) as writer:
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=other), more)
            with pytest.raises(LogFormatError, match="damaged"):
                ibcb.read_log(tmp_path / "other.arrow")


changes_of_bytes = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(WAYS), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4
)


def fuzz(tmp_path, written, suffix, changes):
    options = {"episode_size": 3} if suffix in (".vw", ".csv", ".dsjson") else {}
    read_damaged(tmp_path / f"log{suffix}", mutated(written[suffix], changes), **options)


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".arrow", ".dsjson", ".csv", ".vw"])
@given(changes=changes_of_bytes)
@settings(max_examples=15, suppress_health_check=QUIET)
def test_damaged_files_are_refused_or_read(tmp_path, written, suffix, changes):
    fuzz(tmp_path, written, suffix, changes)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".arrow", ".dsjson", ".csv", ".vw"])
@given(changes=changes_of_bytes)
@settings(max_examples=20_000, suppress_health_check=QUIET)
def test_damaged_files_are_refused_or_read_for_long(tmp_path, written, suffix, changes):
    fuzz(tmp_path, written, suffix, changes)


PEAKS = """
import re, sys
import numpy as np, ibcb
path, content = sys.argv[1], bytes.fromhex(sys.argv[2])
rng, refused = np.random.default_rng(0), 0
for count in (100, 300):
    for place in rng.integers(10, len(content), size=count):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        open(path, "wb").write(damaged)
        try:
            ibcb.read_log(path, episode_size=3)
        except ibcb.LogFormatError:
            refused += 1
    print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
print(refused)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what a process has held is not told here")
@pytest.mark.parametrize("name", ["log.csv.gz", slow("log.vw.gz"), slow("log.dsjson.gz")])
def test_damaged_gzips_leave_no_memory_behind(tmp_path, written, name):
    """The most that a process has held does not grow with how many it has read."""
    content = gzip.compress(written[Path(name).with_suffix("").suffix])
    command = [sys.executable, "-c", PEAKS, tmp_path / name, content.hex()]
    first, later, refused = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert refused > 300
    assert later < 1.1 * first


# -- Parquet's own numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["snappy", "none", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_chunks_and_pages_are_those_that_arrow_knows(tmp_path, rng, compression, version):
    table = pa.table(
        {
            "n": rng.integers(1000, size=5000),
            "text": rng.integers(9, size=5000).astype(str),
            "list": [list(range(k % 5)) for k in range(5000)],
            "flag": rng.random(5000) > 0.5,
        }
    )
    path = tmp_path / "t.parquet"
    how = {"data_page_version": version, "data_page_size": 1 << 12, "row_group_size": 1700, "compression": compression}
    pq.write_table(table, path, use_dictionary=["text"], store_schema=False, **how)
    meta = pq.read_metadata(path)
    content = io.BytesIO(path.read_bytes())
    groups = parquet_footer.row_groups(content)
    assert [group.rows for group in groups] == [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    for i, group in enumerate(groups):
        for j, chunk in enumerate(group.chunks):
            told = meta.row_group(i).column(j)
            assert chunk.values == told.num_values
            assert chunk.by_dictionary == any("DICTIONARY" in each for each in told.encodings)
            pages = parquet_footer.pages(content, chunk)
            assert pages.values == told.num_values
            assert 0 < pages.largest <= told.total_uncompressed_size


READ_ALL = """
import sys, ibcb
content, start = open(sys.argv[1], "rb").read(), int(sys.argv[2])
for place in [place for place in range(start, len(content) - 8) if content[place] == 2]:
    open(sys.argv[1], "wb").write(content[:place] + b"\\0" + content[place + 1 :])
    try:
        list(ibcb.open_log(sys.argv[1]).parts())
    except ibcb.LogFormatError:
        pass
print("alive")
"""


def test_a_footer_that_contradicts_itself_does_not_end_the_process(tmp_path, written):
    """A column that may be missing called one that may not: what is counted of both no longer fits."""
    path, content = tmp_path / "log.parquet", written[".parquet"]
    path.write_bytes(content)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, path, str(start)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "alive\n", done.stderr


def test_of_two_damages_the_same_is_told_whole_and_part_by_part(tmp_path, written):
    """A header in the last row group, which is looked at first where all is read, and a page in the first one."""
    path = tmp_path / "log.parquet"
    path.write_bytes(written[".parquet"])
    first, *_, last = parquet_footer.row_groups(io.BytesIO(path.read_bytes()))
    content = bytearray(written[".parquet"])
    content[last.chunks[1].start] = 0xFF
    content[first.chunks[0].start + first.chunks[0].length - 1] ^= 0xFF
    path.write_bytes(content)
    refused(path, "not a readable Parquet file .*damaged")


@pytest.mark.parametrize("field", ["packed", "unpacked"])
def test_a_page_that_asks_for_much_is_refused_before_it_gets_it(tmp_path, written, field):
    """Of the first page: its kind, its size unpacked and its size as it is, each in a byte or two."""
    path, content = tmp_path / "log.parquet", written[".parquet"]
    start = 4
    thrift = parquet_footer._Thrift(content[start:])
    header = thrift.struct()
    numbers = {"unpacked": header[2], "packed": header[3]}
    assert max(numbers.values()) < 64
    at = start + (3 if field == "unpacked" else 5)
    assert content[at] == 2 * numbers[field]
    claimed = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0x0F])
    path.write_bytes(content[:at] + claimed + content[at + 1 :])
    words = "a page takes 2.1 GB" if field == "unpacked" else "the header of a page makes no sense"
    for read in (ibcb.read_log, lambda path, **options: list(open_log(path, **options).parts())):
        with pytest.raises(LogFormatError, match=words):
            read(path, max_memory="200MB")
