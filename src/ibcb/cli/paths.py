"""What a verb is given to read: a log that is there, and a saved model, each in its place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from ibcb.log.option import nearest

__all__ = ["check_input", "is_model", "model_of"]


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
