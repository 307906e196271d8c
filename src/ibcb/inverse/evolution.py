"""Algorithms 2 and 3: the walk through the episodes of a log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np

from ibcb.engine import Episode, Experience, History
from ibcb.inverse.constraints import EpisodeView, JointView, View
from ibcb.inverse.row_kernels import Tally
from ibcb.inverse.solvers import Certificate, Solution, Solver, SolverError
from ibcb.numerics.arrays import Matrix, Stored, Vector, changed
from ibcb.numerics.metric import Metric
from ibcb.numerics.ridge import Ridge


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


@dataclass(frozen=True)
class Evolution:
    """Algorithm 2 between two episodes; it is never changed, `step` gives the next one.

    Attributes
    ----------
    history : History
        What lies before the next episode.
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
    names : tuple of str
        Of the log after each stored episode: what belongs to it is known from its first episode on.
    """

    history: History
    metric: Metric | None
    margin: float | None
    prune: bool
    theta: Annotated[Vector, Stored("d")]
    policies: Annotated[Matrix, Stored("N d")]
    diagnostics: tuple[EpisodeDiagnosis, ...]
    names: tuple[str, ...] = ()

    @classmethod
    def begin(cls, history: History, metric: Metric | None, margin: float | None, prune: bool) -> Evolution:
        """Before the first episode."""
        d = len(history.chosen.phi)
        return cls(history, metric, margin, prune, np.zeros(d), np.empty((0, d)), ())

    def step(self, episode: Episode, now: Ridge, solver: Solver) -> Evolution:
        """Algorithm 2 (with ``prune`` Algorithm 3): one more episode; ``now``: of the choices before it."""
        view = self.view(episode, now)
        state = self
        if view is not None:
            solution = self._solve(view, solver)
            predicted = solution.before.agreeing / len(episode.lesson.chosen) if self.theta.any() else None
            state = self._recorded(episode.lesson, now, solution, solution.after, predicted)
        elif episode.by_policy:
            state = self._recorded(episode.lesson, now)
        # After the episode: its own choices were made before this update.
        return state.passed(episode)

    def view(self, episode: Episode, now: Ridge) -> EpisodeView | None:
        """The rows of an episode; None where it gives none: where nothing had been chosen before, they read 0 <= b."""
        if not (episode.by_policy and now.phi.any()):
            return None
        view = EpisodeView(episode.rows, now, metric=self.metric, margin=self.margin, episode=episode.number)
        episode.worked_up(view.prepared, view.experience)
        return view

    def jointly(self, known: Sequence[tuple[Experience, Ridge, EpisodeView | None]], solver: Solver) -> Evolution:
        """One problem over all episodes that the policy chose (the paper's non-incremental form), `passed` before.

        ``known``: of each, what it teaches, what the choices before it leave behind, and its view.
        """
        views, state = [view for _, _, view in known if view is not None], self
        solution = self._solve(JointView(views), solver) if views else None
        for experience, now, view in known:
            tally = None if view is None or solution is None else view.tally(solution.theta)
            state = state._recorded(experience, now, solution, tally)
        return state

    def passed(self, episode: Episode) -> Evolution:
        """With what an episode taught the decider, and nothing of what it says."""
        return changed(self, history=episode.after, names=(*self.names, episode.after.fingerprint))

    def with_certificate(self, certificate: Certificate) -> Evolution:
        """With a certificate noted at the episodes it speaks of."""
        named = {row.episode for row in certificate}
        entries = (
            entry._replace(certificate=certificate) if entry.episode in named else entry for entry in self.diagnostics
        )
        return changed(self, diagnostics=tuple(entries))

    def _solve(self, view: View, solver: Solver) -> Solution:
        solution = solver(view, self.theta)
        if self.prune and solution.after.violated:
            kept = solver(view.without_violated(solution.theta), self.theta)
            passes = solution.iterations + kept.iterations
            return replace(kept, iterations=passes, before=solution.before, after=view.tally(kept.theta))
        return solution

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
            if not (math.isfinite(after.max_violation) and math.isfinite(solution.gap)):
                raise SolverError(
                    f"episode {number}: a solution was found ({solution.status}), but its largest violation, "
                    f"{after.max_violation:.3g}, and duality gap, {solution.gap:.3g}, prove nothing: numbers leave the "
                    "range of floating point. Rescale the contexts to about 1."
                )
            solved = (solution.status, solution.iterations, after.violated, after.max_violation, solution.gap)
            entry = EpisodeDiagnosis(number, len(experience.chosen), *solved, predicted, None)
        theta = self.theta if solution is None else solution.theta
        policies = np.concatenate([self.policies, (now.shrinkage @ theta)[None]])
        return changed(self, theta=theta, policies=policies, diagnostics=(*self.diagnostics, entry))
