"""The probability of every candidate of a log: its choice rule averaged over what is believed of the policy.

Of the log that was tracked, each episode's by the policy in force in it; it is gone through again, so that nothing of
it has to be kept. Of other candidates, by the policy to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.engine import Block, episodes, one_blas_thread
from ibcb.inverse.constraints import Experience, experienced
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.numerics.gaussians import Beliefs
from ibcb.numerics.ridge import Chosen, Ridge
from ibcb.tracking.calibration import probable, with_share
from ibcb.tracking.look import Tracked
from ibcb.tracking.smoothing import Passed, smoothed
from ibcb.tracking.tracker import Track, update_after

__all__ = ["propensities_next", "propensities_of_log"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: draws from a belief: probabilities are exact to about .01 (tests/numerics/test_averages.py)
_DRAWS = 512


class _Known(NamedTuple):
    """What is known of an episode's choices: a belief about its policy, and the share of them made at random.

    ``belief`` is None where nothing is known: then all candidates are alike.
    """

    belief: Beliefs | None
    share: float


def propensities_of_log(
    log: BehaviorLog | DiskLog, track: Track, prior_gram: Matrix, *, ahead: bool, scale: float
) -> Iterator[Vector]:
    """Of the log that was tracked, an array for every stored episode, one entry per row; uniform in the warm-up.

    Parameters
    ----------
    log : BehaviorLog or DiskLog
    track : Track
        After its last episode.
    prior_gram : ndarray of shape (d, d)
        Of the contexts chosen before the log.
    ahead : bool
        Each episode foreseen from those before it, instead of by all of the log.
    scale : float
        Of scores, see `ibcb.deciders.Kind.propensities`.
    """
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        yield from _of_episodes(log, track, _retraced(log, track, prior_gram, ahead), prior_gram, scale)


def propensities_next(track: Track, log: BehaviorLog, *, scale: float) -> Vector:
    """Of candidates that the policy right after the tracked log chooses from, one entry per row."""
    before = track.kind.regularization.ridge(track.chosen)
    known = _Known(None, 0.0)
    if track.now is not None and before.phi.any():
        known = _Known(track.next_belief, track.random_share(len(track.predicted)))
    block = Block(log.contexts, log.chosen_rows, log.step_offsets, log.candidates_per_step, 0, 0)
    with one_blas_thread():
        return _propensities(block, track=track, before=before, known=known, scale=scale)


def _retraced(log: BehaviorLog | DiskLog, track: Track, prior_gram: Matrix, ahead: bool) -> list[_Known]:
    """What is known of every episode that the policy chose."""
    kind, now = track.kind, Track.begin(track.kind, prior_gram)
    found, passed, learned = list[_Known](), list[Passed](), list[bool]()
    begun: Tracked | None = None
    for by_policy, rows in episodes(log):
        before = kind.regularization.ridge(now.chosen)
        lesson = Experience.join(list(rows.map(experienced)))
        if not by_policy:
            now = now.after(None, before, lesson)
            continue
        number = len(now.predicted)
        knows = now.now is not None and bool(before.phi.any())
        found.append(_Known(now.next_belief if knows else None, now.random_share(number)))
        look = now.look(rows, before)
        begun = look.now if begun is None else begun
        passed.append(Passed(look.seen.sites, update_after(number, before, lesson)))
        learned.append(bool(before.phi.any()))
        now = now.given(look, before, lesson)
        if not ahead:
            seen = now.believed_of(now.seen, now.seen.last, now.seen.best)
            found[-1] = _Known(seen, 0.0)
    if ahead or begun is None:
        return found
    beliefs: Sequence[Beliefs | None] = smoothed(now, begun, passed) or [each.belief for each in found]
    return [
        _Known(belief if knows else None, now.random_share(number))
        for number, (belief, knows) in enumerate(zip(beliefs, learned, strict=True))
    ]


def _of_episodes(
    log: BehaviorLog | DiskLog, track: Track, known: list[_Known], prior_gram: Matrix, scale: float
) -> Iterator[Vector]:
    chosen, number, kind = Chosen.before_the_log(prior_gram), 0, track.kind
    for by_policy, rows in episodes(log):
        own = known[number] if by_policy else _Known(None, 0.0)
        kernel = partial(
            _propensities,
            track=track,
            before=kind.regularization.ridge(chosen),
            known=own,
            scale=scale,
        )
        yield np.concatenate(list(rows.map(kernel)))
        lesson = Experience.join(list(rows.map(experienced)))
        chosen = chosen.and_then(len(lesson.chosen), lesson.total, lesson.phi)
        number += by_policy


def _propensities(block: Block, *, track: Track, before: Ridge, known: _Known, scale: float) -> Vector:
    counts = np.diff(block.offsets)
    if known.belief is None:
        return np.repeat(1.0 / counts, counts)
    p = probable(track.kind, block, before, known.belief, _DRAWS, scale=scale)
    return with_share(p, counts, known.share)
