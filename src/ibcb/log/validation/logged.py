"""Do logged propensities sum to 1, do they tell anything, and were the choices drawn with them?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.special import xlogy

from ibcb.log.arrays import plural
from ibcb.log.behavior_log import BehaviorLog
from ibcb.log.propensities import sum_tolerance
from ibcb.log.validation.report import Finding

__all__ = ["LoggedScan", "logged_findings"]

#: how far a propensity may be from 1 / candidates, as a share of it, to be even: they are often rounded
_EVEN = 0.02
#: deviations from which choices are not taken for draws: by chance 1 in a billion
_DEVIATIONS = 6.0
_READ_WITHOUT = "read the log without them: drop=[...] (--drop) with the name of their column"


@dataclass
class LoggedScan:
    """Counts of the steps of a log by what was logged of their propensities. Steps with one candidate tell nothing.

    ``steps`` are all, ``chosen`` those whose choice has one, ``complete`` those whose candidates all have one. The
    choices of the latter, where they sum to 1, have a surprise -log p that is known in mean and variance.
    """

    steps: int = 0
    chosen: int = 0
    complete: int = 0
    off: int = 0
    first_off: tuple[str, float] | None = None
    told: int = 0
    certain: int = 0
    surprise: float = 0.0
    variance: float = 0.0
    #: number of each episode, its choices with a propensity, and those that were as likely as all others
    episodes: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, number: int, part: BehaviorLog, place: Callable[[int], str]) -> None:
        """Count the steps of a part; ``place`` names them."""
        self.steps += part.n_steps
        if part.propensities is None:
            return
        counts, starts = np.diff(part.step_offsets), part.step_offsets[:-1]
        p = part.propensities[part.chosen_rows]
        known = ~np.isnan(p)
        sums = np.add.reduceat(part.propensities, starts)
        complete = ~np.isnan(sums)
        off = complete & (np.abs(sums - 1) > sum_tolerance(counts))
        if off.any() and self.first_off is None:
            at = int(np.argmax(off))
            self.first_off = place(at), float(sums[at])
        self.chosen += int(known.sum())
        self.complete += int(complete.sum())
        self.off += int(off.sum())
        telling = known & (counts > 1)
        self.told += int(telling.sum())
        self.certain += int((telling & (p == 1)).sum())
        self._count_even(number, int(telling.sum()), int((telling & (np.abs(p * counts - 1) < _EVEN)).sum()))
        sound = complete & ~off & (counts > 1)
        if sound.any():
            # 0 log 0 is 0; candidates with propensity 0 add nothing.
            entropy = -np.add.reduceat(xlogy(part.propensities, part.propensities), starts)
            log_p = np.log(np.where(part.propensities > 0, part.propensities, 1.0))
            square = np.add.reduceat(part.propensities * log_p**2, starts)
            self.surprise += float((-np.log(p[sound]) - entropy[sound]).sum())
            self.variance += float((square[sound] - entropy[sound] ** 2).sum())

    def _count_even(self, number: int, told: int, even: int) -> None:
        if self.episodes and self.episodes[-1][0] == number:
            _, before, evenly = self.episodes.pop()
            told, even = told + before, even + evenly
        self.episodes.append((number, told, even))

    @property
    def deviations(self) -> float:
        """By how many standard deviations the choices are less likely than draws would be."""
        return self.surprise / np.sqrt(self.variance) if self.variance > 0 else 0.0


def logged_findings(found: LoggedScan) -> Iterator[Finding]:
    """What logged propensities are worth as a check."""
    if found.chosen == 0:
        return
    if found.first_off is not None:
        place, total = found.first_off
        yield Finding(
            "warning",
            "propensity-sums",
            f"In {found.off} of {plural(found.complete, 'step')} with logged propensities of all candidates these do "
            f"not sum to 1: in the first to {total:.4g}. Above 1 they are scores, or of several choices at once; below "
            "it candidates are missing.",
            place,
            f"Correct them, log the candidates that are missing, or {_READ_WITHOUT}.",
        )
    if found.told and found.certain == found.told:
        yield Finding(
            "note",
            "certain-propensities",
            f"The logged propensities of all {plural(found.told, 'choice')} are 1: the decider drew nothing, or nobody "
            "knew. Importance weights made of them would all be equal.",
            None,
            f"If they are placeholders, {_READ_WITHOUT}.",
        )
        return
    yield from _even(found)
    if found.chosen < found.steps:
        missing = found.steps - found.chosen
        yield Finding(
            "note",
            "missing-propensities",
            f"{plural(missing, 'choice')} of {found.steps} {'has' if missing == 1 else 'have'} no logged propensity; "
            "comparisons are of the others.",
            None,
            "No action needed, unless they were lost.",
        )
    if abs(found.deviations) > _DEVIATIONS:
        how = "less" if found.deviations > 0 else "more"
        yield Finding(
            "warning",
            "propensities-not-drawn",
            f"By the logged propensities the choices are {abs(found.deviations):.0f} standard deviations {how} likely "
            "than choices drawn with them: the decider did not draw with these.",
            None,
            "Check that propensities and candidates belong together, in order, and that they are those of the choice, "
            "not of a later model.",
        )


def _even(found: LoggedScan) -> Iterator[Finding]:
    """Even draws say nothing about a policy; at the beginning they are a random start."""
    policy = [(number, told, even) for number, told, even in found.episodes if number >= 0 and told]
    drawn = [even > 0.99 * told for _, told, even in policy]
    if policy and all(drawn):
        yield Finding(
            "warning",
            "even-propensities",
            "By the logged propensities every candidate was as likely as any other at every step: the choices were "
            "drawn at random and say nothing about a policy. A fit would follow chance.",
            None,
            "Fit the log of the policy that learned; this one serves to evaluate others.",
        )
    elif policy and drawn[0]:
        lead = drawn.index(False)
        total = lead + sum(number < 0 for number, _, _ in found.episodes)
        which = "first episode" if lead == 1 else f"first {lead} episodes"
        yield Finding(
            "note",
            "even-start",
            f"By the logged propensities the choices of the {which} were drawn evenly from the candidates.",
            f"episode {policy[0][0]}",
            f"Mark that random start: warmup={total} (--warmup {total}).",
        )
