"""When was the policy updated? The edges of the episodes, found from the choices."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ibcb.log.array_checks import plural
from ibcb.log.behavior_log import BehaviorLog
from ibcb.log.notes import Figure, Note
from ibcb.log.protocol import Log, check_is_log
from ibcb.log.steps import seconds_since_1970
from ibcb.log.validation.constancy import Sample, Sampler, change_at, log10_chi2
from ibcb.log.validation.findings import noted
from ibcb.log.validation.updates.evidence import CutEvidence
from ibcb.log.validation.updates.search import BestCut, Schedule, Timeline, find_cut
from ibcb.numerics.contexts import LARGEST, dense
from ibcb.numerics.newton import SolverError

__all__ = ["Edge", "Schedule", "Updates", "find_updates"]

#: steps and numbers of the sample; beyond, every second step is left out, and so on. Numbers: 128 MB
_MOST_STEPS, _MOST_NUMBERS = 1 << 14, 1 << 24
#: more features than that are hashed into so many
_MANY_FEATURES, _HASHED = 128, 96
#: fewer steps tell nothing
_LEAST_STEPS = 100
#: log10 of the probability below which the change test speaks: somewhere in the log; at a free edge; at the edge of a
#: schedule, where one is expected
_ANYWHERE, _AT_FREE_EDGE, _AT_EDGE = -5.0, -4.0, -3.0
#: log-evidence above which an edge of a schedule shows in the choices: 1,000 to 1
_GAIN = math.log(1000)
#: how much a cut must add to the log-evidence of none
_WORTH = 10.0
#: how many times the steps on one side of an edge those on the other may be: at the ends the test says nothing
_UNEVEN = 4
#: edges to which the change test is put; not tuned
_MOST_TESTED = 64
#: seconds that times may run back: clocks put back by an hour
_CLOCK_BACK = 2 * 3600.0
#: episodes of a log that are compared with those found; not tuned
_MOST_OWN = 500


class Edge(NamedTuple):
    """The evidence for one edge.

    Attributes
    ----------
    step : int
        The first step after the update, counted after the warm-up.
    log10_p : float or None
        log10 of the probability that a change as large as the one at this edge shows where the policy stays the same:
        the change test on the episodes on either side. None where it was not tested, or no change shows near.
    gain : float
        Log-evidence of the whole cut less that without this edge: below 0 where the policy hardly moved.
    source : {"choices", "schedule"}
        Whether the choices show the edge, or it follows from the schedule.
    """

    step: int
    log10_p: float | None
    gain: float
    source: Literal["choices", "schedule"]


@dataclass(frozen=True, eq=False)
class Updates:
    """When the policy was updated, as far as the choices tell; ``print`` shows all of it.

    Attributes
    ----------
    edges : ndarray of int
        The first step of each episode, counted after the warm-up, beginning with 0; only 0 where nothing changes.
    evidence : tuple of Edge
        One for each edge after the first.
    schedule : Schedule or None
        Such as every 400 steps, or every day at 03:00; None where the updates follow none, or there are none.
    log10_odds : float or None
        log10 of how much likelier the choices are with these edges than with those that the log has; None where these
        are too many to compare.
    notes : tuple of Note
    """

    edges: NDArray[np.int64]
    evidence: tuple[Edge, ...] = ()
    schedule: Schedule | None = None
    log10_odds: float | None = None
    notes: tuple[Note, ...] = ()

    def summary(self) -> str:
        """What was found, in words, and a line for each edge."""
        lines = [f"{note.text[:1].upper()}{note.text[1:]}" for note in self.notes]
        lines = [line for text in lines for line in textwrap.wrap(text, 80)]
        if self.evidence:
            lines += ["", f"{'first step':>10}  {'by chance':>10}  {'evidence':>8}  from"]
        for edge in self.evidence:
            chance = "" if edge.log10_p is None else f"10^{edge.log10_p:.1f}"
            lines.append(f"{edge.step:>10}  {chance:>10}  {edge.gain:>8.1f}  {edge.source}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        when = "" if len(self.edges) == 1 else f", {self.schedule or 'no schedule'}"
        return f"Updates({plural(len(self.edges), 'episode')}{when})"


def find_updates(log: Log, *, zone: str | None = None) -> Updates:
    """Find when the policy was updated, from the choices alone.

    Parameters
    ----------
    log : BehaviorLog, or a log on disk (`ibcb.open_log`)
        Only the order of its steps matters, and their times if it has them; its own episodes and its warm-up are
        ignored. Of more than 16,384 steps an evenly spread sample is used; more than 128 features are hashed into 96.
        Memory is bounded.
    zone : str, optional
        The time zone in which the policy is updated at the same hour, such as "Europe/Berlin"; times without a zone of
        their own are UTC. By default UTC, or local time if daylight saving time begins or ends during the log and
        explains it.

    Returns
    -------
    updates : Updates
        ``log.recut(updates.edges)`` is the log with the episodes found.

    Notes
    -----
    A cut is judged by the evidence for a policy that moves only at its edges (`ibcb.log.validation.updates.evidence`).
    A regular schedule (by count, by time, by the local hour) is found from a few visible edges, and then gives the
    others. Any change at all, and each edge that no schedule explains, must also show in the change test
    (`ibcb.log.validation.constancy`), which drifting candidates do not mislead.

    Examples
    --------
    >>> import ibcb
    >>> log = ibcb.simulate("synthetic", n_episodes=6, batch_size=300, seed=0).log
    >>> updates = ibcb.find_updates(log.recut([0]))
    >>> updates
    Updates(6 episodes, every 300 steps)
    >>> log.recut(updates.edges)
    BehaviorLog(6 episodes after 1 of warm-up, 2700 steps, 10 candidates each, 10 features, float64)
    """
    check_is_log(log, "find_updates")
    try:
        None if zone is None else ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"zone={zone!r} is not a known time zone; write one such as Europe/Berlin.") from None
    sample, count, warmup, own, times = _gathered(log)
    if sample is None or len(sample.steps) < _LEAST_STEPS:
        return _nothing("too-few-steps", least=_LEAST_STEPS)
    if not np.abs(sample.contexts).max() <= LARGEST:
        return _nothing("too-large", largest=LARGEST)
    if (sample.contexts == np.repeat(sample.contexts[sample.offsets[:-1]], np.diff(sample.offsets), axis=0)).all():
        return _nothing("equal-candidates/everywhere")
    seconds, unused = _clock(times)
    try:
        evidence = CutEvidence(sample, warmup)
    except SolverError:
        return _nothing("unexplained/no-policy")
    timeline = Timeline(count, seconds, sample.steps)
    updates = _Search(evidence, timeline, sample).updates(zone)
    notes, odds = [*updates.notes, *unused], None
    thin, kept = int(np.diff(sample.steps).max()), len(sample.steps)
    if count > kept and thin > 1:
        notes.append(noted("sampled-steps", {"steps": count, "sampled": kept}, thin=thin))
    # Too many take too long to compare.
    if len(own) <= _MOST_OWN:
        odds = evidence.judge(timeline.cut(updates.edges)) - evidence.judge(timeline.cut(own))
        odds /= math.log(10)
    return replace(updates, log10_odds=odds, notes=tuple(notes))


def _gathered(log: Log) -> tuple[Sample | None, int, int, NDArray[np.int64], NDArray[Any] | None]:
    """A sample of the steps that the policy chose, how many there are and were before, their episodes and times."""
    sampler, times, own = Sampler(_MOST_STEPS, _MOST_NUMBERS), list[Any](), dict[int, int]()
    count = warmup = 0
    for number, part in log.parts():
        if number >= 0:
            own.setdefault(number, count)
            sampler.add(part if part.n_features <= _MANY_FEATURES else _hashed(part), count)
            count += part.n_steps
            times.append(part.timestamps)
        else:
            warmup += part.n_steps
    known = bool(times) and all(some is not None for some in times)
    sample = sampler.sample
    if sample is not None:
        sample = sample.where(np.diff(sample.offsets) > 1)
    edges = np.array(list(own.values()), dtype=np.int64)
    return sample, count, warmup, edges, np.concatenate(times) if known else None


def _hashed(part: BehaviorLog) -> BehaviorLog:
    """A part of a wide log with its features hashed into few, each with a sign: a policy that changes still changes."""
    d, rng = part.n_features, np.random.default_rng(0)
    sign, place = rng.choice([-1.0, 1.0], size=d), rng.integers(_HASHED, size=d)
    hashed = sparse.csr_array((sign, (np.arange(d), place)), shape=(d, _HASHED))
    return BehaviorLog(dense(part.contexts @ hashed), part.step_offsets, part.chosen, [0, part.n_steps])


def _clock(times: NDArray[Any] | None) -> tuple[NDArray[np.float64] | None, list[Note]]:
    """Times as seconds that do not fall, and a note where they cannot be used."""
    if times is None:
        return None, []
    seconds, why = seconds_since_1970(times), "some are missing, or are not times"
    if seconds is not None:
        # An hour that comes twice, where clocks were put back.
        forward = np.maximum.accumulate(seconds)
        if float(np.max(forward - seconds)) <= _CLOCK_BACK:
            return forward, []
        why = "they run backwards; sort the log by time (sort=True, --sort)"
    return None, [noted("times-unused", {}, why=why)]


def _nothing(case: str, **words: Any) -> Updates:
    return Updates(np.zeros(1, dtype=np.int64), notes=(noted(case, {}, **words),))


class _Search(NamedTuple):
    """What speaks for the edges of a log: the evidence of whole cuts, and the change test at each of them."""

    evidence: CutEvidence
    timeline: Timeline
    sample: Sample

    def updates(self, zone: str | None) -> Updates:
        """The schedule, if it explains the choices best and the test sees a change; else the edges that it confirms."""
        free, regular = find_cut(self.evidence, self.timeline, zone)
        none = self.evidence.judge([0])
        irregular = self._irregular(free.edges) if free.value > none else Updates(free.edges[:1])
        confirmed = len(irregular.edges) - 1
        if regular is not None and regular.value > max(free.value, none + _WORTH):
            scheduled = self._scheduled(regular)
            # One edge that shows is no schedule. Short episodes leave the change test little to go by; then free edges,
            # between which there are more steps, may confirm that the policy changes.
            seen = sum(edge.source == "choices" for edge in scheduled.evidence)
            if seen > 1 and (confirmed > 1 or _changes(scheduled.evidence)):
                return scheduled
        if confirmed:
            return irregular
        return _nothing("no-updates", steps=len(self.sample.steps))

    def _scheduled(self, cut: BestCut) -> Updates:
        edges = self._edges(cut.edges, "schedule")
        seen = sum(edge.source == "choices" for edge in edges)
        when, episodes = str(cut.schedule), len(cut.edges)
        figures: dict[str, Figure] = {"schedule": when, "episodes": episodes, "seen": seen}
        notes = [noted("updates-by-schedule", figures, edges=len(edges))]
        if cut.rival is not None:
            notes.append(noted("updates-uncertain", {"schedule": when, "rival": str(cut.rival)}))
        return Updates(cut.edges, edges, cut.schedule, notes=tuple(notes))

    def _irregular(self, edges: NDArray[np.int64]) -> Updates:
        """The free edges that the change test confirms, the weakest being left out first."""
        while True:
            evidence = self._edges(edges, "choices")
            weak = [(edge.log10_p or 0.0, place) for place, edge in enumerate(evidence, start=1)]
            log10_p, place = max(weak, default=(-math.inf, 0))
            if log10_p <= _AT_FREE_EDGE:
                break
            edges = np.delete(edges, place)
        changes = plural(len(evidence), "change")
        return Updates(edges, evidence, notes=(noted("updates-irregular", {"episodes": len(edges)}, changes=changes),))

    def _edges(self, edges: NDArray[np.int64], without: Literal["choices", "schedule"]) -> tuple[Edge, ...]:
        """What speaks for each edge after the first; ``without`` a change that shows, where the edge comes from."""
        cut = self.timeline.cut(edges)
        whole = self.evidence.judge(cut)
        ends = [*edges.tolist(), self.timeline.total]
        judged = []
        for place in range(1, len(edges)):
            rest = self.timeline.cut(np.delete(edges, place))
            gain = whole - self.evidence.evidence(rest) if len(cut) <= _MOST_TESTED else math.nan
            log10_p = None
            if place <= _MOST_TESTED:
                log10_p = change_at(self._around(*ends[place - 1 : place + 2]), ends[place], self.evidence.stray)
            shows = gain > _GAIN or (log10_p is not None and log10_p < _AT_EDGE)
            judged.append(Edge(ends[place], log10_p, gain, "choices" if shows else without))
        return tuple(judged)

    def _around(self, first: int, step: int, last: int) -> Sample:
        """The steps on either side of an edge; of the longer side those that are near."""
        ends = max(first, step - _UNEVEN * (last - step)), min(last, step + _UNEVEN * (step - first))
        low, high = np.searchsorted(self.sample.steps, ends).tolist()
        return self.sample.between(low, high)


def _changes(evidence: tuple[Edge, ...]) -> bool:
    """Whether the change tests show that the policy changes: all together (Fisher's method), or the clearest."""
    tested = [edge.log10_p for edge in evidence if edge.log10_p is not None]
    together = log10_chi2(-2 * math.log(10) * sum(tested), 2 * len(tested)) if tested else 0.0
    return min([together, *(p + math.log10(len(tested)) for p in tested)]) < _ANYWHERE
