"""What surrounds a command: its files, signals, and errors in one line with an exit code that scripts can trust.

The files of a command are those that it reads, logs and models, those that it writes, and those that it has saved. What
is to be written may not be, by any name, what is read, nor become a part of a folder that is read. Both are told here
as they become known, in any order, and whoever comes second is refused before anything is written.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import typer

import ibcb
from ibcb.cli.printing import escaping_stdout, let_go, say
from ibcb.log.option import nearest

#: options of reading that may name files
_TABLES = ("items", "arm_features")


@dataclass
class _Files:
    """Of the command under way; ``format`` is the one that was named for its log."""

    inputs: list[Path] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)
    saved: list[Path] = field(default_factory=list)
    format: str | None = None

    def check(self) -> None:
        """Refuse an output that is an input."""
        for out in self.outputs:
            for given in self.inputs:
                reason = _clash(out, given, self.format)
                if reason:
                    raise typer.BadParameter(f"{out} {reason}; give another path for the output.")


_files: ContextVar[_Files] = ContextVar("files")


@contextlib.contextmanager
def files_of_a_command() -> Iterator[list[Path]]:
    """Those of one command, from here on; gives the list of what it has saved, as it grows."""
    files = _Files()
    token = _files.set(files)
    try:
        yield files.saved
    finally:
        _files.reset(token)


def reads(*paths: Path | None, format: str | None = None) -> None:
    """The command reads these; ``format``: where it was named, all files of a folder have it."""
    files = _files.get(_Files())
    files.format = format or files.format
    files.inputs += [path for path in paths if path is not None]
    files.check()


def reads_tables(options: Mapping[str, Any]) -> None:
    """The command reads the tables that options of reading name, beside the log."""
    tables = (options.get(name) for name in _TABLES)
    reads(*(Path(each) for each in tables if isinstance(each, (str, os.PathLike))), format=options.get("format"))


def saved(path: Path) -> None:
    """A file is written for good: what goes wrong from here on is told, and does not fail the command."""
    _files.get(_Files()).saved.append(path)


def check_output(out: Path | None, suffixes: Sequence[str], *inputs: Path | None) -> None:
    """Refuse, before any work is done, a place where the result could not or must not be written.

    ``suffixes``: in one of which it must end; any will do where there are none.
    """
    reads(*inputs)
    if out is None:
        return
    files = _files.get(_Files())
    files.outputs.append(out)
    files.check()
    if suffixes and out.suffix.lower() not in suffixes and not (out.exists() and not out.is_file()):
        raise ValueError(f"{out} must end in {' or '.join(suffixes)}.")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; give the path of a file.")
    folder = next(parent for parent in out.resolve().parents if parent.exists())
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{out} cannot be written: no permission in {folder}.")


def check_input(path: Path, what: str) -> None:
    """Refuse a path that does not exist, with the name next to it in its folder."""
    if not path.exists():
        there = [each.name for each in path.parent.iterdir() if each.exists()] if path.parent.is_dir() else []
        near = nearest(path.name, sorted(there))
        remedy = f"did you mean {path.with_name(near)}?" if near else f"give the path of {what}."
        raise FileNotFoundError(f"{path} does not exist; {remedy}")


def model_of(path: Path, log: Path | None = None, *, needs: str = "") -> Any:
    """A saved model; an `ibcb.IBCB` where something ``needs`` one. Says so if it was swapped with the log."""
    model, other = is_model(path), log is not None and is_model(log)
    if other and not model:
        order = " ".join({str(path): str(log), str(log): str(path)}.get(word, word) for word in sys.argv[1:])
        raise typer.BadParameter(f"{log} is a saved model and {path} a log: swapped. Write: ibcb {order}")
    check_input(path, "a saved model")
    if log is not None:
        check_input(log, "a log")
    loaded = ibcb.load_model(path)
    if needs and not isinstance(loaded, ibcb.IBCB):
        raise ValueError(
            f"{path} holds a {type(loaded).__name__}; {needs} an IBCB model, which has a policy per episode."
        )
    return loaded


def is_model(path: Path) -> bool:
    """Whether a file is a saved model, by its name."""
    return path.suffix.lower() == ".safetensors"


def _clash(out: Path, given: Path, format: str | None) -> str:
    """Why an output must not be written where an input is; empty where it may."""
    # Resolved, as it will be written: new/../log.parquet is log.parquet, though no folder is called new yet.
    target = out.resolve()
    if not given.exists():
        return ""
    from ibcb.io.formats import is_member, log_files

    if not given.is_dir():
        return _is_one_of(out, log_files(given))
    folder = next((parent for parent in target.parents if parent.exists() and parent.samefile(given)), None)
    if folder is not None and is_member(folder, target, format):
        return f"would be read as a part of the input {given}, a folder"
    return _is_one_of(out, log_files(given, format))


def _is_one_of(out: Path, files: Iterable[Path]) -> str:
    """Why a file must not be written that is one of these, by its name or by a link; empty where it is none."""
    target = out.resolve()
    same = next((each for each in files if target.exists() and each.exists() and target.samefile(each)), None)
    if same is None:
        return ""
    return "is an input" if same == out else f"is the same file as {same}, an input"


# -- errors and signals ------------------------------------------------------------------------------------------


def reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that users can cause into one line and exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        with files_of_a_command() as saved, escaping_stdout():
            try:
                with _signals_raise():
                    command(*args, **kwargs)
                sys.stdout.flush()
            except BrokenPipeError:
                # Whoever read our output has seen enough (`| head`).
                let_go(sys.stdout)
                if saved:
                    say(f"note: {saved[-1]} is saved; nobody reads what comes after it.")
                raise typer.Exit(0) from None
            except KeyboardInterrupt as interrupt:
                raise _interrupted(interrupt) from None
            except Exception as error:
                if (cause := _interrupt_behind(error)) is not None:
                    raise _interrupted(cause) from None
                if not _users_can_cause(error):
                    raise
                if saved:
                    let_go(sys.stdout)
                    say(f"note: {saved[-1]} is saved; what comes after it could not be told: {_in_words(error)}")
                    raise typer.Exit(0) from None
                say(f"error: {_in_words(error)}")
                raise typer.Exit(1) from None

    return run


class _Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, so that temporary files go and checkpoints are spoken of."""


def _interrupted(interrupt: KeyboardInterrupt) -> typer.Exit:
    say("interrupted; no half-written file is left behind.")
    return typer.Exit(143 if isinstance(interrupt, _Terminated) else 130)


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Python 3.11 turns an interrupt while a class is being made, as in an import, into a RuntimeError."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return error
        error = error.__cause__ or error.__context__
    return None


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM, and Ctrl-C where it is heeded, as exceptions, so that what they interrupt is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: object) -> None:
        raise _Terminated

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, handler)}
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    report = sys.unraisablehook

    def again(lost: sys.UnraisableHookArgs) -> None:
        """Python drops an exception in a finaliser, and imports have some: send an interrupt once more."""
        if isinstance(lost.exc_value, KeyboardInterrupt):
            number = signal.SIGTERM if isinstance(lost.exc_value, _Terminated) else signal.SIGINT
            # By another thread, a little later: raised here it would be dropped again.
            threading.Timer(0.05, _thread.interrupt_main, (number,)).start()
        else:
            report(lost)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for number, action in before.items():
            signal.signal(number, action)


def _users_can_cause(error: Exception) -> bool:
    """Any other error is a mistake of ours, to be shown in full."""
    if isinstance(error, (ImportError, MemoryError, ValueError, OSError)):
        return True
    from ibcb.engine.cluster import ClusterError
    from ibcb.numerics.printable import WrongTypeError

    return isinstance(error, (WrongTypeError, ibcb.SolverError, ClusterError))


def _in_words(error: Exception) -> str:
    """The message; of what the system says of a path, without its number."""
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}); use a smaller log, or fewer features."
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}; check the path and its permissions."
    if type(error).__name__ == "LinAlgError":
        return (
            f"the log's numbers make a system of equations unsolvable ({error}). Features may be the same for all "
            "candidates, copies of each other, or of very different sizes; ibcb validate names them."
        )
    return str(error)
