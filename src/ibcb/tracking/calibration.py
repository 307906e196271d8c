"""What is predicted of an episode's choices, and how many of them are made at random.

A choice rule averaged over a belief gives probabilities p. With the share e of choices at random, what is predicted is

    (1 - e) p  +  e / M.

The share is told by the episodes before, never by the one predicted: it is weighed on a grid by the likelihood of all
choices so far. Of a decider that explores at random it is epsilon, which may fall; see `Exploration`. Of others it
stands for wrong records, and for what the belief is too sure of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline, PPoly

from ibcb.deciders import FIRST_STRAY, RANDOM_SHARES, Columns, Kind, Share
from ibcb.numerics.arrays import Matrix, Stored, Vector
from ibcb.numerics.gaussians import Beliefs

#: deviation of log e before anything is seen, about `FIRST_STRAY`; not tuned: a few hundred choices tell more
_LOG_SHARE = 2.0
#: how epsilon may fall: as a power of the number of the episode, or by a factor with every episode
_POWERS, _FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0), (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
#: first values of epsilon that are weighed: closer to each other than any log tells; not tuned
_FIRSTS = np.geomspace(RANDOM_SHARES[0], RANDOM_SHARES[-1], 256)
#: the cubic splines through 1 at one of `RANDOM_SHARES` and 0 at the others, of which any other is a sum
_SPLINES = CubicSpline(np.log(RANDOM_SHARES), np.eye(len(RANDOM_SHARES))).c
#: log-likelihood that a falling epsilon has to add; not tuned
_FALLS = 3.0


def probable(kind: Kind, columns: Columns, believed: Beliefs, draws: int, *, scale: float = 0.0) -> Vector:
    """Probability of every candidate by what is believed of the policy, without choices at random. Shape (rows,)."""
    return kind.propensities(columns, believed.widened(kind.doubt), draws, scale=scale)


def with_share(p: Vector, counts: NDArray[np.int64], share: float) -> Vector:
    """Probabilities of candidates, some choices being made at random; ``counts``: candidates of each step."""
    return (1 - share) * p + share * np.repeat(1.0 / counts, counts)


def no_evidence() -> Vector:
    """For each of `RANDOM_SHARES`, before anything is seen: the logarithm of the prior."""
    prior: Vector = -0.5 * ((np.log(RANDOM_SHARES) - np.log(FIRST_STRAY)) / _LOG_SHARE) ** 2
    return prior


def share_of(kind: Kind, evidence: Vector) -> float:
    """What the share of choices at random is expected to be."""
    allowed = np.where(kind.most_random >= RANDOM_SHARES, evidence, -np.inf)
    weights = np.exp(allowed - allowed.max())
    return float(weights @ RANDOM_SHARES / weights.sum())


@dataclass(frozen=True)
class Exploration:
    """What is known of how often a decider chooses at random, constant or falling; never changed, `after` gives the
    next one.

    Attributes
    ----------
    episodes : int
        How many so far.
    evidence : ndarray of shape (shapes, firsts)
        For each way to fall, and each share in the first episode.
    """

    episodes: int
    evidence: Annotated[Matrix, Stored("shapes firsts")]

    @classmethod
    def begin(cls) -> Exploration:
        """Before anything is seen."""
        evidence = np.zeros((1 + len(_POWERS) + len(_FACTORS), len(_FIRSTS)))
        # All that fall share what is believed of falling at all.
        evidence[1:] -= _FALLS
        return cls(0, evidence)

    def after(self, likelihoods: Vector) -> Exploration:
        """One more episode, by the log-likelihood of its choices for each of `RANDOM_SHARES`."""
        told = PPoly(_SPLINES @ likelihoods, np.log(RANDOM_SHARES))(np.log(_weighed(self.episodes)))
        return Exploration(self.episodes + 1, self.evidence + told)

    def share(self, episode: int) -> Share:
        """The share in an episode counted from 0, seen or still to come."""
        weights = np.exp(self.evidence - self.evidence.max())
        weights /= weights.sum()
        shares = _weighed(episode)
        mean = float(np.sum(weights * shares))
        return Share(mean, math.sqrt(max(0.0, float(np.sum(weights * shares**2)) - mean**2)))


@lru_cache(maxsize=4)
def _weighed(episode: int) -> Matrix:
    """The shares in an episode that are weighed against each other."""
    falls = [1.0, *((episode + 1.0) ** -power for power in _POWERS), *(factor**episode for factor in _FACTORS)]
    shares: Matrix = np.maximum(np.outer(falls, _FIRSTS), RANDOM_SHARES[0])
    # Whoever asks again gets the same array.
    shares.flags.writeable = False
    return shares
