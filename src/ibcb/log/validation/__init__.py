"""Explain a log before it is fitted: what it holds, what is wrong with it, and what would make the method fail."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ibcb.log.protocol import Log, check_is_log
from ibcb.log.validation.checklist import LEAKS, findings
from ibcb.log.validation.findings import Finding, LogSummary, Validation
from ibcb.log.validation.scan import Scan, scan
from ibcb.log.validation.updates import find_updates

__all__ = ["LEAKS", "Finding", "LogSummary", "Validation", "validate", "validated"]


def validate(log: Log) -> Validation:
    """Check a log: what it holds, and what would make a fit fail. Reads it once, and again if its episodes look wrong.

    Parameters
    ----------
    log : BehaviorLog, or a log on disk (`ibcb.open_log`)
        Memory is bounded, whatever the number of steps.

    Returns
    -------
    validation : Validation
        ``print`` it; ``ok`` says whether the log can be fitted, ``findings`` what was found.

    Notes
    -----
    Four findings rest on statistical tests. They are reported only if chance is very unlikely, so their absence proves
    little.

    *Wrong edges* (``episode-edges``): the policy changes inside an episode (see `ibcb.log.validation.constancy`). The
    finding proposes the cut of `ibcb.find_updates`. The test misses edges where the policy hardly changed, as late in a
    log; edges moved by less than a tenth of an episode; episodes of fewer than 100 steps, or of fewer than 12 steps per
    feature in the directions of most variance; and superfluous edges between episodes with the same policy. It looks at
    32 episodes at most, and at 768 steps of each.

    *A random start* (``unmarked-warmup``): the choices favour no feature, no position and no length. A Thompson sampler
    that knows nothing can look the same.

    *Wrong propensities* (``propensities-not-drawn``): the choices are too unlikely, or too likely, to be draws with the
    logged propensities. This needs the propensities of all candidates.

    *Propensities among the features* (``propensity-feature``): a feature sums to 1 over the candidates of every step,
    and the choices are as likely as draws with it would be. With ``leak`` and ``outcome`` it is one of `LEAKS`.

    Examples
    --------
    >>> import ibcb
    >>> run = ibcb.simulate("synthetic", n_episodes=5, batch_size=300, seed=0)
    >>> print(ibcb.validate(run.log))
    Ready to fit: nothing wrong was found.
    <BLANKLINE>
    episodes  5 after 1 of warm-up, 300 steps each
    steps     2400, 10 candidates each
    rows      24000 of 10 features, float64: 1.96 MB in memory
    """
    check_is_log(log, "validate")
    return validated(scan(log), log)


def validated(sums: Scan, log: Log) -> Validation:
    """What a scan of a log says; the log is read again if its episodes look wrong."""
    return Validation(_summary(sums), findings(sums, lambda: find_updates(log)))


def _summary(result: Scan) -> LogSummary:
    policy, span = result.policy, result.time_span
    return LogSummary(
        episodes=len(policy),
        warmup_episodes=len(result.episodes) - len(policy),
        steps=result.steps,
        rows=result.rows,
        episode_steps=_spread(Counter(episode.steps for episode in policy)),
        candidates=_spread(result.candidates),
        features=result.d,
        dtype=result.dtype,
        time_span=None if span is None else (_time(span[0]), _time(span[1])),
        nbytes=result.nbytes,
        propensities=result.logged.count["chosen"],
    )


def _spread(times: Counter[int]) -> tuple[int, float, int] | None:
    """The least, the median and the most of some sizes, of which each occurs so many times."""
    if not times:
        return None
    sizes = np.array(sorted(times))
    upto = np.cumsum([times[size] for size in sizes.tolist()])
    # The median: the mean of the two middle ones, which are one of an odd number.
    middle = sizes[np.searchsorted(upto, [(upto[-1] - 1) // 2, upto[-1] // 2], side="right")]
    return int(sizes[0]), float(np.mean(middle)), int(sizes[-1])


def _time(value: Any) -> str:
    if not isinstance(value, np.datetime64):
        return str(value.item())
    return str(value if value.dtype == "M8[D]" else value.astype("M8[s]"))
