"""What a fitted model answers: its decider's policies, how well they are known, and what it will do next.

Everything is made from one `Fit`, and seen through the `Lens` that the log was tracked through.
"""

from __future__ import annotations

from copy import copy
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from ibcb import tracking
from ibcb.deciders import DRAWS, Kind, Life
from ibcb.engine import ALL, History
from ibcb.estimators.fitting import Fit
from ibcb.estimators.imitator import Imitator, as_candidates
from ibcb.estimators.parameters import Parameters
from ibcb.estimators.published import (
    added_weights,
    exploration_weight,
    policy_ahead,
    recovered,
    rewards,
    sampled,
    unit_of,
)
from ibcb.estimators.reduction import WIDE, Lens
from ibcb.inverse.evolution import EpisodeDiagnosis
from ibcb.log import BehaviorLog, Log
from ibcb.log.notes import Note
from ibcb.numerics.checks import boolean, finite_array, gram_matrix, one_of, positive, whole
from ibcb.tracking import Futures, Interval, Track
from ibcb.tracking.posterior import Plausible
from ibcb.tracking.selection import Candidate

#: steps whose certainty is computed at once: every row has a score under each of the policies drawn
_STEPS_AT_ONCE = 1024
#: updates that a forecast may be ahead: seconds of work
_MOST_UPDATES = 10_000
_IMAGINED = "it counts updates from the last logged policy on, each of which is imagined"
_AHEAD = f"{_IMAGINED}; policy_interval() is of the last logged policy itself"
#: futures behind an interval of a forecast, and their seed; and the most that may be asked for, minutes of work
_FUTURES, _FUTURES_SEED, _MOST_DRAWS = 64, 0, 100_000


class Drawn(NamedTuple):
    """Joint draws of what a decider may be some updates after the log.

    Attributes
    ----------
    policies : ndarray of shape (n, d)
        At the scale of ``policy_coefs_``.
    rules, motions : tuple of str
        How each draw chooses, and the model by which its policy moves.
    rewards : ndarray of shape (n, d + 1)
        At the scale of ``coef_``, the intercept last; NaN where it is not known how the decider learns.
    """

    policies: NDArray[np.float64]
    rules: tuple[str, ...]
    motions: tuple[str, ...]
    rewards: NDArray[np.float64]


class Answering(Imitator, Parameters):
    """What `IBCB` can be asked once it is fitted."""

    intercept_: float
    policy_coefs_: NDArray[np.float64]
    expert_: str
    rules_: tuple[Plausible, ...]
    motions_: tuple[Plausible, ...]
    l2_: float
    units_: str
    top_k_: int | None
    draws_: str | None
    epsilon_: float | None
    temperature_: float | None
    evidence_: tuple[Candidate, ...]
    diagnostics_: list[EpisodeDiagnosis]
    solver_: str
    forecast_model_: str | None
    forecast_note_: Note | None
    unidentified_features_: tuple[str, ...] | None
    notes_: tuple[Note, ...]
    _fit: Fit
    _fitted_with: dict[str, Any]
    _lens: Lens
    _futures: dict[int, Futures]

    # No metadata routing, as of all that imitate.
    __metadata_request__predict: ClassVar[dict[str, Any]] = {"log": UNUSED, "updates": UNUSED}

    @property
    def decider_(self) -> Kind:
        """The kind of decider with its parameters, as given or chosen: what it does, and words for it."""
        check_is_fitted(self, "coef_")
        return self._fit.kind

    def forecast(self, updates: int = 1) -> NDArray[np.float64]:
        """The policy parameters ``updates`` updates after those that made the last episode's choices.

        1 is the policy right after the log, the first that has learned from its last episode. If the decider was found
        to learn as ridge regression does, it is projected forward, choosing among candidates like those it has seen; if
        that predicts hardly more than a policy that stays, by one update only. Otherwise every forecast is its last
        policy. ``notes_`` says which. At the scale of ``policy_coefs_``.

        Returns
        -------
        policy : ndarray of shape (d,)
        """
        check_is_fitted(self, "coef_")
        updates = whole("updates", updates, 0, _IMAGINED, most=_MOST_UPDATES)
        return self._lens.expanded(policy_ahead(self._fit, self._known("to forecast"), self._alpha, updates))

    def forecast_interval(self, updates: int = 1, level: float = 0.9, *, direction: bool = False) -> Interval:
        """Interval of each weight of a `forecast`, which holds the true weight with the given probability.

        By draws of what is believed, each rolled forward: it chooses among candidates like those it has seen, and
        learns from rewards with noise. A policy that does not learn moves as it has done so far. Draws are made once
        for each number of updates.

        Parameters
        ----------
        updates : int
            As of `forecast`, 1 or more; `policy_interval` is of the last logged policy.
        level : float
            The probability, between 0 and 1.
        direction : bool
            True: intervals of the weights at the length that `direction` gives them, which is known better.

        Returns
        -------
        interval : Interval
            ``estimate``, ``lower`` and ``upper``, each of shape (d,); ``estimate`` is the forecast. Features in
            ``unidentified_features_`` have no bounds.
        """
        check_is_fitted(self, "coef_")
        updates = whole("updates", updates, 1, _AHEAD, most=_MOST_UPDATES)
        level, track = _probability(level), self._known("for intervals")
        rolled, estimate = self._rolled(updates), tracking.forecast(track, updates)
        bounds = tracking.forecast_interval(track, rolled, estimate, level, direction=direction)
        return self._bounded(bounds, 1.0 if direction else unit_of(self._fit, self._alpha))

    def sample(self, n: int, *, updates: int = 1, random_state: int | np.random.Generator | None = 0) -> Drawn:
        """Joint draws of what the decider may be, ``updates`` updates after the policy of the last episode.

        Parameters
        ----------
        n : int
        updates : int
            As of `forecast`, 1 or more.
        random_state : int, Generator or None

        Returns
        -------
        sample : Drawn
            ``policies`` of shape (n, d), ``rules`` and ``motions`` by name, and ``rewards`` of shape (n, d + 1), the
            intercept last.

        Examples
        --------
        >>> import ibcb
        >>> run = ibcb.simulate("synthetic", n_episodes=5, batch_size=200, seed=0)
        >>> model = ibcb.IBCB(l2=0.3).fit(run.log)
        >>> sample = model.sample(8, updates=3)
        >>> sample.policies.shape, sample.rewards.shape
        ((8, 10), (8, 11))
        """
        check_is_fitted(self, "coef_")
        n = whole("n", n, 1, "it is a number of draws", most=_MOST_DRAWS)
        updates = whole("updates", updates, 1, _AHEAD, most=_MOST_UPDATES)
        track = self._known("for draws")
        drawn = tracking.futures(track, updates, n, np.random.default_rng(random_state))
        policies, earned, motions = sampled(self._fit, drawn, self._alpha)
        earned = np.column_stack([self._lens.expanded(earned[:, :-1]), earned[:, -1]])
        return Drawn(self._lens.expanded(policies), (track.kind.rule.name,) * n, motions, earned)

    def predict(self, log: BehaviorLog | ArrayLike, *, updates: int = 1) -> Any:
        """Index of the candidate the policy picks: the best score, the first of equals.

        Parameters
        ----------
        log : BehaviorLog, DataFrame, or array of shape (M, d) or (steps, M, d), or a list of arrays (M_b, d)
            A DataFrame, or another table with the Arrow interface, is read as `ibcb.read_log` does, its features made
            as those of the fitted log.
        updates : int
            By which policy: as of `forecast`, 1 is right after the log.

        Returns
        -------
        chosen : ndarray of shape (steps,); an int for one candidate set (M, d)
        """
        check_is_fitted(self, "coef_")
        if whole("updates", updates, 0, _IMAGINED, most=_MOST_UPDATES) == 1:
            return super().predict(log)
        later = copy(self)
        later.next_policy_coef_ = self.forecast(updates)
        return super(Answering, later).predict(log)

    def policy_at(self, episode: int) -> NDArray[np.float64]:
        """The policy parameters that make the choices of an episode, counted from 0; after the log they are forecast.

        Within the log a row of ``policy_coefs_``, right after it ``next_policy_coef_``, further on a `forecast`.

        Returns
        -------
        policy : ndarray of shape (d,)
        """
        check_is_fitted(self, "coef_")
        last = len(self.policy_coefs_) - 1
        why = f"episodes are counted from 0, and at most {_MOST_UPDATES} are imagined after the log"
        ahead = whole("episode", episode, 0, why, most=last + _MOST_UPDATES) - last
        if ahead > 0:
            return self.next_policy_coef_ if ahead == 1 else self.forecast(ahead)
        logged: NDArray[np.float64] = self.policy_coefs_[episode]
        return logged

    def policy_interval(self, level: float = 0.9, *, direction: bool = False) -> Interval:
        """Interval of each weight of the last episode's policy, which holds the true weight with the given probability.

        The estimate is the last row of ``policy_coefs_``. If the decider was not seen to learn and explores little, the
        choices reveal the direction of its weights well, but hardly their length. ``unidentified_features_``, which the
        choices do not determine, have no bounds.

        Parameters
        ----------
        level : float
            The probability, between 0 and 1.
        direction : bool
            True: intervals of the weights at the length that `direction` gives them.

        Returns
        -------
        interval : Interval
            ``estimate``, ``lower`` and ``upper``, each of shape (d,).
        """
        track = self._known("for intervals")
        bounds = tracking.interval(track, _probability(level), direction=direction)
        return self._bounded(bounds, 1.0 if direction else unit_of(self._fit, self._alpha))

    def reward_interval(self, level: float = 0.9) -> Interval:
        """Interval of each weight of the rewards, and last of the intercept, at the given probability.

        For ``coef_`` and ``intercept_``; ``unidentified_features_`` have no bounds. If rewards are not linear, the
        intervals are those of the linear rewards that explain how the policy evolved.

        Returns
        -------
        interval : Interval
            ``estimate``, ``lower`` and ``upper``, each of shape (d + 1,).
        """
        track = self._known("for intervals")
        earned = rewards(track)
        if earned is None:
            raise ValueError(
                f"how a decider of the kind {track.kind.name!r} learns is not known, so coef_ is its policy and there "
                "are no rewards to bound; see policy_interval()."
            )
        return self._bounded(tracking.reward_interval(earned, _probability(level)), unit_of(self._fit, self._alpha))

    def exploration_interval(self, level: float = 0.9) -> Interval:
        """Interval of ``epsilon_`` in every episode, or of ``temperature_``, at the given probability.

        Returns
        -------
        interval : Interval
            ``estimate``, ``lower`` and ``upper``. For "egreedy" of shape (N + 1,): epsilon of every episode, and last
            of the next one. For "softmax" of shape (1,).
        """
        track = self._known("for intervals")
        bounds = tracking.exploration_interval(track, _probability(level))
        asked = [each.name for each in track.kind.parameters if each.estimate.told]
        if bounds is None and asked:
            raise ValueError(f"{' and '.join(asked)} is not determined: no candidates differ in their scores.")
        if bounds is None:
            raise ValueError(
                f"a decider of the kind {track.kind.name!r} has neither epsilon nor a temperature; see "
                "policy_interval() for its weights."
            )
        return bounds

    def direction(self, weights: ArrayLike) -> NDArray[np.float64]:
        """Weights at a common length, without what the choices do not determine: the part that choices reveal well.

        At this length the scores of a step's candidates have standard deviation 1 on average, whatever the units of the
        features.

        Parameters
        ----------
        weights : array of shape (d,) or (k, d)
            Such as ``coef_``, ``policy_coefs_`` or a forecast; zeros stay zeros.
        """
        check_is_fitted(self, "coef_")
        given = finite_array(weights, "weights")
        if given.ndim not in (1, 2) or given.shape[-1] != self.n_features_in_:
            raise ValueError(f"weights have shape {given.shape}; expected ({self.n_features_in_},), or rows of these.")
        track, metric, weights = self._fit.track, self._fit.evolution.metric, self._lens.compressed(given)
        if track is not None and track.now is not None:
            return self._lens.expanded(tracking.spread_to_one(track.now.within, tracking.identified(track, weights)))
        unit = np.eye(len(weights.T)) if metric is None else metric.matrix / len(weights.T)
        return self._lens.expanded(tracking.spread_to_one(unit, weights))

    def certainty(self, log: BehaviorLog | ArrayLike, *, updates: int = 1) -> Any:
        """Probability that the decider, right after the log, likes no candidate better than the one `predict` picks.

        Without exploration, and assuming that its policies evolve as ``forecast_model_`` says. NaN if nothing has been
        learned.

        Parameters
        ----------
        log : BehaviorLog, DataFrame, or array of shape (M, d) or (steps, M, d), or a list of arrays (M_b, d)
        updates : int
            Of the policy after so many updates, and of what `predict` picks then: as of `forecast_interval`.

        Returns
        -------
        probability : ndarray of shape (steps,); a float for one candidate set (M, d)
        """
        check_is_fitted(self, "coef_")
        updates = whole("updates", updates, 1, _AHEAD, most=_MOST_UPDATES)
        track = self._known("for probabilities")
        sets, shape = as_candidates(self._read(log))
        self._check_features(sets.n_features, sets.feature_names)
        sets.check_sizes()
        if not self.next_policy_coef_.any():
            certain = np.full(sets.n_steps, np.nan)
        else:
            model, sets = self.as_tracked(), self._lens.log(sets).read()
            rows, picked = sets.step_offsets, sets.step_offsets[:-1] + model.predict(sets, updates=updates)
            policies = None if updates == 1 else self._rolled(updates).policies
            edges = [*range(0, sets.n_steps, _STEPS_AT_ONCE), sets.n_steps]
            parts = []
            for a, b in pairwise(edges):
                offsets, first = rows[a : b + 1], rows[a]
                contexts = sets.contexts[first : rows[b]]
                parts.append(tracking.certainty(track, contexts, offsets - first, picked[a:b] - first, policies))
            certain = np.concatenate(parts)
        return float(certain[0]) if shape is not None and len(shape) == 1 else certain

    def propensities(self, log: Log | ArrayLike, *, ahead: bool = False) -> NDArray[np.float64]:
        """Probability of every candidate: the decider's choice rule, averaged over the belief about its policy.

        For the log that the model was fitted on, with the policy in force in each episode; this reads the log again and
        takes about as long as tracking it did. Its warm-up is uniform, and so is what it chose before anything had been
        learned. For any other log, were it a part of the fitted one, with the policy right after the fitted log. For a
        decider that does not draw, these probabilities express belief alone: importance weights made of them rest on
        the model. The average is taken by draws that leave an error, a mean total variation of .02, or .04 where
        nothing tells candidates apart; the order of candidates and of features does not change it.

        Parameters
        ----------
        log : BehaviorLog or what `ibcb.open_log` gave, DataFrame, or array of shape (M, d) or (steps, M, d), or a list
            of arrays (M_b, d)
            A DataFrame need not have choices; with them it may be the fitted log.
        ahead : bool
            For the fitted log: each episode predicted one episode ahead, instead of from the whole log.

        Returns
        -------
        propensities : ndarray of shape (rows,), as ``log.contexts``; (M,) for one set, (steps, M) for an array of them

        Examples
        --------
        >>> import ibcb
        >>> run = ibcb.simulate("synthetic", expert="softmax", n_episodes=5, batch_size=200, seed=0)
        >>> model = ibcb.IBCB(expert="softmax", l2=0.3).fit(run.log)
        >>> propensities = model.propensities(run.log)
        >>> float(abs(propensities - run.propensities()).mean()) < 0.02
        True
        """
        self._known("for propensities")
        boolean("ahead", ahead)
        # A table is known for the fitted log by its choices.
        sets, shape = as_candidates(self._read(log, choices=self._tells_choices(log)), on_disk=True)
        self._check_features(sets.n_features, sets.feature_names)
        values = recovered(self._fit, self._lens.log(sets), self._starts(sets), ahead=ahead)
        return values if shape is None else values.reshape(shape)

    def verdict(self, log: Log) -> Any:
        """How far to rely on this model, judged on the log that it was fitted to, which is read once, unless the model
        has just been fitted to it with ``judge``.

        What is judged is what `predict` uses: the policy predicted one episode ahead, over the later half of the
        episodes, beside choice models, item shares and chance.

        Parameters
        ----------
        log : BehaviorLog, or what `ibcb.open_log` gave
            Another one than the fitted one raises ValueError, with the first episode that differs.

        Returns
        -------
        verdict : ibcb.report.verdict.Verdict
            ``level`` ("good": `predict` picks what the decider's next policy prefers on at least 98% of steps; "fair";
            "poor"; "unknown"), ``headline``, ``reasons``, ``next_step``, and the ``figures`` behind them.

        Examples
        --------
        >>> import ibcb
        >>> run = ibcb.simulate("synthetic", n_episodes=5, batch_size=200, seed=0)
        >>> ibcb.IBCB(l2=0.3).fit(run.log).verdict(run.log).level
        'fair'
        """
        # Imported here, and from a room above: what is said of a model is the report's.
        from ibcb.report.facts import verdict

        return verdict(self, log)

    def as_tracked(self) -> Self:
        """The model of the reduced features, where a log had very many; itself where it had not."""
        raise NotImplementedError

    def _known(self, what: str) -> Track:
        """The track; raises where there is none, or no fit."""
        check_is_fitted(self, "coef_")
        track = self._fit.track
        if track is None:
            if self._fit.tracking:
                raise ValueError(f"there is nothing to go by {what}: {self._fit.tracking[-1]}")
            raise ValueError(f"this model was fitted with forecast=None; fit it with forecast='auto' {what}.")
        return track

    def _rolled(self, updates: int) -> Futures:
        """Draws of the policy after so many updates, made once."""
        known = self.__dict__.setdefault("_futures", {})
        if updates not in known:
            rng = np.random.default_rng(_FUTURES_SEED)
            known[updates] = tracking.futures(self._known("for draws"), updates, _FUTURES, rng)
        drawn: Futures = known[updates]
        return drawn

    @property
    def _alpha(self) -> float:
        """The alpha of the fit, which a parameter that was set since does not change."""
        return float(self._fitted_with["alpha"])

    def _bounded(self, bounds: Interval, unit: float) -> Interval:
        """Bounds times their unit, of the log's own features; without those of what no choice tells."""
        scaled, free = Interval(*(unit * each for each in bounds)), tracking.unidentified(self._known("for intervals"))
        scaled.lower[free], scaled.upper[free] = -np.inf, np.inf
        return self._lens.expanded_interval(scaled)

    # -- from here on ----------------------------------------------------------------------------------------------

    def to_policy(
        self,
        *,
        alpha: float | None = None,
        scale: float = 1.0,
        draws: str | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Any:
        """The recovered decider as a live policy, as it was right after the log: it acts, and ``update`` teaches it.

        It has the Gram matrix of all choices so far (`prior_gram` included), the l2 of the fit, and the parameters
        ``scale * next_policy_coef_``; without a forecast these are what ridge regression makes of those choices if s
        earned <scale * coef_, s>.

        The log tells neither the unit of the rewards nor the length of theta. ``scale`` brings the policy to the
        rewards that it will see; from a few rewards R of contexts S, with ``expected = S @ next_policy_coef_``, it is
        ``expected @ R / (expected @ expected)``.

        A policy of the kind "stationary" or "other" stays as it is: ``update`` teaches it nothing. The epsilon of an
        "egreedy" one stays ``epsilon_``, even if it fell in the log.

        Parameters
        ----------
        alpha : float, optional
            Exploration weight, in the unit of the rewards: the decider's own where it is known. By default of an
            "sbucb" model ``scale`` times the alpha of the fit: until the first update the choices are those that the
            fit explains, whatever the scale. For "sbts" the same default is a guess: choices hardly tell how widely
            the decider drew. For kinds that draw by a softmax it is the temperature.
        scale : float
            Rewards that one unit of <next_policy_coef_, s> is worth.
        draws : {"step", "episode"}
            Of an "sbts" policy: a fresh draw at every step, or one after every update. By default as ``draws_``.
        random_state : int, Generator or None
            Of all policies but those of "sbucb", which draw nothing.

        Examples
        --------
        >>> import ibcb
        >>> run = ibcb.simulate("synthetic", expert="sbucb", alpha=0.4, n_episodes=5, batch_size=200, seed=0)
        >>> policy = ibcb.IBCB(expert="sbucb", alpha=0.4, l2=0.3).fit(run.log).to_policy()
        >>> candidates = run.test_log.candidates(0)
        >>> chosen = policy.act(candidates)
        >>> policy.update(candidates[[chosen]], [0.7])
        """
        check_is_fitted(self, "coef_")
        if self._lens.reduces:
            raise ValueError(
                f"the log has {self.n_features_in_} features, of which {len(self._fit.evolution.theta) - 1} were "
                f"tracked one by one, and a live policy needs all of them: at most {WIDE}. Pool rare levels "
                "(min_count) or leave columns out when the log is read."
            )
        scale = positive("scale", scale, "it is the unit of the rewards")
        draws = one_of("draws", draws or self.draws_ or "step", DRAWS)
        before, kind = self._fit.ridge, self._fit.kind
        # The b with Psi^-1 b = scale * next_policy_coef_, Psi being of all its choices, not of a sample.
        b = before.psi @ (scale * self.next_policy_coef_) / kind.rate
        weight = scale * exploration_weight(self._fit, self._alpha) if alpha is None else alpha
        track = self._fit.track
        share = 0.0 if track is None else track.random_share(len(track.predicted))
        coef, added = scale * self.next_policy_coef_, scale * added_weights(self._fit, self._alpha)
        return kind.live(Life(before.phi / kind.rate, b, coef, weight, share, draws, random_state, added))

    def _before(self, log: Log, lens: Lens, rate: float | None = None) -> History | None:
        """What lies before the first episode, in choices of the log; None where nothing does."""
        if self.prior_gram is None:
            return None
        prior = gram_matrix("prior_gram", self.prior_gram, log.n_features)
        return History.before_the_log(lens.gram(float(self.sampling_rate if rate is None else rate) * prior))

    def _starts(self, log: Log) -> History:
        """Where the fitted log began, for whoever goes through it again."""
        d = len(self._fit.evolution.theta)
        before = self._before(log, self._lens, self._fitted_with["sampling_rate"])
        before = History.before_the_log(np.zeros((d, d))) if before is None else before
        return before if self._fit.kind.past == ALL else before.one_by_one()


def _probability(level: Any) -> float:
    probability = positive("level", level, "it is a probability")
    if probability >= 1:
        raise ValueError(f"level={level!r} must be below 1: nothing is certain.")
    return probability
