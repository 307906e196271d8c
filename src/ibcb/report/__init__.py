"""The report: one self-contained page that shows how a decider evolved, and whether to believe it.

>>> import ibcb, ibcb.report, tempfile, pathlib
>>> run = ibcb.simulate(n_episodes=4, batch_size=50, seed=0)
>>> model = ibcb.IBCB(l2=0.3).fit(run.log)
>>> page = pathlib.Path(tempfile.mkdtemp()) / "report.html"
>>> ibcb.report.write_report(model, run.log, page).verdict.headline
'The log supports this model in part.'
>>> page.exists()
True
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ibcb.estimators.ibcb import IBCB
from ibcb.io.files import atomic
from ibcb.log import Log
from ibcb.log.notes import Note
from ibcb.report.calibrating import Calibration, calibration
from ibcb.report.facts import Facts, facts
from ibcb.report.rendering import render

__all__ = ["Calibration", "Facts", "calibration", "facts", "render", "write_report"]


def write_report(
    model: IBCB,
    log: Log,
    path: str | os.PathLike[str],
    *,
    steps: bool = True,
    title: str = "",
    notes: Iterable[Note] = (),
) -> Facts:
    """Write the page of a model and the log that it was fitted to; returns what it says of the model.

    The file appears whole or not at all, needs no network, and is the same for the same model and log. A log on disk
    (`ibcb.open_log`) is gone through part by part, once.

    Parameters
    ----------
    model : IBCB
    log : BehaviorLog, or what `ibcb.open_log` gave
    path : path
        Of the HTML file.
    steps : bool
        False: leave contexts, ids and times of steps out, for sharing.
    title : str
        By default made of the log's name.
    notes : iterable of Note
        What else is known of the log, such as ``ibcb.validate(log).notes``. Its warnings, and those of ``log.notes``,
        come first on the page.
    """
    said = facts(model, log, steps=steps, title=title)
    write_page(said, path, (*log.notes, *notes))
    return said


def write_page(said: Facts, path: str | os.PathLike[str], notes: Iterable[Note] = ()) -> None:
    """Write the page of what `facts` gave; warnings among ``notes`` come first on it."""
    doubts = dict.fromkeys(note.text for note in notes if note.severity == "warning")
    shown = Facts(**(vars(said) | {"notes": (*(text[:1].upper() + text[1:] for text in doubts), *said.notes)}))
    # Lone surrogates, which a name in memory may hold, have no place in UTF-8.
    page = render(shown).encode("utf-8", "replace")
    with atomic(path) as temporary:
        temporary.write_bytes(page)
