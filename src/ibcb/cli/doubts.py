"""What is known of a log goes with what is made of it; with --strict nothing is made of a log in doubt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

import ibcb
from ibcb.cli.printing import say

if TYPE_CHECKING:
    from ibcb.log.disk import DiskLog
    from ibcb.log.notes import Note

__all__ = ["Strict", "known_of", "refuse_doubts", "told_once"]

Strict = Annotated[bool, typer.Option("--strict", help="Warnings are errors: exit 1, and nothing is saved.")]

#: findings of `ibcb.validate` about which a fitted model may have a note of its own
_OF_MODELS = {"constant-within-steps": "undetermined-features", "collinear": "undetermined-features"}


def known_of(log: ibcb.BehaviorLog | DiskLog) -> tuple[Note, ...]:
    """How a log was read, and the warnings of `ibcb.validate`, which goes through it once.

    Its errors are among them: if a fit is possible all the same, it is in doubt.
    """
    found = ibcb.validate(log)
    # The notes of a log on disk are complete when it has been gone through.
    return (*log.notes, *(note for note in found.notes if note.severity == "warning"))


def told_once(known: Iterable[Note], model: ibcb.IBCB) -> list[Note]:
    """What is known of a log without what the model says itself, from its own evidence."""
    said = {note.code for note in model.notes_}
    return [note for note in known if _OF_MODELS.get(note.code) not in said]


def refuse_doubts(notes: Iterable[Note], strict: bool) -> None:
    """With --strict, exit with code 1 where a note is a warning, and show each as an error."""
    doubts = [note for note in notes if strict and note.severity == "warning"]
    for note in doubts:
        say(f"error: {note}")
    if doubts:
        raise typer.Exit(1)
