"""Is the log a sample of the decider's choices? Then its Gram matrix grew faster than the log shows.

A rate enters as a factor of l2 alone (`ibcb.numerics.ridge`), so that choices tell no rate from another l2. What they
do tell is that the l2 of the fit, given or the least that was tried, is too large for the Gram matrix of the log. Only
those of a decider that draws do: its spread shows beside its policy. Of one that adds a bonus the log-likelihood
favours one rate or another by chance (decision 0015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.log.notes import Note
from ibcb.numerics.contexts import taken
from ibcb.numerics.ridge import Chosen, gram
from ibcb.tracking.selection import select

__all__ = ["looks_sampled"]

#: rates that are tried
_RATES = (0.3, 0.1, 0.03)
#: episodes that are looked at: the first, in which l2 still matters
_EPISODES = 6
#: share of its policy that a decider owes to l2, after its first episode, below which no rate would show; not tuned
_MATTERS = 0.05
#: log-likelihood that a rate must add, and the share of the most that any adds from which a larger one is preferred
#: (judged on 16 logs, decision 0015)
_CLEAR, _ENOUGH = 20.0, 0.85


def looks_sampled(
    logs: Sequence[BehaviorLog | DiskLog], kind: Kind, prior_gram: NDArray[np.float64], team: Any
) -> tuple[Note, ...]:
    """A note where a decider that made more choices than the log has would explain it clearly better."""
    first = list(islice(chain.from_iterable(logs), _EPISODES))
    if len(first) < 3 or not isinstance(first[0], BehaviorLog) or not kind.narrows:
        return ()
    S = taken(first[0].contexts, first[0].chosen_rows).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        chosen = Chosen.before_the_log(prior_gram).and_then(len(S), S.sum(axis=0), gram(S))
    if np.mean(1 - np.diag(kind.regularization.ridge(chosen).shrinkage)) < _MATTERS:
        return ()
    steps = sum(log.n_steps for log in first[1:] if isinstance(log, BehaviorLog))

    def log_likelihood(rate: float) -> float:
        found = select(first, [replace(kind, rate=rate)], prior_gram, team=team)
        return steps * found.evidence[0].log_likelihood

    try:
        here = log_likelihood(kind.rate)
        # Most logs are whole, which one look tells: a rate in the middle explains a sample better, whichever it is.
        if log_likelihood(_RATES[1]) - here <= _CLEAR:
            return ()
        gains = {rate: log_likelihood(rate) - here for rate in _RATES}
    except ValueError:
        # Numbers cannot hold the choices of such a decider; what the fit says of it is enough.
        return ()
    # The largest that will do: less and less is gained by going on.
    rate, gain = next((rate, gain) for rate, gain in gains.items() if gain >= _ENOUGH * max(gains.values()))
    return (
        Note(
            "looks-sampled",
            "info",
            f"the first {len(first)} episodes are explained better (log-likelihood +{gain:.0f}) by a decider that "
            f"made about {1 / rate:.0f} times the choices of the log. If the log is a sample, set "
            f"sampling_rate={rate:g} (--sampling-rate {rate:g}). If it is complete, l2={kind.l2:g} is too large by "
            "that factor.",
            {"rate": rate, "gain": gain},
        ),
    )
