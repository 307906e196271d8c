"""Does a log begin where its decider began? Evidence from the first episode's choices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.imitator import argmax_per_step
from ibcb.log import BehaviorLog

__all__ = ["missing_past"]


def missing_past(first: BehaviorLog, expert: str) -> str | None:
    """Why the first episode does not look like the first: nothing learned, nothing seen. None if it does."""
    remedy = "pass prior_gram= (S'S of the contexts chosen before), or mark a random start with warmup="
    if expert == "sbucb":
        # A decider with theta = 0 and Phi = 0 takes the candidate of largest norm.
        longest = np.einsum("ij,ij->i", first.contexts, first.contexts)
        share = float(np.mean(longest[first.chosen_rows] >= (1 - 1e-6) * _maximum_per_step(longest, first)))
        if share >= 0.9:
            return None
        return (
            f"the log seems to start in the middle: an sbucb decider that knows nothing takes the candidate of "
            f"largest norm, but the first episode does so in {share:.0%} of its steps; {remedy}."
        )
    # A Thompson sampler that knows nothing draws theta from N(0, I): compare how consistent its choices would look.
    rng = np.random.default_rng(0)
    draws = np.repeat(rng.standard_normal((first.n_steps, first.n_features)), np.diff(first.step_offsets), axis=0)
    picks = argmax_per_step(np.einsum("ij,ij->i", first.contexts, draws), first)
    expected, found = _consistency(first, picks), _consistency(first, first.chosen)
    if found <= expected + 0.1 + 3 / np.sqrt(first.n_steps):
        return None
    return (
        f"the first episode's choices follow one direction in {found:.0%} of its steps, where an sbts decider that "
        f"knows nothing and draws at every step would reach {expected:.0%}: either one draw served the whole episode, "
        f"or the log starts in the middle. In the latter case {remedy}."
    )


def _maximum_per_step(values: NDArray[Any], log: BehaviorLog) -> NDArray[Any]:
    maxima: NDArray[Any] = values[log.step_offsets[:-1] + argmax_per_step(values, log)]
    return maxima


def _consistency(log: BehaviorLog, chosen: NDArray[np.int64]) -> float:
    """Share of steps that the mean advantage of the chosen candidates, taken as a policy, would choose alike."""
    means = np.add.reduceat(log.contexts, log.step_offsets[:-1], axis=0) / np.diff(log.step_offsets)[:, None]
    direction = np.mean(log.contexts[log.step_offsets[:-1] + chosen] - means, axis=0)
    return float(np.mean(argmax_per_step(log.contexts @ direction, log) == chosen))
