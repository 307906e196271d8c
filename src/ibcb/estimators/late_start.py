"""Whether the first episode of a log looks as if there had been others before it."""

from __future__ import annotations

import numpy as np

from ibcb.deciders import Kind
from ibcb.engine import Block, Heading
from ibcb.estimators.settings import Settings
from ibcb.log import BehaviorLog
from ibcb.log.behavior_log import DENSE_NUMBERS
from ibcb.log.notes import Note
from ibcb.log.validation.first_episode import missing_past
from ibcb.numerics.contexts import dense


def late_start(heading: Heading, kind: Kind, settings: Settings) -> tuple[Note, ...]:
    """A note where it does, in whichever units the decider had its features."""
    if settings.prior_gram is not None or heading.warmup or not kind.learns:
        return ()
    first, notes = _dense_steps(heading.first), list[Note]()
    # One that knows nothing in some units may know nothing.
    for frame in (None, *heading.moments.frames()):
        missing = missing_past(first, bonus=kind.per_unit is not None, frame=frame)
        if missing is None:
            return ()
        notes.append(missing)
    return tuple(notes[:1])


def _dense_steps(block: Block) -> BehaviorLog:
    """The first steps of a block as a log with dense contexts."""
    most = int(np.searchsorted(block.offsets, DENSE_NUMBERS // block.contexts.shape[1], side="right")) - 1
    block = block.first(max(1, most))
    steps = len(block.chosen_rows)
    return BehaviorLog(dense(block.contexts), block.offsets, block.chosen_rows - block.offsets[:-1], [0, steps])
