"""What is known of a log goes with what is made of it; with --strict nothing is made of a log in doubt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

import ibcb
from ibcb.cli.printing import say

if TYPE_CHECKING:
    from ibcb.log import Log
    from ibcb.log.notes import Note
    from ibcb.report.facts import Validating

#: findings of `ibcb.validate` that are repeated though they are no warnings: units matter to an l2 that is a number
_REPEATED = ("scales",)
#: findings of `ibcb.validate` that say of features what a model's note on undetermined ones says
_UNDETERMINED = ("constant-within-steps", "collinear")


def known_of(log: Log, scanning: Validating, model: ibcb.IBCB) -> list[Note]:
    """How a log was read, and the warnings of `ibcb.validate`, once it has been gone through.

    Its errors are among them: if a fit is possible all the same, it is in doubt. Without what the model says itself,
    from its own evidence.
    """
    validation = scanning.of(log)
    own = next((note for note in model.notes_ if note.code == "undetermined-features"), None)
    named = set() if own is None else _features(own)
    # The notes of a log on disk are complete when it has been gone through.
    told = (note for note in validation.notes if note.severity == "warning" or note.code in _REPEATED)
    return [note for note in (*log.notes, *told) if note.code not in _UNDETERMINED or not _features(note) <= named]


def _features(note: Note) -> set[float | int | str]:
    features = note.figures.get("features", ())
    return set(features) if isinstance(features, tuple) else set()


def refuse_doubts(notes: Iterable[Note], strict: bool) -> None:
    """With --strict, exit with code 1 where a note is a warning, and show each as an error."""
    doubts = [note for note in notes if strict and note.severity == "warning"]
    for note in doubts:
        say(f"error: {note}")
    if doubts:
        raise typer.Exit(1)
