"""What fitting finds, as one value: solve the log by Algorithm 2, track the policy beside it, choose what is left open.

A `Fit` is never changed. `fit_logs` makes one, `continued` makes the next one from it. So an interrupted fit leaves a
model as it was, and whatever a model says of itself it says of one and the same fit. Where something is left open, or
the kind is only tracked, `choose` goes through the log first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import KINDS, Kind
from ibcb.engine import CandidateMoments, Rows, first_steps, one_blas_thread, workers
from ibcb.estimators.outliers import largest_outlier
from ibcb.estimators.remarks import no_exact_solution, not_tracked, reason
from ibcb.estimators.sampling import looks_sampled
from ibcb.inverse.constraints import Experience
from ibcb.inverse.evolution import Evolution
from ibcb.inverse.solvers import SOLVERS, InfeasibleError, Solver, SolverError, SolverSettings
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.log.notes import Note
from ibcb.log.validation.first_episode import missing_past
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Frame, Ridge
from ibcb.tracking import Track
from ibcb.tracking.contenders import Tracks, UntrackedError
from ibcb.tracking.selection import Candidate, Selection, select

__all__ = ["Fit", "Settings", "choose", "continued", "fit_logs"]

Log = BehaviorLog | DiskLog
Matrix = NDArray[np.float64]

#: values of top_k that "auto" chooses from: the fair deciders of the paper's tables
BEST_OF = (2, 3, 4)


@dataclass(frozen=True)
class Settings:
    """The parameters of an `IBCB` that fitting depends on, checked; ``prior_gram`` as a matrix, in choices of the log.

    ``moments`` are those of the candidates with which the log begins.
    """

    expert: str
    draws: str
    l2: float | str
    top_k: int | str
    rate: float
    margin: float
    solver: str
    incremental: bool
    prune: bool
    solving: SolverSettings
    forecast: bool
    prior_gram: Matrix
    late_start: bool
    n_jobs: int | None
    verbose: bool
    client: Any
    moments: CandidateMoments

    @property
    def open(self) -> list[str]:
        """The parameters that the log has to decide."""
        named = {"expert": self.expert}
        if self._learns:
            named["l2"] = str(self.l2)
        if self.expert != "auto" and self._kinds[0].draws_from_best:
            named["top_k"] = str(self.top_k)
        return [f"{name}='auto'" for name, value in named.items() if value == "auto"]

    @property
    def doubtful(self) -> bool:
        """Whether l2 was given for features whose units differ: the decider may have had them in others."""
        return self._learns and self.l2 != "auto" and self.solver != "paper" and self.moments.mixed

    @property
    def chooses(self) -> bool:
        """Whether the log is gone through twice: first to choose, or to track a kind that is only tracked."""
        return bool(self.open) or self.doubtful or not self._learns

    @property
    def _learns(self) -> bool:
        return any(kind.learns for kind in self._kinds)

    @property
    def _kinds(self) -> list[type[Kind]]:
        """Those that the decider may be of."""
        if self.expert == "auto":
            return list(KINDS.values())
        return [kind for kind in KINDS.values() if kind.name == self.expert and kind.draws_every in (None, self.draws)]

    def candidates(self) -> list[Kind]:
        """The kinds to choose from, with their parameters."""
        kinds = list[Kind]()
        for kind in self._kinds:
            if kind.learns:
                kinds += [kind(l2=float(self.l2))] if self.l2 != "auto" else []
                if self.l2 == "auto" or self.doubtful:
                    kinds += [kind(l2=l2, frame=each) for each in self._frames() for l2 in kind.penalties[each.name]]
            elif kind.draws_from_best:
                best = BEST_OF if self.top_k == "auto" else (int(self.top_k),)
                kinds += [kind(top_k=k, frame=self._frames()[0]) for k in best]
            else:
                kinds.append(kind(frame=self._frames()[0]))
        return [replace(kind, rate=self.rate) for kind in kinds]

    def alone(self) -> Kind:
        """The kind while there is one episode, which tells nothing of l2: 1, in units of the features, unless given."""
        kind = partial(self._kinds[0], rate=self.rate)
        return kind(frame=self._frames()[0]) if self.l2 == "auto" else kind(l2=float(self.l2))

    def _frames(self) -> list[Frame]:
        # What was chosen before the log has no known mean.
        past = self.prior_gram.any()
        return [frame for frame in self.moments.frames() if not (past and frame.origin.any())]

    def solve_with(self, mode: str) -> Solver:
        """The solver of that name."""
        return SOLVERS[mode].make(self.solving)


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


class _Watcher:
    """Lets a track learn from the episodes that Algorithm 2 goes through, once each, however often it starts again."""

    def __init__(self, track: Track | None) -> None:
        self.track, self.notes = track, tuple[Note, ...]()

    def __call__(self, place: int, rows: Rows | None, before: Ridge, lesson: Experience) -> None:
        if self.track is None or place != self.track.stored:
            return
        try:
            # A belief that numbers cannot hold is an error below, with its remedy, not a warning from NumPy.
            with np.errstate(over="ignore", invalid="ignore"):
                self.track = self.track.after(rows, before, lesson)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            self.track, self.notes = None, (not_tracked(place, error),)


def choose(
    logs: Sequence[Log], settings: Settings, begun: Tracks | None = None, watch: Callable[[Tracks], None] | None = None
) -> Selection:
    """What is left open, by all episodes; ``begun`` and ``watch`` as in `select`."""
    with one_blas_thread(), workers(settings.n_jobs) as team:
        try:
            return select(
                logs,
                settings.candidates(),
                settings.prior_gram,
                begun=begun,
                watch=watch,
                progress=settings.verbose,
                client=settings.client,
                team=team,
            )
        except (UntrackedError, SolverError) as error:
            told = largest_outlier(logs, settings.client)
            if not told:
                raise
            raise type(error)(f"{error} {told}") from error


def fit_logs(logs: Sequence[Log], settings: Settings, found: Selection | None = None) -> Fit:
    """Fit a whole log, in one piece or several; or the first episode of one by which ``found`` was chosen."""
    if found is None and settings.chooses and sum(len(log) for log in logs) > 1:
        found = choose(logs, settings)
    with one_blas_thread(), workers(settings.n_jobs) as team:
        if found is not None:
            kind, scale = found.track.kind, found.scale
            track = found.track if settings.forecast or not kind.learns else None
            choosing, evidence = found.notes, found.evidence
        else:
            kind = settings.alone()
            scale, choosing, evidence = 1.0, tuple[Note, ...](), tuple[Candidate, ...]()
            track = Track.begin(kind, settings.prior_gram) if settings.forecast else None
        watcher = _Watcher(track)
        evolution, solver, solving = _solve(logs, kind, settings, watcher, team)
        if settings.rate == 1 and watcher.track is not None and settings.client is None:
            choosing += looks_sampled(logs, kind, settings.prior_gram, team)
    return Fit(kind, scale, evolution, solver, watcher.track, solving, choosing, watcher.notes, evidence)


def continued(fit: Fit, log: Log, seen: Sequence[Log] | None, settings: Settings) -> Fit:
    """One more episode. ``seen``: the logs so far, should all have to be solved again; None where nobody has them."""
    watcher = _Watcher(fit.track)
    solver, solving = fit.solver, fit.solving
    with one_blas_thread(), workers(settings.n_jobs) as team:
        try:
            where: dict[str, Any] = {"watch": watcher, "client": settings.client, "team": team}
            evolution = fit.evolution.after(log, settings.solve_with(fit.solver), **where)
        except SolverError as error:
            if settings.solver != "auto" or fit.solver != "hard":
                raise
            if seen is None:
                raise SolverError(
                    f"episode {len(fit.evolution.policies)} has no exact solution ({reason(error)}), so solver='auto' "
                    "would solve all episodes again in robust mode, but a model that was stored keeps no logs. Call "
                    "fit on the whole log, or start with solver='robust'."
                ) from error
            evolution, solver, solving = _solve([*seen, log], fit.kind, settings, watcher, team)
    return replace(
        fit,
        evolution=evolution,
        solver=solver,
        solving=solving,
        track=watcher.track,
        tracking=(*fit.tracking, *watcher.notes),
    )


def _solve(
    logs: Sequence[Log], kind: Kind, settings: Settings, watcher: _Watcher, team: Any
) -> tuple[Evolution, str, tuple[Note, ...]]:
    """Solve the logs in order; under "auto" a second time, in robust mode, if the exact solver cannot."""

    def walk(mode: str) -> Evolution:
        margin = None if kind.adds_bonus else settings.margin
        # As little as possible, in scores of candidates; of the paper's solver in Euclid's length.
        shown = max(1, int(np.count_nonzero(settings.moments.shown)))
        metric = None if mode == "paper" else Metric(shown * settings.moments.metric)
        evolution = Evolution.begin(settings.prior_gram, kind.regularization, metric, margin, settings.prune)
        where: dict[str, Any] = {"watch": watcher, "client": settings.client, "team": team}
        for log in logs:
            if settings.incremental:
                evolution = evolution.after(log, settings.solve_with(mode), progress=settings.verbose, **where)
            else:
                evolution = evolution.after_jointly(log, settings.solve_with(mode), **where)
        return evolution

    late = _late_start(logs[0], kind, settings)
    if settings.solver != "auto" or not kind.learns:
        mode = "robust" if settings.solver == "auto" else settings.solver
        return walk(mode), mode, late
    try:
        return walk("hard"), "hard", late
    except SolverError as error:
        evolution = walk("robust")
        if isinstance(error, InfeasibleError):
            evolution = evolution.with_certificate(error.certificate)
        return evolution, "robust", (no_exact_solution(error, kind), *late)


def _late_start(log: Log, kind: Kind, settings: Settings) -> tuple[Note, ...]:
    """Whether the first episode looks as if there had been others before it."""
    if settings.late_start or log.warmup or not kind.learns:
        return ()
    first, found = first_steps(log), list[Note]()
    # In whichever units the decider had its features: one that knows nothing in some of them may know nothing.
    for frame in (None, *settings.moments.frames()):
        missing = missing_past(first, bonus=kind.adds_bonus, frame=frame)
        if missing is None:
            return ()
        found.append(missing)
    return tuple(found[:1])
