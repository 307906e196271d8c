"""Algorithms 2 and 3: the walk through the episodes of a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ibcb.engine import Rows, Workers, episodes
from ibcb.inverse.constraints import EpisodeView, Experience, JointView, Tally, View, experienced
from ibcb.inverse.solvers import Certificate, Solution
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.log.fingerprint import NO_LOG, with_episode
from ibcb.numerics.ridge import Ridge, ridge

__all__ = ["EpisodeDiagnosis", "Evolution", "Solver", "Watcher"]


class EpisodeDiagnosis(NamedTuple):
    """How one episode was solved, and how well it was foreseen.

    ``status`` is "no history" where nothing had been learned yet, so that the episode gives no rows. ``next_agreement``
    is the share of its choices predicted from the episodes before it, exploration included: evidence that needs no
    rewards; None while those had taught nothing, and with incremental=False. ``certificate`` names contradicting steps
    where the episode was found infeasible.
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


Solver = Callable[[View, NDArray[np.float64]], Solution]
#: called with each stored episode: its place, its rows (None if the policy did not choose it), what came before, and
#: what it teaches
Watcher = Callable[[int, Rows | None, Ridge, Experience], None]


class Evolution:
    """The state of Algorithm 2 between two episodes.

    Parameters
    ----------
    phi : ndarray of shape (d, d)
        Gram matrix of the contexts chosen before the first episode.
    l2 : float
    margin : float or None
        Of SBTS rows; None for SBUCB rows.
    prune : bool
        Algorithm 3: solve again without the rows that the first solution violates.

    Attributes
    ----------
    theta : ndarray of shape (d,)
        Reward parameters for alpha = 1.
    policies : list of ndarray of shape (d,)
        Policy parameters that made each episode's choices, for alpha = 1.
    diagnostics : list of EpisodeDiagnosis
    fingerprint : str
        Of the log so far.
    """

    def __init__(self, phi: NDArray[np.float64], l2: float, margin: float | None, prune: bool) -> None:
        self.phi, self.l2, self.margin, self.prune = phi, l2, margin, prune
        self.theta = np.zeros(len(phi))
        self.policies: list[NDArray[np.float64]] = []
        self.diagnostics: list[EpisodeDiagnosis] = []
        self.fingerprint = NO_LOG
        #: episodes so far, the warm-up's counted
        self.stored = 0

    def copy(self) -> Evolution:
        twin = Evolution(self.phi, self.l2, self.margin, self.prune)
        twin.theta, twin.fingerprint, twin.stored = self.theta, self.fingerprint, self.stored
        twin.policies, twin.diagnostics = self.policies.copy(), self.diagnostics.copy()
        return twin

    def ridge(self) -> Ridge:
        """Of all choices so far: what the next episode's choices will be made with."""
        return ridge(self.phi, self.l2)

    def add_log(
        self,
        log: BehaviorLog | DiskLog,
        solver: Solver,
        *,
        watch: Watcher | None = None,
        progress: bool = False,
        client: Any = None,
        team: Workers | None = None,
    ) -> None:
        """Algorithm 2 (with ``prune`` Algorithm 3) over the episodes of a log; ``watch`` sees them too."""
        # disable=None: silent unless stderr is a terminal.
        hidden = None if progress else True
        every = episodes(log, client=client, team=team)
        bar = tqdm(every, total=_stored(log), desc="fit", unit="episode", delay=1, leave=False, disable=hidden)
        for by_policy, rows in bar:
            now = self.ridge()
            view = self._view(rows, now) if by_policy else None
            experience = view.experience if view else Experience.join(list(rows.map(experienced)))
            if watch is not None:
                watch(self.stored, rows if by_policy else None, now, experience)
            if view is not None:
                taught = self.theta.any()
                solution = self._solve(view, solver)
                self.theta = solution.theta
                foreseen = solution.before.agreeing / len(experience.chosen) if taught else None
                self._record(experience, now, solution, solution.after, foreseen)
            elif by_policy:
                self._record(experience, now)
            # After the episode: its own choices were made before this update.
            self._remember(experience, by_policy)

    def add_jointly(
        self,
        log: BehaviorLog | DiskLog,
        solver: Solver,
        *,
        watch: Watcher | None = None,
        client: Any = None,
        team: Workers | None = None,
    ) -> None:
        """One problem over all episodes (the paper's non-incremental form)."""
        known: list[tuple[Experience, Ridge, EpisodeView | None]] = []
        # All episodes are visited again and again, so none is kept.
        for by_policy, rows in episodes(log, keep=0, client=client, team=team):
            now = self.ridge()
            view = self._view(rows, now, len(known)) if by_policy else None
            experience = view.experience if view else Experience.join(list(rows.map(experienced)))
            if watch is not None:
                watch(self.stored, rows if by_policy else None, now, experience)
            if by_policy:
                known.append((experience, now, view))
            self._remember(experience, by_policy)
        views = [view for _, _, view in known if view is not None]
        solution = self._solve(JointView(views), solver) if views else None
        if solution is not None:
            self.theta = solution.theta
        for experience, now, view in known:
            if view is None:
                self._record(experience, now)
            else:
                self._record(experience, now, solution, view.tally(self.theta))

    def attach(self, certificate: Certificate) -> None:
        """Note a certificate with the episodes it speaks of."""
        for number in {row.episode for row in certificate}:
            self.diagnostics[number] = self.diagnostics[number]._replace(certificate=certificate)

    def _view(self, rows: Rows, now: Ridge, number: int | None = None) -> EpisodeView | None:
        if not now.phi.any():
            # Nothing had been chosen before: G = 0, and the rows read 0 <= b.
            return None
        return EpisodeView(rows, now, margin=self.margin, episode=len(self.policies) if number is None else number)

    def _solve(self, view: View, solver: Solver) -> Solution:
        solution = solver(view, self.theta)
        if self.prune and solution.after.violated:
            kept = solver(view.without_violated(solution.theta), self.theta)
            passes = solution.iterations + kept.iterations
            return replace(kept, iterations=passes, before=solution.before, after=view.tally(kept.theta))
        return solution

    def _remember(self, experience: Experience, by_policy: bool) -> None:
        self.phi = self.phi + experience.phi
        self.stored += 1
        named_by = (experience.counts, experience.chosen, experience.phi)
        self.fingerprint = with_episode(self.fingerprint, *named_by, by_policy=by_policy)

    def _record(
        self,
        experience: Experience,
        now: Ridge,
        solution: Solution | None = None,
        after: Tally | None = None,
        foreseen: float | None = None,
    ) -> None:
        number = len(self.policies)
        self.policies.append(now.shrinkage @ self.theta)
        if solution is None or after is None:
            entry = EpisodeDiagnosis(number, len(experience.chosen), "no history", 0, 0, 0.0, 0.0, None, None)
        else:
            solved = (solution.status, solution.iterations, after.violated, after.max_violation, solution.gap)
            entry = EpisodeDiagnosis(number, len(experience.chosen), *solved, foreseen, None)
        self.diagnostics.append(entry)


def _stored(log: BehaviorLog | DiskLog) -> int | None:
    """How many episodes are stored, where that is known."""
    return len(log) + log.warmup if isinstance(log, BehaviorLog) else log.n_episodes
