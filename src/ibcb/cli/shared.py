"""What all commands share: options, errors in one line, printing."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

import ibcb
from ibcb.engine.cluster import ClusterError
from ibcb.estimators.model_file import ModelFileError
from ibcb.log.steps import ReadOptions

__all__ = [
    "DeciderKind",
    "ExpertKind",
    "Json",
    "Row",
    "SolverName",
    "above_zero",
    "above_zero_or_auto",
    "at_least_zero",
    "check_output",
    "cluster",
    "prepared",
    "print_json",
    "print_table",
    "program",
    "reads_logs",
    "reports_errors",
    "say",
    "size",
]


def above_zero(value: float | None) -> float | None:
    """Refuse an option that is not above 0."""
    if value is not None and not (value > 0 and np.isfinite(value)):
        raise typer.BadParameter(f"{value:g} is not above 0.")
    return value


def above_zero_or_auto(value: str) -> str:
    """Refuse an option that is neither a number above 0 nor "auto"."""
    try:
        if value != "auto":
            above_zero(float(value))
    except ValueError:
        raise typer.BadParameter(f"{value} is neither a number nor 'auto'.") from None
    return value


def at_least_zero(value: float | None) -> float | None:
    """Refuse an option below 0."""
    if value is not None and not (value >= 0 and np.isfinite(value)):
        raise typer.BadParameter(f"{value:g} is not 0 or above.")
    return value


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ExpertKind = Literal["sbucb", "sbts"]
DeciderKind = Literal["auto", "sbucb", "sbts", "topk", "stationary", "other"]
SolverName = Literal["auto", "hard", "soft", "robust", "paper"]
Row = dict[str, Any]


def reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that users can cause into one line and exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with _sigterm_raises():
                command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output has seen enough (`| head`). Python must not flush the rest at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt as interrupt:
            say("interrupted; nothing half-written is left behind.")
            raise typer.Exit(143 if isinstance(interrupt, _Terminated) else 130) from None
        except MemoryError as error:
            say(f"error: not enough memory ({error}); give a smaller log, or fewer features.")
            raise typer.Exit(1) from None
        except (ImportError, ValueError, TypeError, OSError, ibcb.SolverError, ModelFileError, ClusterError) as error:
            say(f"error: {_in_words(error)}")
            raise typer.Exit(1) from None

    return run


class _Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, so that temporary files go and checkpoints are spoken of."""


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: object) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _in_words(error: Exception) -> str:
    """The message; of what the system says of a path, without its number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}; check the path and its permissions."
    return str(error)


def reads_logs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how to read a log; it gets them as one argument, ``reading``."""
    own = inspect.signature(command, eval_str=True)
    plain = [parameter for parameter in own.parameters.values() if parameter.name != "reading"]
    names = list(_READING)

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in names}
        command(*args, reading=_reading(given), **kwargs)

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _READING.items()
    ]
    json_last = [parameter for parameter in plain if parameter.name == "as_json"]
    first = [parameter for parameter in plain if parameter.name != "as_json"]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*first, *options, *json_last)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


_READING: dict[str, tuple[Any, Any]] = {
    "column": (
        Annotated[
            list[str] | None,
            typer.Option(help="Which column is the episode, step, chosen, timestamp; repeatable.", metavar="ROLE=NAME"),
        ],
        None,
    ),
    "features": (
        Annotated[str | None, typer.Option(help="The feature columns; all that are left.", metavar="A,B,C")],
        None,
    ),
    "drop": (
        Annotated[list[str] | None, typer.Option(help="A column that is no feature; repeatable.", metavar="NAME")],
        None,
    ),
    "one_hot": (
        Annotated[
            list[str] | None, typer.Option(help="A column of text to encode, or 'all'; repeatable.", metavar="NAME")
        ],
        None,
    ),
    "missing": (
        Annotated[Literal["refuse", "mean", "zero"], typer.Option(help="What to do about missing numbers.")],
        "refuse",
    ),
    "episode_every": (Annotated[str | None, typer.Option(help="Cut episodes by time: 1d, 6h.", metavar="TIME")], None),
    "episode_size": (Annotated[int | None, typer.Option(help="Cut episodes by number of steps.", min=1)], None),
    "warmup": (Annotated[int | None, typer.Option(help="Leading episodes that were random.", min=0)], None),
    "sort": (Annotated[bool, typer.Option("--sort", help="Sort by episode, time, step; in memory.")], False),
    "delimiter": (Annotated[str | None, typer.Option(help="Of CSV; found in the header.")], None),
    "decimal": (Annotated[str, typer.Option(help="Decimal point of CSV.")], "."),
}


def _reading(given: dict[str, Any]) -> dict[str, Any]:
    """The options as `ibcb.read_log` takes them."""
    columns = {}
    for pair in given.pop("column") or ():
        role, equals, name = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--column {pair}: say ROLE=NAME, such as step=request_id.")
        columns[role] = name
    features, one_hot = given["features"], given["one_hot"] or []
    options = given | {
        "columns": columns,
        "features": None if features is None else [name.strip() for name in features.split(",")],
        "drop": given["drop"] or [],
        "one_hot": True if one_hot == ["all"] else one_hot,
    }
    try:
        ReadOptions(**options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return options


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """A client of the Dask cluster at an address; None without one."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--scheduler needs Dask; install it: pip install 'ibcb[dask]'.") from None
    try:
        client: Any = Client(address, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise ConnectionError(f"no scheduler answers at {address} ({error}); is it running?") from None
    try:
        yield client
    finally:
        client.close(timeout=5)


def prepared(model: Any, reading: dict[str, Any]) -> dict[str, Any]:
    """Options that make the features of new data as for the log that the model was fitted on."""
    if model.preparation_ is not None:
        return reading | {"preparation": model.preparation_}
    if model.feature_names_in_ is not None and reading.get("features") is None:
        return reading | {"features": list(model.feature_names_in_)}
    return reading


# -- printing ------------------------------------------------------------------------------------------------------


def print_table(rows: list[Row], columns: dict[str, str]) -> None:
    """Figures right-aligned under their headings, words left-aligned."""
    wordy = {name for name in columns if all(isinstance(row[name], str) for row in rows)}
    texts = [list(columns.values()), *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for line in texts:
        cells = zip(columns, line, widths, strict=True)
        padded = (text.ljust(width) if name in wordy else text.rjust(width) for name, text, width in cells)
        print("   ".join(padded).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if 0 < abs(value) < 1e-3 else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3f}"


def size(log: ibcb.BehaviorLog) -> str:
    """A log's size in words."""
    return f"{len(log)} episodes, {log.n_steps} steps, {log.n_rows} candidate rows, {log.n_features} features"


def program() -> str:
    """How this program was called, for commands to copy."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "ibcb" and called.parent != Path(".") and not called.is_absolute() else "ibcb"


def check_output(out: Path, suffixes: Sequence[str], *inputs: Path) -> None:
    """Refuse, before any work is done, a place where the result could not or must not be written."""
    if any(out.exists() and given.exists() and out.samefile(given) for given in inputs):
        raise ValueError(f"{out} is an input; give another path for the output.")
    if out.suffix.lower() not in suffixes and not (out.exists() and not out.is_file()):
        raise ValueError(f"{out} must end in {' or '.join(suffixes)}.")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; give the path of a file.")
    folder = next(parent for parent in out.resolve().parents if parent.exists())
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{out} cannot be written: no permission in {folder}.")


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    print(json.dumps(value, allow_nan=False))


def say(message: str) -> None:
    """A message on stderr, on one line: names in it may hold line breaks, or signs that a terminal acts on."""
    print("".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in message), file=sys.stderr)
