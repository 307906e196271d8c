"""A log as its decider lived it: each episode with what had been chosen before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.log.behavior_log import BehaviorLog, dense_pieces
from ibcb.log.disk import DiskLog
from ibcb.numerics.ridge import gram

__all__ = ["EpisodePart", "history"]


@dataclass(frozen=True, eq=False)
class EpisodePart:
    """An episode, or a part of one, and the choices before its episode.

    Attributes
    ----------
    number : int
        Of the episode; negative in the warm-up.
    first : int
        Step of the episode with which the part begins.
    part : BehaviorLog
        Its steps, as a log of one episode.
    gram : ndarray of shape (d, d)
        Phi = S'S of the contexts S chosen before the episode; the same for all of its parts, which were chosen before
        the update.
    total : ndarray of shape (d,)
        Sum of the contexts chosen before the episode.
    own_gram : ndarray of shape (d, d)
        S'S of the contexts chosen in this part.
    """

    number: int
    first: int
    part: BehaviorLog
    gram: NDArray[np.float64]
    total: NDArray[np.float64]
    own_gram: NDArray[np.float64]

    @property
    def by_policy(self) -> bool:
        """Whether the policy made the choices; False in the warm-up."""
        return self.number >= 0


def history(log: BehaviorLog | DiskLog, prior_gram: ArrayLike | None = None) -> Iterator[EpisodePart]:
    """Every stored episode in order, the warm-up first, with the Gram matrix and the sum of the contexts chosen before.

    An episode in memory comes whole. One on disk comes in the parts in which it is read, and only one of them is held.

    Parameters
    ----------
    log : BehaviorLog, or what `ibcb.open_log` gave
    prior_gram : array of shape (d, d), optional
        S'S of the contexts chosen before the log begins. Their sum is not known, and does not count in ``total``.

    Examples
    --------
    >>> import ibcb
    >>> log = ibcb.simulate(n_episodes=3, batch_size=50, warmup=20, seed=0).log
    >>> [(entry.number, entry.part.n_steps, bool(entry.gram.any())) for entry in history(log)]
    [(-1, 20, False), (0, 50, True), (1, 50, True), (2, 50, True)]
    """
    phi: Any = None
    total: Any = 0.0
    for number, parts in groupby(_numbered(log), key=itemgetter(0)):
        first, own, own_total = 0, 0.0, 0.0
        for _, part in parts:
            if phi is None:
                d = part.n_features
                phi = np.zeros((d, d)) if prior_gram is None else np.array(prior_gram, dtype=np.float64)
                total = np.zeros(d)
            S = part.contexts.take(part.chosen_rows, axis=0)
            part_gram = gram(S)
            yield EpisodePart(number, first, part, phi, total, part_gram)
            own, own_total = _sum(own, part_gram), _sum(own_total, _column_sums(S))
            first += part.n_steps
        # After the episode: its own choices were made before this update.
        phi, total = _sum(phi, own), _sum(total, own_total)


def _numbered(log: BehaviorLog | DiskLog) -> Iterator[tuple[int, BehaviorLog]]:
    if isinstance(log, DiskLog):
        for number, part in log.parts():
            for piece in dense_pieces(part):
                yield number, piece
    else:
        for number, (_, episode) in enumerate(log.episodes(), start=-log.warmup):
            for piece in dense_pieces(episode):
                yield number, piece


# An overflow is reported by `ibcb.numerics.ridge.ridge`, with its remedy.
@np.errstate(over="ignore", invalid="ignore")
def _sum(one: Any, other: Any) -> Any:
    return one + other


@np.errstate(over="ignore", invalid="ignore")
def _column_sums(S: NDArray[Any]) -> NDArray[np.float64]:
    sums: NDArray[np.float64] = S.sum(axis=0, dtype=np.float64)
    return sums
