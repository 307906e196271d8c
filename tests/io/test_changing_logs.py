"""A log that somebody writes while it is read: all passes meet the rows of the first, or it is refused."""

import gzip
import json
import os

import pyarrow as pa
import pytest
from conftest import small_run

import ibcb
from ibcb.log.fingerprint import log_fingerprint

LOG = small_run().log[:3]
#: formats to whose files lines may be added
LINES = ("csv", "csv.gz", "jsonl", "vw", "dsjson")


def written(path):
    """The log in the format that the name tells."""
    if path.name.endswith(".jsonl"):
        ibcb.write_log(LOG, path.with_suffix(".arrow"))
        table = pa.ipc.open_file(path.with_suffix(".arrow")).read_all()
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif path.name.endswith(".gz"):
        ibcb.write_log(LOG, path.with_suffix(""))
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    else:
        ibcb.write_log(LOG, path)


def opened(path):
    """The log on disk, once gone through, and its name."""
    log = ibcb.open_log(path, **({"episode_size": 120} if path.suffix in (".vw", ".dsjson") else {}))
    return log, log_fingerprint(log)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def gone(path):
    path.unlink()


def another(path):
    """In its place by name, as careful writers do."""
    path.with_name("new").write_bytes(path.read_bytes())
    os.replace(path.with_name("new"), path)


def over(path):
    """In place, with as many bytes and more."""
    path.write_bytes(path.read_bytes()[::-1] * 2)


@pytest.mark.parametrize("name", [*LINES, "parquet", "arrow", "npz"])
@pytest.mark.parametrize(
    "change, words", [(cut, "was cut from"), (gone, "removed"), (another, "another file"), (over, "")]
)
def test_another_file_in_its_place_is_refused(tmp_path, name, change, words):
    path = tmp_path / f"log.{name}"
    written(path)
    log, _ = opened(path)
    change(path)
    with pytest.raises(
        ibcb.LogFormatError, match=rf"{path.name}: it changed while it was read: .*{words}.*run it again"
    ):
        log_fingerprint(log)


@pytest.mark.parametrize("name", LINES)
def test_what_is_added_is_left_out_and_told(tmp_path, name):
    path = tmp_path / f"log.{name}"
    written(path)
    log, fingerprint = opened(path)
    assert not [note for note in log.notes if note.code == "log-grew"]
    lines = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    more = lines[-400:] if name in ("jsonl", "dsjson") else b"\n".join(lines.splitlines()[-5:]) + b"\n"
    with path.open("ab") as file:
        file.write(gzip.compress(more) if name.endswith("gz") else more)
    assert log_fingerprint(log) == fingerprint
    assert log_fingerprint(log.read()) == fingerprint
    (note,) = [note for note in log.notes if note.code == "log-grew"]
    assert f"{path.name} has grown by" in note.text


def test_files_that_come_into_a_folder_are_left_out_and_told(tmp_path):
    def more(number):
        rows = (f"{number},{number}{row // 2},{row % 2},{row * 7 % 5}\n" for row in range(40))
        (tmp_path / f"{number}.csv").write_text("".join(["episode,step,chosen,price\n", *rows]))

    more(1)
    more(2)
    log = ibcb.open_log(tmp_path)
    fingerprint = log_fingerprint(log)
    more(3)
    assert log_fingerprint(log) == fingerprint
    assert [note.text for note in log.notes if note.code == "log-grew"] == [
        "1 file came into the folder since it was opened, such as '3.csv'; left out."
    ]
    (tmp_path / "1.csv").unlink()
    with pytest.raises(ibcb.LogFormatError, match=r"1\.csv: it changed while it was read"):
        log_fingerprint(log)


def test_what_changes_at_the_end_of_a_pass_was_read_whole_by_name_only(tmp_path):
    for change, refused in ((another, False), (gone, False), (cut, True)):
        path = tmp_path / "log.csv"
        written(path)
        log, _ = opened(path)
        parts = log.parts()
        first = next(parts)
        change(path)
        if refused:
            with pytest.raises(ibcb.LogFormatError, match="it was cut from"):
                list(parts)
        else:
            assert sum(part.n_steps for _, part in (first, *parts)) == LOG.n_steps
