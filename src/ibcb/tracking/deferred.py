"""Foresight put off until somebody asks for it: fitting stays as fast as it is without."""

from __future__ import annotations

from typing import NamedTuple

from ibcb.engine import MemoryRows, Rows, one_blas_thread
from ibcb.inverse.constraints import Experience
from ibcb.numerics.ridge import Ridge
from ibcb.tracking.outlook import Foresight

__all__ = ["Deferred"]


class _Lesson(NamedTuple):
    """An episode that waits; without rows one that the policy did not choose."""

    rows: Rows | None
    before: Ridge
    lesson: Experience


class Deferred:
    """Collects episodes for a `Foresight`, which learns from them when it is wanted.

    Episodes in memory wait by reference. Those on disk or on a cluster are learned from at once: beside reading them it
    costs little, and later they may be gone.

    Attributes
    ----------
    stored : int
        Episodes so far, the warm-up's counted.
    """

    def __init__(self, known: Foresight) -> None:
        self._known, self._waiting = known, list[_Lesson]()
        self.stored = known.stored

    def copy(self) -> Deferred:
        """A twin that can go its own way."""
        twin = Deferred(self._known.copy())
        twin._waiting, twin.stored = self._waiting.copy(), self.stored
        return twin

    def add(self, place: int, rows: Rows | None, before: Ridge, lesson: Experience) -> None:
        """One more episode, and what the choices before it left behind; ``rows`` None: the policy did not choose it.

        One that was seen in an earlier attempt, with another solver, is passed over.
        """
        if place != self.stored:
            return
        self._waiting.append(_Lesson(rows, before, lesson))
        self.stored += 1
        if not (rows is None or isinstance(rows, MemoryRows)):
            self.known()

    def known(self) -> Foresight:
        """What there is to know."""
        if self._waiting:
            # The same bits whenever it is done.
            with one_blas_thread():
                for rows, before, lesson in self._waiting:
                    if rows is None:
                        self._known.skip(lesson)
                    else:
                        self._known.add(rows, before, lesson)
            self._waiting = []
        return self._known
