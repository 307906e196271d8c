"""A fit as one value: solve the log by Algorithm 2, track the policy beside it, choose what is left open.

A `Fit` is never changed. `fit_logs` makes one, `continued` makes the next one from it. So an interrupted fit leaves a
model as it was, and whatever a model says of itself it says of one and the same fit.

All of it rides on the replay. Where everything is named the log is gone through once; where something is left open, or
the kind is only tracked, once before to choose (`ibcb.tracking.selection`); and once more with the robust solver where
the exact one finds that choices contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from ibcb.deciders import Kind
from ibcb.engine import Episode, Experience, Heading, History, Past, Subscriber, Workers, replay, workers
from ibcb.estimators.remarks import Sampling, largest_outlier, late_start, no_exact_solution, not_tracked, reason
from ibcb.estimators.settings import Settings
from ibcb.inverse.constraints import EpisodeView
from ibcb.inverse.evolution import Evolution
from ibcb.inverse.solvers import SOLVERS, InfeasibleError, SolverError
from ibcb.log import Log
from ibcb.log.array_checks import LogFormatError
from ibcb.log.notes import Note
from ibcb.numerics.checks import gram_matrix
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Ridge
from ibcb.tracking import Track
from ibcb.tracking.contenders import Tracks, UntrackedError
from ibcb.tracking.posterior import Conclusion, named
from ibcb.tracking.selection import Candidate, Selecting, Selection


@dataclass(frozen=True)
class Fit:
    """All that fitting found.

    Attributes
    ----------
    kind : Kind
        Of the decider, with its parameters, as given or chosen.
    scale : float
        What tracked policies have to be multiplied with so that a softmax of their scores draws as the decider did.
    evolution : Evolution
        Algorithm 2 after the last episode.
    solver : str
        That made it.
    track : Track or None
        None without a forecast, or where numbers could not hold it.
    solving, choosing, tracking : tuple of Note
        What a reader should know of each.
    evidence : tuple of Candidate
    told : Conclusion
        What the log tells of the decider.
    """

    kind: Kind
    scale: float
    evolution: Evolution
    solver: str
    track: Track | None
    solving: tuple[Note, ...]
    choosing: tuple[Note, ...]
    tracking: tuple[Note, ...]
    evidence: tuple[Candidate, ...]
    told: Conclusion

    @property
    def ridge(self) -> Ridge:
        """What all choices so far leave behind, with which the next episode's choices will be made."""
        return self.kind.ridge(self.evolution.history)

    def check(self) -> None:
        """Raise ValueError where the parts cannot be of one and the same fit."""
        evolution, kind = self.evolution, self.kind
        gram_matrix("gram", evolution.history.chosen.phi, len(evolution.theta))
        # Raises where what was chosen cannot be weighed against l2.
        self.ridge  # noqa: B018
        if (evolution.margin is None) != (kind.per_unit is not None) or not (
            evolution.margin is None or evolution.margin > 0
        ):
            raise ValueError(f"its margin is {evolution.margin}, which is none of {kind.name}")
        if len(evolution.policies) != len(evolution.diagnostics):
            raise ValueError(f"{len(evolution.policies)} policies have {len(evolution.diagnostics)} diagnostics")
        if self.scale <= 0 or self.solver not in SOLVERS:
            raise ValueError(f"its scale is {self.scale} and its solver {self.solver!r}")
        if self.track is not None and self.track.kind != kind:
            raise ValueError(f"its track is that of {self.track.kind.label}, not of {kind.label}")


@dataclass(frozen=True)
class Progress:
    """How far fitting a log has come; with the log, all that it needs to go on to the same bits.

    Attributes
    ----------
    tracks : Tracks or None
        Of the kinds to choose from, while one is being chosen.
    fit : Fit or None
        Afterwards, the fit of the episodes so far.
    """

    tracks: Tracks | None
    fit: Fit | None

    @property
    def n_features(self) -> int:
        """Of the log, as it is tracked."""
        if self.fit is not None:
            return len(self.fit.evolution.theta)
        return 0 if self.tracks is None else self.tracks.n_features

    @property
    def last(self) -> History | Tracks | None:
        """What knows the episodes so far: how many there were, and the name of the log up to there."""
        return self.tracks if self.fit is None else self.fit.evolution.history


class AnotherLogError(ValueError):
    """What was found before belongs to another log, so that it cannot be gone on with; ``episodes``: how many."""

    def __init__(self, episodes: int) -> None:
        super().__init__(f"the first {episodes} episodes are not those that were seen before")
        self.episodes = episodes


class Judge(Protocol):
    """Somebody who looks at each episode as it was predicted, while the log is gone through."""

    def step(self, episode: Episode, fit: Fit) -> Judge:
        """One more episode; ``fit`` has seen it."""
        ...


class Fitted(NamedTuple):
    """A fit, and what its judge found, if there was one.

    ``error``: why the exact solver has stopped on the way; ``chose``: whether anything was left open, to be chosen
    first.
    """

    fit: Fit
    judge: Judge | None
    error: SolverError | None = None
    chose: bool = False


def fit_logs(
    logs: Sequence[Log],
    settings: Settings,
    before: History | None,
    *,
    begun: Progress | None = None,
    watch: Callable[[Progress], None] | None = None,
    judge: Callable[[], Judge] | None = None,
    also: Sequence[Subscriber] = (),
) -> Fitted:
    """Fit a whole log, in one piece or several.

    Parameters
    ----------
    logs : sequence of Log
    settings : Settings
    before : History or None
        What lies before the first episode, if anything.
    begun : Progress, optional
        Of the same settings on a log that begins with the same episodes: these are not fitted again.
    watch : callable, optional
        Called with the progress after every further episode that the policy chose.
    judge : callable, optional
        Begins a judge, who looks at the episodes as the fit that is kept predicted them.
    also : sequence of Subscriber
        Others that need the log: they go along the first time.
    """
    opening = _Opening(settings, begun or Progress(None, None), watch, judge)
    with workers(settings.n_jobs) as team:
        where = _where(settings, before, team)
        doing = "choose" if settings.verbose and (settings.open or not settings.learns) else where["progress"]
        try:
            seen, outcome, *_ = replay(logs, _Resuming(opening.begun), opening, *also, **where | {"progress": doing})
        except (UntrackedError, SolverError) as error:
            told = "" if isinstance(error, InfeasibleError) else largest_outlier(logs)
            if not told:
                raise
            raise type(error)(f"{error} {told}") from error
        chose = not isinstance(outcome, Fitted)
        if chose:
            opening = _Opening(settings, Progress(None, None), watch, judge, chooses=False, selection=outcome)
            (outcome,) = replay(logs, opening, **where)
        outcome = _once_more(logs, outcome, settings, where, judge)
    if outcome.fit.evolution.history.fingerprint != seen.fingerprint:
        raise LogFormatError(
            "the log changed while it was fitted: what was chosen in one pass over it does not belong to what was met "
            "in the next. Fit it again, or a copy that nobody writes."
        )
    return outcome._replace(chose=chose)


def continued(fit: Fit, log: Log, seen: Sequence[Log] | None, settings: Settings, before: History | None) -> Fit:
    """One more episode. ``seen``: the logs so far, should all have to be solved again; None where nobody has them;
    ``before``: what lies before the first of them.
    """
    with workers(settings.n_jobs) as team:
        (solved,) = replay([log], _Solving(settings, fit), **_where(settings, fit.evolution.history, team))
        if solved.error is not None and seen is None:
            raise SolverError(
                f"episode {len(fit.evolution.policies)} has no exact solution ({reason(solved.error)}), so "
                "solver='auto' would solve all episodes again in robust mode, but a model that was stored keeps no "
                "logs. Call fit on the whole log, or start with solver='robust'."
            ) from solved.error
        return _once_more([*(seen or ()), log], solved, settings, _where(settings, before, team)).fit


def _where(settings: Settings, before: History | None, team: Workers | None) -> dict[str, Any]:
    """How a log is gone through, as `replay` takes it."""
    shown, keep = "fit" if settings.verbose else "", None if settings.incremental else 0
    return {"before": before, "client": settings.client, "team": team, "keep": keep, "progress": shown}


def _once_more(
    logs: Sequence[Log],
    done: Fitted,
    settings: Settings,
    where: dict[str, Any],
    judge: Callable[[], Judge] | None = None,
) -> Fitted:
    """In robust mode, where the exact solver has stopped; what was tracked, and judged by it, stays.

    Nobody watches: who goes on with the exact solver finds the same contradictions.
    """
    fit, judged, error, _ = done
    if error is None:
        return done
    d, known = len(fit.evolution.theta), fit.evolution
    start = where["before"] or History.before_the_log(np.zeros((d, d)))
    evolution = Evolution.begin(start, known.metric, known.margin, known.prune)
    fit = replace(fit, solver="robust", evolution=evolution, solving=(no_exact_solution(error, fit.kind), *fit.solving))
    judging = judge() if judge is not None and judged is None else None
    (robust,) = replay(logs, _Solving(settings, fit, judge=judging), **where)
    fit = robust.fit
    if isinstance(error, InfeasibleError):
        fit = replace(fit, evolution=fit.evolution.with_certificate(error.certificate))
    return Fitted(fit, robust.judge if judged is None else judged)


@dataclass(frozen=True)
class _Resuming(Subscriber):
    """Raises where a log does not begin with the episodes of which something has been found already.

    Attributes
    ----------
    begun : Progress
    seen : History or None
        What lies behind, of the log that is gone through.
    """

    begun: Progress
    seen: History | None = None

    def begin(self, heading: Heading) -> _Resuming:
        """The features, too, are those of that log."""
        return self._checked(self.begun.n_features in (0, heading.n_features))

    def step(self, episode: Episode) -> _Resuming:
        """One more episode."""
        last, after = self.begun.last, episode.after
        same = last is None or after.stored != last.stored or after.fingerprint == last.fingerprint
        return replace(self._checked(same), seen=after)

    def finish(self) -> History | None:
        """What lies behind in the end; raises where that is before them."""
        last = self.begun.last
        return self._checked(last is None or (self.seen is not None and self.seen.stored >= last.stored)).seen

    def _checked(self, is_same: bool) -> _Resuming:
        if not is_same:
            raise AnotherLogError(0 if self.begun.last is None else self.begun.last.episodes)
        return self


@dataclass(frozen=True)
class _Opening(Subscriber):
    """Before the first candidates are known, and with them whether something has to be chosen; then solves, or chooses.

    Attributes
    ----------
    settings : Settings
    begun, watch, judge
        As of `fit_logs`.
    chooses : bool
        Whether something may be chosen: not where a pass before has done so.
    selection : Selection or None
        What it chose; None where nothing was open, or there is one episode.
    """

    settings: Settings
    begun: Progress
    watch: Callable[[Progress], None] | None
    judge: Callable[[], Judge] | None
    chooses: bool = True
    selection: Selection | None = None

    def begin(self, heading: Heading) -> Selecting | _Solving:
        """Choose first, or solve at once."""
        settings, watch, fit = self.settings, self.watch, self.begun.fit
        if self.chooses and fit is None and settings.chooses(heading):
            kinds = settings.candidates(heading)
            tracks = self.begun.tracks or Tracks.begin(kinds, heading.before.chosen.phi)
            if list(tracks.kinds) != kinds:
                raise ValueError(
                    "the checkpoint chooses between other kinds of decider: it was made on another log, or by another "
                    "version of ibcb; give the same log, or start again without --resume."
                )
            return Selecting(tracks, None if watch is None else lambda held: watch(Progress(held, None)))
        fit = fit or self._before_any(heading)
        # Only of a whole log, from its first episode on.
        whole = heading.before.stored == 0 and settings.sampling_rate == 1 and settings.client is None
        sampling = Sampling(fit.kind, bool(fit.kind.words.spread)) if whole and fit.track is not None else None
        return _Solving(settings, fit, watch, self.judge and self.judge(), sampling)

    def _before_any(self, heading: Heading) -> Fit:
        """The fit of no episode."""
        settings, chosen = self.settings, self.selection
        if chosen is None:
            track = Track.begin(settings.alone(heading), heading.before.chosen.phi)
            chosen = Selection(track, 1.0, evidence=(), notes=(), told=named(track.kind))
        kind, mode, moments = chosen.track.kind, settings.solver, heading.moments
        if mode == "auto":
            mode = "hard" if kind.learns else "robust"
        # As little as possible, in scores of candidates; of the paper's solver in Euclid's length.
        shown = max(1, int(np.count_nonzero(moments.shown)))
        metric = None if mode == "paper" else Metric(shown * moments.metric)
        margin = float(settings.margin) if kind.per_unit is None else None
        return Fit(
            kind,
            chosen.scale,
            Evolution.begin(heading.before, metric, margin, bool(settings.prune)),
            mode,
            chosen.track if settings.forecasts or not kind.learns else None,
            solving=() if settings.prior_gram is not None else late_start(heading, kind),
            choosing=chosen.notes,
            tracking=(),
            evidence=chosen.evidence,
            told=chosen.told,
        )


@dataclass(frozen=True)
class _Solving(Subscriber):
    """Algorithm 2 and the track side by side; a subscriber.

    Attributes
    ----------
    settings : Settings
    fit : Fit
        So far.
    watch : callable or None
        As of `fit_logs`.
    judge : Judge or None
        None, too, where the fit cannot predict an episode yet when it goes by.
    sampling : Sampling or None
        Whether the log looks like a sample, while that is being told.
    error : SolverError or None
        Why the exact solver has stopped.
    known : tuple
        With incremental=False, the episodes so far.
    """

    settings: Settings
    fit: Fit
    watch: Callable[[Progress], None] | None = None
    judge: Judge | None = None
    sampling: Sampling | None = None
    error: SolverError | None = None
    known: tuple[tuple[Experience, Ridge, EpisodeView | None], ...] = field(default=(), repr=False)

    @property
    def pasts(self) -> tuple[Past, ...]:
        return (self.fit.kind.past,)

    def step(self, episode: Episode) -> _Solving:
        """One more episode."""
        state = self
        is_new = self.error is None and self.fit.evolution.history.stored <= episode.before.stored
        if is_new:
            state = state._solved(episode)
        state = state._tracked(episode)
        if state.sampling is not None:
            state = replace(state, sampling=state.sampling.step(episode))
        if state.judge is not None and episode.by_policy:
            is_told = state.fit.track is not None or episode.number < len(state.fit.evolution.policies)
            state = replace(state, judge=state.judge.step(episode, state.fit) if is_told else None)
        if self.watch is not None and is_new and state.error is None and episode.by_policy:
            self.watch(Progress(None, state.fit))
        return state

    def _solved(self, episode: Episode) -> _Solving:
        """With the rewards that explain one more episode."""
        fit, settings = self.fit, self.settings
        now = fit.kind.ridge(episode.before)
        if not settings.incremental:
            view = fit.evolution.view(episode, now)
            known = (*self.known, (episode.lesson, now, view)) if episode.by_policy else self.known
            return replace(self, fit=replace(fit, evolution=fit.evolution.passed(episode)), known=known)
        try:
            evolution = fit.evolution.step(episode, now, settings.solve_with(fit.solver))
        except SolverError as error:
            return self._stopped(error)
        return replace(self, fit=replace(fit, evolution=evolution))

    def _stopped(self, error: SolverError) -> _Solving:
        """The exact solver cannot; under "auto" the robust one will."""
        if self.settings.solver != "auto" or self.fit.solver != "hard":
            raise error
        return replace(self, error=error)

    def _tracked(self, episode: Episode) -> _Solving:
        """With what one more episode says of the policy; once each, however often Algorithm 2 starts again."""
        fit, track = self.fit, self.fit.track
        if track is None or track.stored != episode.before.stored:
            return self
        try:
            # A belief that numbers cannot hold is an error below, with its remedy, not a warning from NumPy.
            with np.errstate(over="ignore", invalid="ignore"):
                track = track.after(episode)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            notes = (*fit.tracking, not_tracked(episode.before.stored, error))
            # What was judged by it is not what will be said.
            return replace(self, fit=replace(fit, track=None, tracking=notes), sampling=None, judge=None)
        return replace(self, fit=replace(fit, track=track))

    def finish(self) -> Fitted:
        """The fit, and why the exact solver has stopped, should it have."""
        state = self
        if self.known and self.error is None:
            try:
                evolution = self.fit.evolution.jointly(self.known, self.settings.solve_with(self.fit.solver))
                state = replace(self, fit=replace(self.fit, evolution=evolution))
            except SolverError as error:
                state = self._stopped(error)
        fit = state.fit
        if self.sampling is not None and fit.track is not None:
            fit = replace(fit, choosing=(*fit.choosing, *self.sampling.finish(fit.track)))
        return Fitted(fit, self.judge, state.error)
