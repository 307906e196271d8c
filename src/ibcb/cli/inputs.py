"""The files of a command: those that it reads, logs and models, those that it writes, and those that it has saved.

What is to be written may not be, by any name, what is read, nor become a part of a folder that is read. Both are told
here as they become known, in any order, and whoever comes second is refused before anything is written.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

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
    import ibcb

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
