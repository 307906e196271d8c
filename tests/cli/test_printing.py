"""What is printed: JSON that never fails, names that a terminal does not act on; and files that are written over."""

import json
import os
import stat
from contextlib import redirect_stderr, redirect_stdout
from datetime import date, datetime, time
from io import StringIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import succeeds
from conftest import small_run
from hypothesis import given
from hypothesis import strategies as st

import ibcb
from ibcb.cli.printing import print_json
from ibcb.cli.running import reports_errors
from ibcb.estimators.models import checkpoint_of


def times_log(path, **columns):
    """Two candidates at each of 40 steps, which are called by their times."""
    rng = np.random.default_rng(0)
    times = np.repeat(np.datetime64("2024-01-01T00:00:00") + np.arange(40).astype("m8[h]"), 2)
    table = {"episode": np.repeat(range(4), 20), "request_id": pa.array(times), "chosen": np.tile([1, 0], 40)}
    features = columns or {"price": rng.normal(size=80), "stars": rng.normal(size=80)}
    pq.write_table(pa.table(table | features), path)
    return path


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes() | st.dates() | st.times(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def finite(value):
    """The value as JSON should have it, by other means."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    return None if isinstance(value, float) and value - value != 0 else value


def lost(value):
    """How many numbers in it are not finite."""
    if isinstance(value, (dict, list)):
        return sum(map(lost, value.values() if isinstance(value, dict) else value))
    return int(isinstance(value, float) and value - value != 0)


@given(values)
def test_whatever_is_printed_is_json(value):
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        print_json({"value": value, "notes": []})
    told = json.loads(out.getvalue())
    assert told["value"] == finite(value)
    assert [note["figures"]["values"] for note in told["notes"]] == [lost(value)] * bool(lost(value))
    assert bool(err.getvalue()) == bool(lost(value))


def test_arrays_and_times_of_numpy_are_json(capsys):
    print_json({"a": np.array([1.5, np.nan]), "t": np.array(["2024-01-01", "NaT"], "M8[D]")[0], "n": np.int64(3)})
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"a": [1.5, None], "t": "2024-01-01", "n": 3}
    assert printed.err == "note: a[1]: not finite numbers, which JSON cannot hold; they are null.\n"


def test_steps_called_by_times_are_predicted_as_json(tmp_path):
    log = times_log(tmp_path / "log.parquet")
    ibcb.save_model(ibcb.ChoiceModel(episodes=None).fit(ibcb.read_log(log)), tmp_path / "m.safetensors")
    told = json.loads(succeeds("predict", tmp_path / "m.safetensors", log, "--json").stdout)
    assert told["step_id"][:2] == ["2024-01-01T00:00:00", "2024-01-01T01:00:00"]


def test_a_log_in_which_nothing_differs_is_fitted_as_json(tmp_path):
    log = times_log(tmp_path / "log.parquet", price=np.ones(80))
    told = json.loads(succeeds("fit", log, "-o", tmp_path / "m.safetensors", "--json").stdout)
    assert told["coef"] == [0.0]


def test_a_singular_matrix_is_explained(capsys):
    @reports_errors
    def command():
        np.linalg.inv(np.zeros((2, 2)))

    with pytest.raises(Exception, match="1"):
        command()
    assert "ibcb validate names them" in capsys.readouterr().err


def test_names_do_not_act_on_the_terminal(tmp_path):
    rng, name = np.random.default_rng(0), "a\x1b[31m\nb\r\x07"
    log = times_log(tmp_path / "log.parquet", **{name: np.ones(80), "b": rng.normal(size=80)})
    model = tmp_path / "m.safetensors"
    for words in (["validate", log], ["fit", log, "-o", model], ["evaluate", model, log]):
        result = succeeds(*words)
        assert all(line.isprintable() for line in result.output.split("\n")), result.output
        assert words[0] == "evaluate" or r"a\x1b[31m" in result.output


# -- files that are written over -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_that_is_written_over_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "log.parquet"
    ibcb.write_log(small_run().log, path)
    new = stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    assert new == 0o666 & ~mask
    path.chmod(mode)
    ibcb.write_log(small_run().log, path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("sign", ["x", "é", "語"])
def test_names_as_long_as_the_file_system_takes_are_written(tmp_path, sign):
    for suffix in (".parquet", ".npz", ".arrow"):
        path = tmp_path / (sign * ((255 - len(suffix)) // len(sign.encode())) + suffix)
        ibcb.write_log(small_run().log, path)
        assert ibcb.read_log(path).n_steps == small_run().log.n_steps
    stem = sign * (243 // len(sign.encode()))
    checkpoint, other = (checkpoint_of(tmp_path / f"{name}.safetensors") for name in (stem, stem[:-1]))
    checkpoint.touch()
    assert checkpoint != other
