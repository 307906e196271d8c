"""The policy in force in every episode, by the whole log: what came later tells of it too.

While a log is tracked, what is believed of an episode's policy rests on that episode and those before it. Here the
models believed in the end go through the log once more with the same sites, and back (Rauch, Tung and Striebel 1965).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ibcb.numerics.arrays import Matrix
from ibcb.numerics.gaussians import Beliefs
from ibcb.tracking.look import Passed
from ibcb.tracking.motions import MOTIONS
from ibcb.tracking.preference import weights as weights_of
from ibcb.tracking.tracker import Track

#: numbers of covariances that are kept on the way, a gigabyte; beyond it policies stay as they were tracked
MOST_NUMBERS = 1 << 27
#: directions in which a state is less uncertain than this share of its largest, at unit diagonal, are taken as known
_KNOWN = 1e-12
#: models that are believed less than this are left out; not tuned
_BELIEVED = 1e-3


def smoothed(track: Track) -> list[Beliefs] | None:
    """What is believed of every episode's policy, and of the weights of the added columns, the whole log seen.

    None where what the tracker passed was not kept, or that takes too much memory.
    """
    weights = weights_of(track.models, track.seen, track.believed_place)
    members = np.flatnonzero(weights >= _BELIEVED)
    family = track.models.model_at(track.believed_place).family
    size = track.seen.families[family].mean.shape[1]
    if track.passed is None or (1 + len(members)) * len(track.passed) * size**2 > MOST_NUMBERS:
        return None
    by_model = [_by_one_model(track, track.passed, family, int(member)) for member in members]
    weights = weights[members] / weights[members].sum()
    return [_joined(each).mixed(weights) for each in zip(*by_model, strict=True)]


def _by_one_model(track: Track, passed: Sequence[Passed], family: int, member: int) -> list[Beliefs]:
    now, kind = track.seen, track.kind
    motion = MOTIONS[kind.motions.families[family].motion](kind, (now.models[family][member],))
    assert track.first is not None  # there is one as soon as an episode has been seen
    learned = kind.regularization
    belief = motion.start(now.unit / now.shared, learned.ridge(track.first), learned.total(track.first))
    size = belief.mean.shape[1]
    seen, ahead = list[Beliefs](), list[Beliefs]()
    for episode in passed:
        belief, _ = belief.given(episode.sites[family])
        seen.append(belief)
        belief = motion.move(belief, now.unit, episode.update)
        ahead.append(belief)
    backwards = [seen[-1]]
    for place in range(len(passed) - 2, -1, -1):
        A = motion.matrix(size, passed[place].update)
        backwards.append(_back(seen[place], ahead[place], backwards[-1], A))
    observed = track.d + len(track.kind.added)
    return [each.of_first(observed) for each in reversed(backwards)]


def _joined(beliefs: Sequence[Beliefs]) -> Beliefs:
    return Beliefs(
        np.concatenate([each.mean for each in beliefs]), np.concatenate([each.covariance for each in beliefs])
    )


def _back(seen: Beliefs, ahead: Beliefs, later: Beliefs, A: Matrix) -> Beliefs:
    """What is believed of a state once more is known of the next one."""
    C, P = seen.covariance[0], ahead.covariance[0]
    unit = np.sqrt(np.maximum(P.diagonal(), np.finfo(np.float64).tiny))
    values, V = np.linalg.eigh(P / unit / unit[:, None])
    kept = values > _KNOWN * values[-1]
    V = V[:, kept] / unit[:, None]
    gain = (C @ A.T @ V / values[kept]) @ V.T
    mean = seen.mean[0] + gain @ (later.mean[0] - ahead.mean[0])
    covariance = C + gain @ (later.covariance[0] - P) @ gain.T
    covariance = (covariance + covariance.T) / 2
    # Rounding, of what is known almost exactly.
    covariance.flat[:: len(covariance) + 1] = np.maximum(covariance.diagonal(), 1e-12 * C.diagonal())
    return Beliefs(mean[None], covariance[None])
