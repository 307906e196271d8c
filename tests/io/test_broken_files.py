"""A corpus of files that are no log, or hardly one.

Each goes through the command line, through `read_log` and through the stream: refused in one line that says where, why
and what to do, in the same words all three times, and with nothing left behind. Some are only awkward, and are read.
"""

import functools
import gzip
import io
import json
import os
import pickle
import re
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strategies import assert_same_log
from typer.main import get_command
from typer.testing import CliRunner

import ibcb
from ibcb import LogFormatError
from ibcb.cli import app
from ibcb.io import WRITABLE, csvfiles, open_log
from ibcb.io import parquet as parquet_files

Writer = Callable[[Path], Path]


class Case(NamedTuple):
    """What to write, what the message must say, how to read it, and how the command line must end."""

    write: Writer
    words: str
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    code: int = 1
    #: read in small blocks, so that what is wrong comes after many of them
    blocks: bool = False
    #: whether going through it part by part finds it, too
    streamed: bool = True


# -- what the files are made of --------------------------------------------------------------------------------------


def long(**changes):
    """A log with a row per candidate: three steps in two episodes, two candidates of two features each."""
    columns = {
        "episode": [0, 0, 0, 0, 1, 1],
        "step": [0, 0, 1, 1, 0, 0],
        "chosen": [1, 0, 0, 1, 1, 0],
        "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "stars": [5.0, 4.0, 3.0, 2.0, 1.0, 0.0],
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


def rows(**changes):
    """A log with a row per step: two episodes of two steps, two candidates of two features each."""
    columns = {
        "episode": [0, 0, 1, 1],
        "step": [0, 1, 0, 1],
        "chosen": [0, 1, 1, 0],
        "n_candidates": [2, 2, 2, 2],
        "contexts": [ROW] * 4,
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


ROW = [0.0, 1.0, 2.0, 3.0]
NESTED = [[0.0, 1.0], [2.0, 3.0]]
ONE_STEP_EACH = {"step": [0, 0, 1, 1, 2, 2]}
CSV = "episode,step,chosen,price,stars\n0,0,1,1,5\n0,0,0,2,4\n0,1,0,3,3\n0,1,1,4,2\n1,0,1,5,1\n1,0,0,6,0\n"
HEADER, DATA = CSV.split("\n", 1)
VW = "0:1:1 |a x:1\n|a x:2\n"
DECISION = {"_labelIndex": 0, "c": {"_multi": [{"x": 1}, {"x": 2}]}}


def parquet(table, name="log.parquet", *, meta=None):
    if meta is not None:
        content = meta if isinstance(meta, bytes) else json.dumps({"version": 1} | meta).encode()
        table = table.replace_schema_metadata({b"ibcb": content})
    return stored(parquet_bytes(table), name)


def stored(content, name="log.csv"):
    def write(folder):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def folder(*writers, name="logs"):
    def write(parent):
        (parent / name).mkdir()
        for writer in writers:
            writer(parent / name)
        return parent / name

    return write


def symlink(target):
    def write(parent):
        (parent / "log.parquet").symlink_to(parent / target)
        return parent / "log.parquet"

    return write


def pipe(parent):
    os.mkfifo(parent / "log.csv")
    return parent / "log.csv"


def parquet_bytes(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow_bytes(table, new=pa.ipc.new_file):
    sink = io.BytesIO()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def npz_bytes(**changes):
    arrays = {"contexts": np.ones((4, 2, 2)), "chosen": [0, 1, 1, 0], "episode": [0, 0, 1, 1]} | changes
    sink = io.BytesIO()
    np.savez(sink, **{name: values for name, values in arrays.items() if values is not None})
    return sink.getvalue()


def cut(content, share):
    return content[: int(len(content) * share)]


def lines(*decisions):
    return "".join(json.dumps(DECISION | decision) + "\n" for decision in decisions)


def claims(old, new):
    """A Parquet file of 300 rows whose footer says something else: numbers there are zigzag varints."""

    def varint(value):
        digits = []
        value *= 2
        while value > 127:
            digits.append(value & 127 | 128)
            value >>= 7
        return bytes([*digits, value])

    table = pa.table({name: np.arange(300) for name in ("step", "price")} | {"chosen": [1] * 300, "episode": [0] * 300})
    content = parquet_bytes(table)
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8].replace(varint(old), varint(new))
    return content[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def whole_numbers(values):
    return pa.array(values, pa.uint64())


def times(*texts):
    return pa.array(np.repeat(np.array(texts, "datetime64[s]"), 2))


def many(last, steps=4000):
    """Several blocks of steps with one candidate, and a last row."""
    return HEADER + "\n" + "".join(f"0,{step},1,{step},1\n" for step in range(steps)) + last


FILE, STREAM = arrow_bytes(long()), arrow_bytes(long(), pa.ipc.new_stream)
PARQUET, ZIPPED = parquet_bytes(rows()), gzip.compress(many("").encode())
# A kind of block that does not exist.
DAMAGED_GZIP = ZIPPED[:10] + b"\x07" + ZIPPED[11:]
AGAIN = "Copy it again, or write it again"
DAMAGED = "the metadata under the key 'ibcb' is damaged"
AFRESH = "write the log again"
SAME_COLUMNS = "all files of a log need the same columns"
FIRST = r"by its first bytes it is .*{}.*Convert it"
BY_DAY = {"episode_every": "1d"}
UTF8 = "save (the file|it) as UTF-8"

# -- files that are none, or of another kind -------------------------------------------------------------------------

CASES = {
    **{
        f"no bytes, {kind}": Case(stored(b"", f"log{kind}"), words)
        for kind, words in (
            (".pq", f"not a readable Parquet file .*0 bytes.*{AGAIN}"),
            (".csv", "the file is empty; a log has a row with the names"),
            (".feather", f"not a readable Arrow file .*{AGAIN}"),
        )
    },
    **{
        f"{what} cut": Case(stored(cut(content, share), name), f"cut off, damaged.*{AGAIN}")
        for what, content, share, name in (
            ("Parquet", PARQUET, 0.6, "log.parquet"),
            ("Arrow file", FILE, 0.95, "log.arrow"),
            ("Arrow stream", STREAM, 0.5, "log.arrow"),
        )
    },
    "gzip cut late": Case(stored(ZIPPED[:-6], "log.csv.gz"), f"not a readable CSV file.*ended before.*{AGAIN}"),
    "gzip that is none": Case(stored(CSV, "log.csv.gz"), f"not a readable CSV file.*Not a gzipped.*{AGAIN}"),
    "Parquet with an absurd footer": Case(
        stored(PARQUET[:-8] + b"\xff\xff\xff\x7fPAR1", "log.parquet"), f"2147483647.*{AGAIN}"
    ),
    "Parquet that claims many rows": Case(
        stored(claims(300, 2**62), "log.parquet"), "that it has 4611.* rows, but 300 are there; it is damaged"
    ),
    "Parquet that claims no rows": Case(stored(claims(300, 0), "log.parquet"), "empty.*right file"),
    "CSV named Parquet": Case(stored(CSV, "log.parquet"), f"not a readable Parquet file .*{AGAIN}"),
    "pickle named Parquet": Case(stored(pickle.dumps(CSV), "log.parquet"), FIRST.format("pickle")),
    "web page named CSV": Case(stored("<!DOCTYPE html>\n<p>404, not found\n"), FIRST.format("web page")),
    **{
        f"gzip damaged, named {name}": Case(stored(DAMAGED_GZIP, name), f"cut off, damaged.*{AGAIN}")
        for name in ("log.jsonl.gz", "log.dsjson.gz", "log.csv.gz")
    },
    "propensity beyond any float": Case(
        stored(lines({"p": [10**400, 0]}), "log.dsjson"), "line 1: candidate 0: the prop.* is inf", {"episode_size": 1}
    ),
    # -- paths -------------------------------------------------------------------------------------------------------
    "nothing": Case(lambda parent: parent / "log.parquet", "does not exist; give the path of a log"),
    "link to itself": Case(symlink("log.parquet"), "does not exist; give the path of a log"),
    "pipe": Case(pipe, "a pipe or device, which can be read only once; save what it gives to a file"),
    "name that is not UTF-8": Case(
        stored(PARQUET, os.fsdecode(b"\xff log.parquet")), "path has a character that is not UTF-8; rename the file"
    ),
    # -- folders -----------------------------------------------------------------------------------------------------
    "folder without files": Case(folder(), r"the folder holds no log; files must end in one of \.parquet"),
    "folder, column too many": Case(
        folder(parquet(long(stars=None), "a.parquet"), parquet(long(), "b.parquet")),
        rf"b\.parquet: it has a column 'stars', which a\.parquet does not have; {SAME_COLUMNS}.*--features",
    ),
    "folder, other type": Case(
        folder(parquet(long(), "a.parquet"), parquet(long(stars=list("abcdef")), "b.parquet")),
        r"b\.parquet: column 'stars' holds string, but double in the files before it.*the same types",
    ),
    "folder, one file cut": Case(
        folder(parquet(rows(), "a.parquet"), stored(cut(PARQUET, 0.5), "b.parquet")),
        rf"logs: b\.parquet: not a readable Parquet file.*{AGAIN}",
    ),
    "folder, features in another order": Case(
        folder(
            parquet(rows(), "a.parquet", meta={"feature_names": ["a", "b"]}),
            parquet(rows(episode=[2, 2, 3, 3]), "b.parquet", meta={"feature_names": ["b", "a"]}),
        ),
        r"b\.parquet: its features have other names than those of a\.parquet.*convert all files together",
    ),
    # -- one row per step --------------------------------------------------------------------------------------------
    "no steps": Case(parquet(rows().slice(0, 0)), "the log is empty: it has no step. Is it the right file"),
    "no contexts": Case(parquet(rows(contexts=None)), "'contexts' is missing; .*row per step has.*--drop n_candidates"),
    "no episodes": Case(parquet(rows(episode=None)), "'episode' is missing; a log with a row per step has episode"),
    "choices as lists": Case(parquet(rows(chosen=[[0]] * 4)), "'chosen' holds list.*--column chosen=NAME"),
    "choice out of range": Case(
        parquet(rows(chosen=[0, 1, 2, 0])), "episode 1, step 0: chosen is 2 but the step has 2 candidates; indices"
    ),
    "choice huge": Case(
        parquet(rows(chosen=whole_numbers([0, 2**63, 1, 0]))), "row 1: 'chosen' is 9223372036854775808.*correct it"
    ),
    "count negative": Case(parquet(rows(n_candidates=[2, -2, 2, 2])), "row 1: n_candidates is -2; .*Leave it out"),
    "count huge": Case(
        parquet(rows(n_candidates=[2, 2**62, 2, 2], contexts=[ROW * 2, [], ROW * 2, ROW * 2])),
        "row 1: contexts has 0 numbers but 4611686018427387904 candidates of 4 features.*same features",
    ),
    "contexts empty": Case(parquet(rows(contexts=[[]] * 4)), "row 0: contexts is empty; every candidate needs"),
    "contexts of mixed length": Case(
        parquet(rows(contexts=[ROW, ROW, [1.0] * 6, ROW])), "row 2: contexts has 6 numbers but 2 .*the same features"
    ),
    "nested contexts of mixed length": Case(
        parquet(rows(contexts=[NESTED, [[0.0, 1.0, 2.0]] * 2, NESTED, NESTED])),
        "row 1: a candidate has 3 features but the first one has 2; every candidate needs the same",
    ),
    "nested contexts, other count": Case(
        parquet(rows(n_candidates=[2, 3, 2, 2], contexts=[NESTED] * 4)),
        "row 1: n_candidates is 3 but contexts has 2 lists; give it one list for each",
    ),
    "contexts nested too deep": Case(parquet(rows(contexts=[[NESTED]] * 4)), "it must hold lists of numbers"),
    "number missing": Case(
        parquet(rows(contexts=[ROW, ROW, ROW, [0.0, None, 1.0, 2.0]])), "row 3: .*missing values; impute them or drop"
    ),
    "number nan": Case(
        parquet(rows(contexts=[ROW, ROW, [0.0, np.nan, 1.0, 2.0], ROW])),
        "episode 1, step 0, candidate 0: feature 1 is nan; .*Impute the value or drop the step",
    ),
    "steps unsorted": Case(parquet(rows(step=[1, 0, 0, 1])), "step 0 of episode 0 follows step 1; sort.*--sort"),
    "name of a step twice": Case(parquet(rows(step=list("aabc"))), "step 'a' of episode 0 comes back.*name of its own"),
    "episodes unsorted": Case(parquet(rows(episode=[1, 1, 0, 0])), "step 2 of the log: episode 0 follows 1; sort"),
    "episode huge": Case(
        parquet(rows(episode=whole_numbers([0, 0, 2**63, 2**63]))),
        "step 2 of the log: episode 9223372036854775808 is above 9223372036854775807; number the episodes 0, 1",
    ),
    "warm-up as fractions": Case(
        parquet(rows(episode=[-1.0, -1.0, 0.0, 0.0])),
        "episode -1.0 is below 0 and not a whole number; store the numbers as integers.*--warmup 1",
    ),
    "only warm-up": Case(
        parquet(rows(episode=[-2, -2, -1, -1])), "warmup is 2 but the log has 2 .*at least one must", streamed=False
    ),
    "drop of no name": Case(
        parquet(rows()), "no column 'price'.*have no names.*when the log is conv", {"drop": ["price"]}
    ),
    # -- what we wrote about a file ----------------------------------------------------------------------------------
    "metadata newer": Case(parquet(rows(), meta={"version": 2}), "format version 2; .*reads up to 1. Upgrade ibcb"),
    **{
        f"metadata {name}": Case(parquet(table, meta=meta), rf"{DAMAGED} \({words}.*\); {AFRESH}")
        for name, table, meta, words in (
            ("no JSON", rows(), b"{", "version None"),
            ("number of features huge", rows(), {"n_features": 2**70}, "n_features 118"),
            ("names too few", rows(), {"n_features": 2, "feature_names": ["a"]}, "1 name of 2 features"),
            ("preparation empty", rows(), {"preparation": {}}, "preparation"),
            (
                "preparation of others",
                rows(),
                {"feature_names": ["a", "b"], "preparation": {"columns": [], "roles": {}}},
                "preparation makes other features",
            ),
            ("roles a list", long(), {"features": ["price"], "roles": [1]}, r"roles \[1\]"),
        )
    },
    "names twice": Case(parquet(rows(), meta={"feature_names": ["a", "a"]}), "feature_names has 'a' twice"),
    # -- one row per candidate ---------------------------------------------------------------------------------------
    "none chosen": Case(
        parquet(long(chosen=[1, 0, 0, 0, 1, 0])), "episode 0, step 1: no candidate is marked .*Leave the step out"
    ),
    "position instead of marks": Case(
        parquet(long(chosen=[0, 0, 1, 1, 2, 2])), "'chosen' holds 2 in row 4 .*marks the chosen one: 1 or true there"
    ),
    "step comes back": Case(
        parquet(long(episode=[0] * 6, step=list("aabbaa"))), "step 'a' of episode 0 comes back .*--sort"
    ),
    "steps as lists": Case(parquet(long(step=[[0]] * 6)), "'step' holds list.*number, a text or a time.*--column step"),
    "feature infinite": Case(
        parquet(long(episode=[3, 3, 3, 3, 5, 5], price=[1.0, 2.0, 3.0, 4.0, np.inf, 6.0])),
        "episode 5, step 0, candidate 0: feature 'price' is inf",
    ),
    "feature missing": Case(
        parquet(long(price=[1.0, 2.0, None, 4.0, 5.0, 6.0])),
        "'price' has 1 missing value, the first in row 2 .*--missing mean.*--drop price",
    ),
    "mean of nothing": Case(
        parquet(long(price=pa.nulls(6))), "'price' has no values, so no mean; leave it out", {"missing": "mean"}
    ),
    "one-hot of 20001 values": Case(
        parquet(
            pa.table(
                {
                    "step": range(20_001),
                    "genre": [f"g{i}" for i in range(20_001)],
                    "chosen": [1] * 20_001,
                    "batch": [0] * 20_001,
                }
            )
        ),
        "'genre' has 20001 different values, of at most 20000 .*--min-count 2.*leave it out .--drop genre",
        {"one_hot": ["genre"]},
    ),
    "text that is not UTF-8": Case(
        parquet(long(step=pa.array([b"\xff"] * 6).view(pa.string()))), f"not a readable Parquet file .*UTF8.*{AGAIN}"
    ),
    "no features": Case(parquet(long(price=None, stars=None)), "no column is left for the features; .*Name them with"),
    "names that differ in case and space": Case(
        parquet(long(Step=[0] * 6, **{"step ": [0] * 6})), "'Step', 'step', 'step ' could each be the step; name one"
    ),
    "name with a line break, no feature": Case(
        parquet(long(**{"a\nb\x1b[31m": list("abcdef")})), r"'a\\nb\\x1b\[31m' holds text.*--one-hot NAME"
    ),
    # -- episodes by time --------------------------------------------------------------------------------------------
    "no times": Case(parquet(long(**ONE_STEP_EACH)), "no column holds times; name it.*--column timestamp=NAME", BY_DAY),
    "times that are none": Case(
        parquet(long(time=["2024-02-01"] * 2 + ["01.02.2024"] * 4)),
        "step 1 of the log: the time is '01.02.2024'; .*such as 2024-03-01 12:00:00, or a number of seconds",
        BY_DAY,
    ),
    "times in milliseconds": Case(
        parquet(long(time=[1709251200000] * 6)), "the time is 1709251200000; .*divide milliseconds by 1000", BY_DAY
    ),
    "days that come back": Case(
        parquet(long(time=times("2024-01-02", "2024-01-01", "2024-01-02"))),
        "step 1 of the log: its time 2024-01-01.* is before 2024-01-02.*--sort",
        BY_DAY,
    ),
    # -- options -----------------------------------------------------------------------------------------------------
    "column that is not there": Case(
        parquet(long()), "no column 'id' for step; the columns are 'episode'", {"columns": {"step": "id"}}
    ),
    "drop the choices": Case(
        parquet(long()), "'chosen' would, but was named among the features or to be dropped", {"drop": ["chosen"]}
    ),
    "role that does not exist": Case(
        parquet(long()), "a role 'foo'; the roles are episode, step, chosen", {"columns": {"foo": "price"}}, 2
    ),
    "cut by time and by number": Case(
        parquet(long()), "exclude each other; give one", {"episode_every": "1d", "episode_size": 2}, 2
    ),
    "delimiter a quote": Case(stored(CSV), "delimiter='\"' cannot be used; give", {"delimiter": '"'}, 2),
    # -- CSV ---------------------------------------------------------------------------------------------------------
    "UTF-16": Case(stored(CSV.encode("utf-16")), rf"text in UTF-16 \({UTF8}"),
    "UTF-16 without a mark": Case(stored(CSV.encode("utf-16-le")), f"UTF-16.*{UTF8}"),
    "Latin-1 in the header": Case(
        stored(CSV.replace("price", "année").encode("latin-1")), f"the header is not UTF-8: byte 23 is 0xe9; {UTF8}"
    ),
    "Latin-1 late": Case(
        stored(many("").replace(",1\n", ",a\n").encode() + b"1,0,1,1,\xe9\n"),
        f"row 4002 .*column 'stars': the text is not UTF-8; {UTF8}",
        {"one_hot": ["stars"]},
        blocks=True,
    ),
    "decimal commas": Case(
        stored(CSV.replace(",", ";").replace("3;3", "3,25;3")), "'price' holds text, such as '3,25'.*--decimal ,"
    ),
    "row too short": Case(stored(CSV + "1,1,1,3\n"), "row 8 .* has 4 values but the header, .*has 5; every row needs"),
    "quote never closed, large": Case(
        stored(many('1,0,1,"3,4\n') + many("")),
        "a row is longer than 8192 bytes; is a quotation mark never",
        blocks=True,
    ),
    "no header": Case(
        stored(DATA), r"the first row \('0', '0', '1', '1', '5'\) has numbers where the names.*put a row"
    ),
    "header without an end": Case(stored(HEADER), "no row follows the header 'episode,step,.*'; a log needs"),
    "blank lines": Case(stored("\n\r\n  \n"), "the file is empty; a log has a row with the names"),
    "null character": Case(
        stored(CSV.replace("5,1\n", "5,\0\n")), r"'stars' holds text, such as '\\x00'; .*--drop stars"
    ),
    "text after many numbers": Case(
        stored(many("1,0,1,none,1\n", steps=70_000)),  # a megabyte
        "row 70002 .*column 'price': 'none' is not a number, .*correct it, or leave the column out",
        blocks=True,
    ),
    "step that comes back in a later block": Case(
        stored(many("0,7,1,1,1\n")), "step 7 of episode 0 follows step 3999; sort.*--sort", blocks=True
    ),
    "lists in CSV": Case(
        stored('episode,step,chosen,n_candidates,contexts\n0,0,1,2,"[1,2]"\n'), "CSV cannot hold lists: give it a row"
    ),
    # -- Vowpal Wabbit, dsjson, npz ------------------------------------------------------------------------------------
    "VW, nothing cuts it": Case(stored(VW, "log.vw"), "does not say where episodes begin.*episode_size"),
    "dsjson, model comes back": Case(
        stored(lines(*({"VWState": {"m": m}} for m in "aba")), "log.dsjson"),
        "step 2 of the log: episode 'a' comes back after 'b'; sort",
        {"columns": {"episode": "VWState.m"}},
    ),
}

# -- through the command line, read_log and the stream ---------------------------------------------------------------


def arguments(options):
    """Options of `read_log` as those of the command line."""
    result = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if name == "columns":
            result += [f"--column={role}={column}" for role, column in value.items()]
        elif name == "features":
            result.append(f"{option}={','.join(value)}")
        else:
            result += [f"{option}={one}" for one in (value if isinstance(value, list) else [value])]
    return result


@pytest.fixture(autouse=True, scope="module")
def command_built_once():
    """Most of the time of a command is that for building all of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(get_command), raising=False)
        yield


def ibcb_command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def failure_of(read, path, options):
    with pytest.raises((LogFormatError, OSError, ValueError)) as caught:
        read(path, **options)
    return caught.value


def one_line(text):
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def streamed(path, **options):
    return list(open_log(path, **options).parts())


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes the file of a case."""

    def write(case):
        if case.blocks:
            monkeypatch.setattr(csvfiles, "_CSV_BLOCK", 1 << 13)
            monkeypatch.setattr(parquet_files, "_STREAM_NUMBERS", 1 << 12)
        (tmp_path / "in").mkdir()
        return case.write(tmp_path / "in")

    return write


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line_the_same_everywhere_and_nothing_left(tmp_path, written, name):
    case = CASES[name]
    path = written(case)
    result = ibcb_command("convert", path, tmp_path / "out" / "new" / "log.parquet", *arguments(case.options))
    assert result.exit_code == case.code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()
    assert re.search(case.words, result.stderr), result.stderr
    failure = failure_of(ibcb.read_log, path, case.options)
    message = str(failure)
    assert case.code == 1 or re.search(case.words, message)
    if case.streamed:
        assert str(failure_of(streamed, path, case.options)) == message
    if case.code == 1:
        assert message.isprintable() or not isinstance(failure, LogFormatError)
        assert result.stderr == f"error: {one_line(message)}\n"
        assert one_line(path.name) in one_line(message)
        assert len(message) < 600 + len(str(path))


def test_what_they_are_made_of_are_logs(tmp_path):
    for write in (parquet(rows()), stored(npz_bytes(), "log.npz")):
        assert len(ibcb.read_log(write(tmp_path))) == 2
    for write in (parquet(long()), stored(FILE, "log.arrow"), stored(STREAM, "log.ipc"), stored(CSV)):
        assert_same_log(ibcb.read_log(write(tmp_path)), ibcb.read_log(long()))


#: one of every kind, each for one of the commands
SAMPLE = [
    "no bytes, .csv",
    "Parquet cut",
    "pickle named Parquet",
    "nothing",
    "folder, one file cut",
    "contexts of mixed length",
    "metadata newer",
    "step comes back",
    "feature infinite",
    "row too short",
    "UTF-16",
    "text after many numbers",
    "column that is not there",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of two features, fitted on a long table."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    rng = np.random.default_rng(0)
    table = {"batch": np.repeat(range(4), 40), "step": np.repeat(range(80), 2), "chosen": np.tile([1, 0], 80)}
    log = ibcb.read_log(pa.table(table | {name: rng.normal(size=160) for name in ("price", "stars")}))
    ibcb.save_model(ibcb.ChoiceModel(episodes=None).fit(log), path)
    return path


@pytest.mark.parametrize("verb, name", list(zip(cycle(["fit", "predict", "validate"]), SAMPLE, strict=False)))
def test_other_commands_refuse_it_too(tmp_path, written, model, verb, name):
    case = CASES[name]
    path = written(case)
    out = tmp_path / "out" / {"fit": "model.safetensors", "predict": "choices.csv"}.get(verb, "nothing")
    words = {"fit": (path, "-o", out), "predict": (model, path, "-o", out), "validate": (path,)}[verb]
    result = ibcb_command(verb, *words, *arguments(case.options))
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert re.fullmatch(r"error: .*\n", result.stderr)
    assert re.search(case.words, result.stderr), result.stderr
    assert result.stdout == ""
    assert not out.parent.exists()


# -- awkward, and read -----------------------------------------------------------------------------------------------

#: what is only awkward, and how to read it as the log that `long` has
AWKWARD = {
    "mark of UTF-8": (stored(b"\xef\xbb\xbf" + CSV.encode()), {}),
    "semicolons and decimal commas": (stored(CSV.replace(",", ";").replace("3;3", "3,0;3")), {"decimal": ","}),
    "ends of lines of Windows": (stored(CSV.replace("\n", "\r\n")), {}),
    "row numbers without a name": (stored("".join(f"{i or ''},{line}\n" for i, line in enumerate(CSV.split()))), {}),
    "columns called by numbers": (
        stored("0,1,2,3,4\n" + DATA),
        {"columns": {"episode": "0", "step": "1", "chosen": "2"}},
    ),
    "line breaks in quotes": (
        stored(HEADER + ",remark\n" + "".join(f'{line},"one\n""two"", three"\n' for line in DATA.split())),
        {"drop": ["remark"]},
    ),
    "large numbers": (stored(re.sub("(?m)^1,0,", f"{10**18},{2**63 + 5},", CSV)), {}),
    "two columns that could be the step": (
        parquet(long(Step=[0] * 6)),
        {"columns": {"step": "step"}, "drop": ["Step"]},
    ),
    "file that begins with a dot": (parquet(long(), ".log.parquet"), {}),
    "folder, whole numbers and fractions": (
        folder(parquet(long(price=range(1, 7)).slice(0, 4), "a.parquet"), parquet(long().slice(4), "b.parquet")),
        {},
    ),
    "folder, column too many that was not asked for": (
        folder(parquet(long().slice(0, 4), "a.parquet"), parquet(long(x=[0] * 6).slice(4), "b.parquet")),
        {"features": ["price", "stars"]},
    ),
    "folder, key of very many digits": (
        folder(
            parquet(long(episode=None).slice(0, 4), f"episode={10**30}/a.parquet"),
            parquet(long(episode=None).slice(4), f"episode={10**30 + 1}/a.parquet"),
        ),
        {},
    ),
    "numbers as decimals": (
        parquet(
            long(
                step=pa.array([0, 0, 1, 1, 0, 0], pa.decimal128(38)),
                chosen=pa.array([1, 0, 0, 1, 1, 0], pa.decimal128(38)),
                price=pa.array([1, 2, 3, 4, 5, 6], pa.decimal128(38, 2)),
            )
        ),
        {},
    ),
    "times within a day unsorted": (
        parquet(long(**ONE_STEP_EACH, episode=None, time=times("2024-01-01T12", "2024-01-01T11", "2024-01-02"))),
        BY_DAY,
    ),
    "episodes at both ends of the numbers": (parquet(long(episode=[-(2**63)] * 4 + [2**63 - 1] * 2)), {}),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_files_are_read(tmp_path, name):
    write, options = AWKWARD[name]
    path, expected = write(tmp_path), ibcb.read_log(long())
    log = ibcb.read_log(path, **options)
    for array in ("contexts", "step_offsets", "chosen", "episode_offsets"):
        np.testing.assert_array_equal(getattr(log, array), getattr(expected, array))
    result = ibcb_command("convert", path, tmp_path / "out.parquet", *arguments(options))
    assert result.exit_code == 0, result.output
    assert_same_log(ibcb.read_log(tmp_path / "out.parquet"), log)


@pytest.mark.parametrize("names", [("a\nb", "\x1b[31m"), ("x" * 10**5, ""), ("step ", "contexts")])
def test_awkward_names_of_features_come_back(tmp_path, names):
    log = ibcb.BehaviorLog.from_episodes([(np.ones((2, 2, 2)), [0, 1])] * 2, feature_names=names)
    for name, more in (("log.parquet", []), ("long.parquet", ["--long"]), ("log.npz", []), ("log.arrow", [])):
        ibcb.write_log(log, tmp_path / "in.parquet")
        result = ibcb_command("convert", tmp_path / "in.parquet", tmp_path / name, *more)
        assert result.exit_code == 0, result.output
        assert_same_log(ibcb.read_log(tmp_path / name), log)


# -- features of files that we wrote ---------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [False, True])
def test_features_can_be_chosen_of_files_that_we_wrote(tmp_path, more):
    options = {"drop": ["b"], "features": ["c", "a", "b"]}
    rng = np.random.default_rng(0)
    log = ibcb.BehaviorLog.from_episodes([(rng.normal(size=(5, 2, 3)), [0] * 5)] * 2, feature_names=["a", "b", "c"])
    ibcb.write_log(log, tmp_path / "log.parquet", long=more)
    for again in (
        ibcb.read_log(tmp_path / "log.parquet", **options),
        streamed(tmp_path / "log.parquet", **options)[0][1],
    ):
        assert again.feature_names == ("c", "a")
        np.testing.assert_array_equal(again.contexts, log.contexts[: again.n_rows, [2, 0]])


# -- hostile files ---------------------------------------------------------------------------------------------------


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize("protocol, name", list(zip(cycle([0, 2, 5]), [*WRITABLE, ".pkl"], strict=False)))
def test_no_pickle_is_executed_whatever_its_name(tmp_path, name, protocol):
    path = tmp_path / f"log{name}"
    path.write_bytes(pickle.dumps(Trap(tmp_path / "sprung"), protocol))
    result = ibcb_command("convert", path, tmp_path / "out.parquet", "--episode-size", "5")
    assert result.exit_code == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_line_of_50_megabytes_is_refused(tmp_path):
    (tmp_path / "log.csv").write_bytes(CSV.encode() + b"1,1,1," + b"7" * 50_000_000 + b",3\n")
    result = ibcb_command("convert", tmp_path / "log.csv", tmp_path / "out.parquet")
    assert result.exit_code == 1
    assert re.fullmatch(r"error: log\.csv: a row is longer than 16777216 bytes; .*\n", result.stderr)


def test_damaged_arrow_streams_never_crash(tmp_path, rng):
    """Their buffers are used as they are: an offset that points elsewhere would be followed there."""
    table = long(step=list("aabbcc"), genre=list("xyxzxy"))
    content, path, refused = arrow_bytes(table, pa.ipc.new_stream), tmp_path / "log.arrow", 0
    for _ in range(150):
        damaged = bytearray(content)
        damaged[int(rng.integers(len(content)))] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            ibcb.read_log(path, one_hot=["genre"])
        except LogFormatError as error:
            refused += 1
            assert str(error).startswith("log.arrow: ")  # noqa: PT017
    assert refused > 25


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_says_so(tmp_path):
    path = parquet(rows())(tmp_path)
    path.chmod(0)
    result = ibcb_command("convert", path, tmp_path / "out.parquet")
    assert result.exit_code == 1
    assert re.fullmatch(r"error: .*log\.parquet cannot be read: no permission\. .*\n", result.stderr)


@pytest.mark.parametrize("mistake", [IndexError, KeyError])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("log.csv", "ibcb.log.disk.numbered"),
        ("log.arrow", "ibcb.io.ipc._digests"),
        ("log.npz", "ibcb.io.npz._header"),
        ("log.parquet", "ibcb.io.parquet_footer._chunk"),
        ("log.parquet", "ibcb.log.recipe.Preparation.from_json"),
    ],
)
def test_a_mistake_of_our_own_is_not_reported_as_damage(tmp_path, monkeypatch, name, place, mistake):
    def wrong(*args, **kwargs):
        raise mistake("planted")

    log = ibcb.read_log(pa.table(long()))
    ibcb.write_log(log, tmp_path / name)
    monkeypatch.setattr(place, wrong)
    with pytest.raises(mistake, match="planted"):
        ibcb.read_log(tmp_path / name)
    result = CliRunner().invoke(app, ["validate", str(tmp_path / name)])
    assert isinstance(result.exception, mistake)
