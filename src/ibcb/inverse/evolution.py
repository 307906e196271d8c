"""Algorithms 2 and 3: the walk through the episodes of a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ibcb.engine import Rows, Workers, episodes
from ibcb.inverse.constraints import EpisodeView, Experience, JointView, Tally, View, experienced
from ibcb.inverse.solvers import Certificate, Solution, Solver, SolverError
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.log.fingerprint import NO_LOG, with_episode
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Chosen, Regularization, Ridge

__all__ = ["EpisodeDiagnosis", "Evolution", "Watcher"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class EpisodeDiagnosis(NamedTuple):
    """How one episode was solved, and how well it was predicted.

    ``status`` is "no history" if nothing had been learned yet, so that the episode gives no rows. ``next_agreement`` is
    the share of its choices predicted one episode ahead, exploration included; None while nothing had been learned, and
    with incremental=False. ``certificate`` names the contradicting steps of an infeasible episode.
    """

    episode: int
    steps: int
    status: str
    iterations: int
    violated: int
    max_violation: float
    gap: float
    next_agreement: float | None
    certificate: Certificate | None


#: called with each stored episode: its place, its rows (None if the policy did not choose it), what came before, and
#: what it teaches
Watcher = Callable[[int, Rows | None, Ridge, Experience], None]


@dataclass(frozen=True)
class Evolution:
    """Algorithm 2 between two episodes; it is never changed, `after` gives the next one.

    Attributes
    ----------
    chosen : Chosen
        The contexts chosen so far, those before the first episode included.
    regularization : Regularization
        Of the decider.
    metric : Metric or None
        In which theta moves as little as it can; None: Euclid's.
    margin : float or None
        Of SBTS rows; None for SBUCB rows.
    prune : bool
        Algorithm 3: solve again without the rows that the first solution violates.
    theta : ndarray of shape (d,)
        Reward parameters for alpha = 1.
    policies : ndarray of shape (N, d)
        Policy parameters that made each episode's choices, for alpha = 1.
    diagnostics : tuple of EpisodeDiagnosis
    fingerprint : str
        Of the log so far.
    stored : int
        Episodes so far, the warm-up's counted.
    """

    chosen: Chosen
    regularization: Regularization
    metric: Metric | None
    margin: float | None
    prune: bool
    theta: Annotated[Vector, "d"]
    policies: Annotated[Matrix, "N d"]
    diagnostics: tuple[EpisodeDiagnosis, ...]
    fingerprint: str
    stored: int

    @classmethod
    def begin(
        cls, gram: Matrix, regularization: Regularization, metric: Metric | None, margin: float | None, prune: bool
    ) -> Evolution:
        """Before the first episode; ``gram`` is of the contexts chosen before it."""
        d, chosen = len(gram), Chosen.before_the_log(gram)
        return cls(chosen, regularization, metric, margin, prune, np.zeros(d), np.empty((0, d)), (), NO_LOG, 0)

    def ridge(self) -> Ridge:
        """Of all choices so far: what the next episode's choices will be made with."""
        return self.regularization.ridge(self.chosen)

    def after(
        self,
        log: BehaviorLog | DiskLog,
        solver: Solver,
        *,
        watch: Watcher | None = None,
        progress: bool = False,
        client: Any = None,
        team: Workers | None = None,
    ) -> Evolution:
        """Algorithm 2 (with ``prune`` Algorithm 3) over the episodes of a log; ``watch`` sees them too."""
        # disable=None: silent unless stderr is a terminal.
        hidden = None if progress else True
        every = episodes(log, client=client, team=team)
        bar = tqdm(every, total=_stored(log), desc="fit", unit="episode", delay=1, leave=False, disable=hidden)
        state = self
        for by_policy, rows in bar:
            now = state.ridge()
            view, experience = state._seen(by_policy, rows, now, len(state.policies), watch)
            if view is not None:
                taught = state.theta.any()
                solution = state._solve(view, solver)
                predicted = solution.before.agreeing / len(experience.chosen) if taught else None
                state = replace(state, theta=solution.theta)._recorded(
                    experience, now, solution, solution.after, predicted
                )
            elif by_policy:
                state = state._recorded(experience, now)
            # After the episode: its own choices were made before this update.
            state = state._taught(experience, by_policy)
        return state

    def after_jointly(
        self,
        log: BehaviorLog | DiskLog,
        solver: Solver,
        *,
        watch: Watcher | None = None,
        client: Any = None,
        team: Workers | None = None,
    ) -> Evolution:
        """One problem over all episodes (the paper's non-incremental form)."""
        known: list[tuple[Experience, Ridge, EpisodeView | None]] = []
        state = self
        # All episodes are visited again and again, so none is kept.
        for by_policy, rows in episodes(log, keep=0, client=client, team=team):
            now = state.ridge()
            view, experience = state._seen(by_policy, rows, now, len(known), watch)
            if by_policy:
                known.append((experience, now, view))
            state = state._taught(experience, by_policy)
        views = [view for _, _, view in known if view is not None]
        solution = state._solve(JointView(views), solver) if views else None
        if solution is not None:
            state = replace(state, theta=solution.theta)
        for experience, now, view in known:
            tally = None if view is None else view.tally(state.theta)
            state = state._recorded(experience, now, solution, tally)
        return state

    def with_certificate(self, certificate: Certificate) -> Evolution:
        """With a certificate noted at the episodes it speaks of."""
        named = {row.episode for row in certificate}
        entries = (
            entry._replace(certificate=certificate) if entry.episode in named else entry for entry in self.diagnostics
        )
        return replace(self, diagnostics=tuple(entries))

    def _seen(
        self, by_policy: bool, rows: Rows, now: Ridge, number: int, watch: Watcher | None
    ) -> tuple[EpisodeView | None, Experience]:
        """The view of an episode, None where it gives no rows, and what it teaches."""
        view = None
        # Where nothing had been chosen before, G = 0, and the rows read 0 <= b.
        if by_policy and now.phi.any():
            view = EpisodeView(rows, now, metric=self.metric, margin=self.margin, episode=number)
        experience = view.experience if view else Experience.join(list(rows.map(experienced)))
        if watch is not None:
            watch(self.stored, (view.prepared if view else rows) if by_policy else None, now, experience)
        return view, experience

    def _solve(self, view: View, solver: Solver) -> Solution:
        solution = solver(view, self.theta)
        if self.prune and solution.after.violated:
            kept = solver(view.without_violated(solution.theta), self.theta)
            passes = solution.iterations + kept.iterations
            return replace(kept, iterations=passes, before=solution.before, after=view.tally(kept.theta))
        return solution

    def _taught(self, experience: Experience, by_policy: bool) -> Evolution:
        """After the update that follows an episode."""
        named_by = (experience.counts, experience.chosen, experience.phi)
        return replace(
            self,
            chosen=self.chosen.and_then(len(experience.chosen), experience.total, experience.phi),
            stored=self.stored + 1,
            fingerprint=with_episode(self.fingerprint, *named_by, by_policy=by_policy),
        )

    def _recorded(
        self,
        experience: Experience,
        now: Ridge,
        solution: Solution | None = None,
        after: Tally | None = None,
        predicted: float | None = None,
    ) -> Evolution:
        number = len(self.policies)
        if solution is None or after is None:
            entry = EpisodeDiagnosis(number, len(experience.chosen), "no history", 0, 0, 0.0, 0.0, None, None)
        else:
            if not np.isfinite([after.max_violation, solution.gap]).all():
                raise SolverError(
                    f"episode {number}: a solution was found ({solution.status}), but its largest violation, "
                    f"{after.max_violation:.3g}, and duality gap, {solution.gap:.3g}, prove nothing: numbers leave the "
                    "range of floating point. Rescale the contexts to about 1."
                )
            solved = (solution.status, solution.iterations, after.violated, after.max_violation, solution.gap)
            entry = EpisodeDiagnosis(number, len(experience.chosen), *solved, predicted, None)
        policies = np.vstack([self.policies, now.shrinkage @ self.theta])
        return replace(self, policies=policies, diagnostics=(*self.diagnostics, entry))


def _stored(log: BehaviorLog | DiskLog) -> int | None:
    """How many episodes are stored, where that is known."""
    return len(log) + log.warmup if isinstance(log, BehaviorLog) else log.n_episodes
