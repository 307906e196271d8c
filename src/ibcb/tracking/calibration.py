"""How far propensities are to be believed: two numbers, learned from how earlier episodes came out.

A rule averaged over a belief gives probabilities p. What is foreseen of an episode is

    (1 - e) p^k / sum(p^k)  +  e / M,

where k sharpens or dulls what the belief says, and e is the share of choices at random. Both are told by the episodes
before, never by the one foreseen: k and e are weighed on a grid by the likelihood of all choices so far. Of a decider
that explores at random e is its epsilon, which may decay; see `exploration`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import FIRST_STRAY, RANDOM_SHARES, Kind

__all__ = ["Calibration", "Share", "calibrated", "calibration_of", "exploration", "grid_likelihood", "no_evidence"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]

#: the k that are tried; not tuned
SHARPNESS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
#: deviations of log k and of log e before anything is seen, about 1 and `FIRST_STRAY`; not tuned: a few hundred choices
#: tell more
_LOG_SHARPNESS, _LOG_SHARE = 0.5, 2.0
#: how epsilon may fall: as a power of the number of the episode, or by a factor with every episode
_POWERS, _FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0), (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
#: log-likelihood that a falling epsilon has to add; not tuned
_FALLS = 3.0


class Calibration(NamedTuple):
    """k and e."""

    sharpness: float
    stray: float


class Share(NamedTuple):
    """The share of choices at random in every episode, and in the one to come; and the deviation of each."""

    shares: Vector
    deviations: Vector


def no_evidence() -> Matrix:
    """Of the grid, before anything is seen: the logarithm of the prior. Shape (sharpness, shares)."""
    k, e = np.log(SHARPNESS), np.log(RANDOM_SHARES)
    return -0.5 * ((k / _LOG_SHARPNESS) ** 2)[:, None] - 0.5 * ((e - np.log(FIRST_STRAY)) / _LOG_SHARE) ** 2


def grid_likelihood(p: Vector, counts: Counts, chosen_rows: Counts) -> Matrix:
    """Log-likelihood of choices for every k and e, given the probabilities p of all candidates."""
    chance, shares = 1.0 / counts, np.array(RANDOM_SHARES)
    found = np.empty((len(SHARPNESS), len(shares)))
    for place, k in enumerate(SHARPNESS):
        meant = _sharpened(p, counts, k)[chosen_rows]
        found[place] = np.log(np.outer(meant, 1 - shares) + np.outer(chance, shares)).sum(axis=0)
    return found


def calibration_of(kind: Kind, evidence: Matrix) -> Calibration:
    """The likeliest k, and what e is expected to be with it."""
    allowed = np.where(np.array(RANDOM_SHARES) <= kind.most_random, evidence, -np.inf)
    best = int(np.argmax(allowed.max(axis=1)))
    weights = np.exp(allowed[best] - allowed[best].max())
    return Calibration(SHARPNESS[best], float(weights @ np.array(RANDOM_SHARES) / weights.sum()))


def calibrated(p: Vector, counts: Counts, how: Calibration) -> Vector:
    """Probabilities with k and e."""
    found: Vector = (1 - how.stray) * _sharpened(p, counts, how.sharpness) + how.stray * np.repeat(1.0 / counts, counts)
    return found


def exploration(likelihoods: Matrix) -> Share:
    """How often a decider chose at random in each episode, constant or falling.

    Parameters
    ----------
    likelihoods : ndarray of shape (N, S)
        Of each episode's choices, for each of `RANDOM_SHARES`.

    Returns
    -------
    share : Share
        N + 1 entries each, the last for the episode to come.
    """
    episodes = np.arange(1, len(likelihoods) + 2, dtype=np.float64)
    shapes = [np.ones(len(episodes))]
    shapes += [episodes**-power for power in _POWERS] + [factor ** (episodes - 1) for factor in _FACTORS]
    known, least = np.log(RANDOM_SHARES), RANDOM_SHARES[0]
    firsts = np.exp(np.linspace(known[0], known[-1], 4 * len(known)))
    # (shape, first, episode)
    shares = np.maximum(firsts[:, None] * np.array(shapes)[:, None], least)
    evidence = np.zeros(shares.shape[:2])
    for number, own in enumerate(likelihoods):
        evidence += np.interp(np.log(shares[:, :, number]), known, own)
    # All that fall share what is believed of falling at all.
    evidence[1:] -= _FALLS
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    mean = np.einsum("sf,sfn->n", weights, shares)
    square = np.einsum("sf,sfn->n", weights, shares**2)
    return Share(mean, np.sqrt(np.maximum(square - mean**2, 0.0)))


def _sharpened(p: Vector, counts: Counts, k: float) -> Vector:
    if k == 1:
        return p
    starts = np.cumsum(counts) - counts
    # Relative to the largest, so that no step loses all of its candidates.
    powered = (p / np.repeat(np.maximum.reduceat(p, starts), counts)) ** k
    found: Vector = powered / np.repeat(np.add.reduceat(powered, starts), counts)
    return found
