"""IBCB: recover reward and policy parameters from a log without rewards.

Algorithm 2 of the paper walks through the episodes. At each one the Gram matrix of the choices made so far turns the
episode's choices into linear inequalities on the reward parameters, and the parameters move as little as possible to
satisfy them. Its four corrections here (the Gram matrix *before* the episode, minus epsilon for SBTS, alpha as a pure
scale, and a first episode that gives no rows) are explained in docs/decisions/0001-reading-the-paper.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import islice, pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ibcb.deciders.live import DRAWS, SBTS, SBUCB
from ibcb.engine import first_steps, one_blas_thread, workers
from ibcb.estimators.imitator import Imitator, as_candidates, check_log, shaped
from ibcb.inverse.evolution import EpisodeDiagnosis, Evolution, Solver
from ibcb.inverse.solvers import Certificate, Contradiction, InfeasibleError, SolverError, hard, paper, robust, soft
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.log.fingerprint import log_fingerprint
from ibcb.log.validation.first_episode import missing_past
from ibcb.numerics.checks import boolean, gram_matrix, one_of, positive, whole
from ibcb.numerics.directions import direction
from ibcb.tracking import Deferred, Foresight, Interval
from ibcb.tracking.pursuit import Pursuit
from ibcb.tracking.selection import BEST_OF, CHOOSERS, PENALTIES, Candidate, episode_steps, select

__all__ = ["IBCB"]

EXPERTS = ("sbucb", "sbts", *CHOOSERS)
SOLVERS = ("auto", "hard", "soft", "robust", "paper")
_NOTHING_LEARNED = (
    "coef_ is zero, because zero explains every choice so far: the log says nothing of the rewards yet. Either "
    "candidates do not differ, or steps have one candidate, or exploration alone decided."
)
_OUTDONE = (
    "the forecast is the policy that coef_ leads to, because no model of how policies move foresees this log as well: "
    "{:.1%} of the later episodes' choices against {:.1%}."
)
#: a share of choices by which one must be foreseen better than another, to be believed instead
_CLEARLY = 0.01
#: steps whose certainty is computed at once, and names in a note
_AT_ONCE, _MOST_NAMES = 1024, 12
#: what the forecast tells, found when it is first asked for
_LATER = ("next_policy_coef_", "_outdone", "notes_", "forecast_model_", "forecast_note_", "unidentified_features_")
_MEANING = (
    *("expert", "alpha", "l2", "margin", "top_k", "solver", "prune", "penalty", "bend", "tolerance", "forecast"),
)


class IBCB(Imitator):
    """Inverse batched contextual bandit.

    Parameters
    ----------
    expert : {"sbucb", "sbts", "topk", "stationary", "other", "auto"}
        How the decider explored: by upper confidence bounds, or by Thompson sampling. Of three more kinds the policies
        are only tracked, see `ibcb.tracking.pursuit`, some choices going astray: "topk" draws from its best candidates,
        "stationary" never learns, "other" moves in no way that is known; rewards are recovered as for "sbts". "auto":
        the kind that foresees the log best, see `ibcb.tracking.selection`.
    alpha : float
        Exploration weight of an SBUCB expert. Only theta / alpha can be told from choices, so alpha scales ``coef_``
        and changes nothing else.
    l2 : float or "auto"
        Ridge parameter lambda of the decider; "auto": that of 0.1, 0.3, 1, 3 and 10 that foresees the log best.
    margin : float
        Epsilon of the SBTS rows ``(s_o - s_c)' G theta <= -margin``; it scales ``coef_`` as alpha does for SBUCB.
    top_k : int or "auto"
        From how many candidates a "topk" decider draws; "auto": 2, 3 or 4, whichever foresees the log best.
    solver : {"auto", "hard", "soft", "robust", "paper"}
        "hard": exact projection; raises `InfeasibleError`, naming the contradicting steps, where the choices have no
        common explanation. "soft": squared hinge. "robust": Huber hinge. "paper": OSQP at the paper's tolerances.
        "auto": hard while every episode is feasible, otherwise the whole log in robust mode; ``solver_`` and ``notes_``
        say which. Of a decider that is only followed: robust.
    incremental : bool
        True: one problem per episode, centred on the last solution (Algorithm 2). False: one problem over all.
    prune : bool
        Solve each problem a second time without the rows that the first solution violates (Algorithm 3), for experts
        that do not always take the best candidate. No effect on "hard", which violates none.
    penalty : float
        Weight C of the hinge in "soft" and "robust"; a pure number, see `ibcb.inverse.solvers.newton`.
    bend : float
        Violation, in typical bonuses, beyond which a row pulls no harder ("robust").
    tolerance : float
        Of OSQP at its first attempt ("paper"); the paper uses 0.3 for SBTS on MovieLens.
    forecast : {"auto", None}
        "auto": `predict` acts on the policy that the decider will have right after the log, see `forecast`; None: on
        what ridge regression makes of ``coef_``.
    prior_gram : array of shape (d, d), optional
        S'S of the contexts chosen before the log begins, for a log that starts in the middle of the decider's life.
    n_jobs : int, optional
        Threads that share the blocks of an episode (of up to 4,096 steps); -1: one per core, None: one. The result is
        the same to the bit.
    verbose : bool
        Show a progress bar on a terminal, if fitting takes longer than a second.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        Reward parameters theta*. The direction is identified, the length is not.
    policy_coefs_ : ndarray of shape (N, d)
        Policy parameters that made each episode's choices; zeros where nothing had been learned.
    next_policy_coef_ : ndarray of shape (d,)
        Policy parameters right after the log, on which `predict` acts.
    expert_, l2_, top_k_ : str, float, int or None
        The kind of decider and its parameters, as given or chosen; top_k_ only of "topk".
    evidence_ : tuple of ibcb.tracking.selection.Candidate
        Where something was chosen, every candidate with its log-likelihood and agreement one episode ahead.
    diagnostics_ : list of EpisodeDiagnosis
        Per episode: status, violated rows, duality gap, and the share of its choices foreseen from the episodes before.
    solver_ : str
        The solver that made the result.
    log_fingerprint_ : str
        Name of the log so far, as `ibcb.log.fingerprint.log_fingerprint` computes it.
    forecast_model_ : str or None
        The model of the policy's evolution that foresaw the log best: a "learner", which `forecast` runs on, or a
        "walk", which stays where it is; of a decider that is followed, how it moves: "settling", "restless", "still".
    forecast_note_ : str or None
        What ``forecast_model_`` means, in a sentence.
    unidentified_features_ : tuple of str or None
        Features, by name or else by number, whose weights the choices do not determine, alone or in combination. None
        where the fit looked no further than ``coef_``.
    notes_ : tuple of str
        What a reader of the result should know.

    Examples
    --------
    >>> import ibcb
    >>> run = ibcb.simulate("synthetic", expert="sbucb", n_episodes=5, batch_size=200, seed=0)
    >>> model = ibcb.IBCB(expert="sbucb", l2=0.3).fit(run.log)
    >>> model.policy_coefs_.shape
    (5, 10)
    >>> model.score(run.test_log) > 0.8
    True
    """

    def __init__(
        self,
        *,
        expert: str = "sbucb",
        alpha: float = 1.0,
        l2: float | str = 1.0,
        margin: float = 0.01,
        top_k: int | str = "auto",
        solver: str = "auto",
        incremental: bool = True,
        prune: bool = False,
        penalty: float = 40.0,
        bend: float = 0.2,
        tolerance: float = 8e-2,
        forecast: str | None = "auto",
        prior_gram: ArrayLike | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.expert = expert
        self.alpha = alpha
        self.l2 = l2
        self.margin = margin
        self.top_k = top_k
        self.solver = solver
        self.incremental = incremental
        self.prune = prune
        self.penalty = penalty
        self.bend = bend
        self.tolerance = tolerance
        self.forecasts = forecast
        self.prior_gram = prior_gram
        self.n_jobs = n_jobs
        self.verbose = verbose

    # The parameter `forecast` and the method share a name: the parameter lives in `forecasts`.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as given to the constructor."""
        params: dict[str, Any] = super().get_params(deep)
        return params | {"forecast": self.forecasts}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        if "forecast" in params:
            self.forecasts = params.pop("forecast")
        super().set_params(**params)
        return self

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, log: BehaviorLog | DiskLog, y: None = None, *, client: Any = None) -> Self:
        """Recover the parameters from a whole log, forgetting any earlier fit.

        A log on disk (`ibcb.open_log`) is streamed, to the same bits: converted by `ibcb convert` it may be of any
        size; in other formats one episode at a time must fit in memory. With a ``client`` of a Dask cluster
        (`distributed.Client`) the rows lie on its workers, which read a log on disk themselves.
        """
        self._check_parameters()
        check_log(log, on_disk=True)
        if len(log) == 1 and log.warmup == 0 and self.prior_gram is None:
            raise ValueError(
                "the log has one episode and nothing before it: its choices were made before anything had been "
                "learned, so they say nothing of the rewards. fit needs two episodes or more, or a warm-up, or "
                "prior_gram=; partial_fit takes one at a time."
            )
        self._begin(log, client)
        self._publish()
        return self

    def partial_fit(self, log: BehaviorLog | DiskLog, y: None = None, *, client: Any = None) -> Self:
        """Learn from exactly one more episode; the first may carry a warm-up.

        Equal to `fit` on all episodes so far. What "auto" chose in `fit` stays chosen, and `partial_fit` goes on with
        it; it cannot begin with "auto", because one episode tells no kind from another. With solver="auto" the model
        keeps a reference to the logs it has seen, because one infeasible episode means that all are solved again; a
        named solver keeps none. A loaded model goes on in the mode it had chosen, and raises where all would have to be
        solved again.
        """
        self._check_parameters()
        check_log(log, on_disk=True)
        if self._to_choose and not hasattr(self, "_evolution"):
            raise ValueError(
                f"partial_fit cannot begin with {' and '.join(self._to_choose)}: one episode tells nothing of it. Call "
                "fit on the first episodes, and partial_fit goes on from there; or name it."
            )
        if not self.incremental:
            raise ValueError(
                "partial_fit needs incremental=True; incremental=False solves all episodes at once, use fit."
            )
        if len(log) != 1:
            raise ValueError(
                f"partial_fit takes exactly one episode but the log has {len(log)}; "
                "write: for episode in log: model.partial_fit(episode)."
            )
        if not hasattr(self, "_evolution"):
            self._begin(log, client)
        else:
            self._check_features(log.n_features, log.feature_names)
            for name, value in self._meaning().items():
                if value != self._fitted_with[name]:
                    raise ValueError(
                        f"{name} is {value!r} but the episodes so far were fitted with {self._fitted_with[name]!r}; "
                        "set it back, or call fit on the whole log."
                    )
            if log.warmup:
                raise ValueError("this episode carries a warm-up, but the model has seen episodes before it.")
            self._continue(log, client)
        self._publish()
        return self

    def recall(self, log: BehaviorLog | DiskLog) -> None:
        """Give a loaded model the log that it was fitted on, or one that begins with it, so that it can go on.

        Only solver="auto" needs it, to solve all episodes again should a later one have no exact solution.
        """
        seen = list(islice(log, len(self.policy_coefs_)))
        if log_fingerprint(*seen) != self.log_fingerprint_:
            raise ValueError(
                f"the first {len(seen)} episodes of this log are not those that the model was fitted on; give the same "
                "log, or fit from the start."
            )
        if self.solver == "auto" and self.solver_ == "hard":
            self._seen = seen

    def _begin(self, log: BehaviorLog | DiskLog, client: Any) -> None:
        self._decide(log)
        foresight = None
        if self.forecasts is not None and self._pursuit is None:
            prior = _prior(self.prior_gram, log.n_features)
            foresight = Deferred(Foresight(self.l2_, prior, draws=self.rows_ == "sbts"))
        self._evolution, self.solver_, self._remarks = self._run([log], client, foresight)
        self._remarks = (*self._remarks, *self._choice)
        self._later = foresight
        self._fitted_with = self._meaning()
        self._set_features(log, self._evolution.fingerprint)
        self._seen = [log]

    @property
    def rows_(self) -> str:
        """Whose rows were solved: "sbucb" or "sbts"."""
        return "sbucb" if self.expert_ == "sbucb" else "sbts"

    @property
    def _to_choose(self) -> list[str]:
        """The parameters that the log has to decide."""
        named = {"expert": self.expert, "l2": self.l2 if self.expert not in CHOOSERS else None}
        if self.expert == "topk":
            named["top_k"] = self.top_k
        return [f"{name}='auto'" for name, value in named.items() if value == "auto"]

    def _decide(self, log: BehaviorLog | DiskLog) -> None:
        """Choose what is left to choose, and pursue a decider that is only followed."""
        self.expert_, self._choice = self.expert, tuple[str, ...]()
        self.evidence_: tuple[Candidate, ...] = ()
        self.l2_ = 1.0 if self.l2 == "auto" else float(self.l2)
        self.top_k_: int | None = None
        self._pursuit: Pursuit | None = None
        self._unit = 1.0
        if not self._to_choose and self.expert not in CHOOSERS:
            return
        if len(log) < 2:
            raise ValueError(
                "the log has one episode; to choose or follow a decider takes two or more, each foreseen from those "
                "before. Name expert='sbucb' or 'sbts', and l2."
            )
        experts = EXPERTS if self.expert == "auto" else (self.expert,)
        penalties = PENALTIES if self.l2 == "auto" else (float(self.l2),)
        best_of = BEST_OF if self.top_k == "auto" else (int(self.top_k),)
        with one_blas_thread():
            found = select(log, experts, penalties, best_of, _prior(self.prior_gram, log.n_features))
        self.expert_, self.top_k_ = found.chosen.expert, found.chosen.top_k
        self.l2_ = self.l2_ if found.chosen.l2 is None else found.chosen.l2
        self._choice, self._pursuit, self._unit = found.notes, found.pursuit, found.scale
        self.evidence_ = found.evidence

    def _continue(self, log: BehaviorLog | DiskLog, client: Any) -> None:
        candidate = self._evolution.copy()
        foresight = None if self._later is None else self._later.copy()
        try:
            with one_blas_thread(), workers(self.n_jobs) as team:
                solver = self._solver(self.solver_)
                candidate.add_log(
                    log, solver, watch=None if foresight is None else foresight.add, client=client, team=team
                )
            self._evolution = candidate
        except SolverError as error:
            if self.solver != "auto" or self.solver_ != "hard":
                raise
            if not hasattr(self, "_seen"):
                raise SolverError(
                    f"episode {len(self.policy_coefs_)} has no exact solution ({_reason(error)}), so solver='auto' "
                    "would solve all episodes again in robust mode, but a model that was stored keeps no logs. Call "
                    "fit on the whole log, or start with solver='robust'."
                ) from error
            self._evolution, self.solver_, self._remarks = self._run([*self._seen, log], client, foresight)
        if self.solver == "auto" and self.solver_ == "hard" and hasattr(self, "_seen"):
            self._seen.append(log)
        self._later = foresight
        if self._pursuit is not None:
            self._pursuit = self._pursuit.copy()
            self._pursuit.add(episode_steps(log if isinstance(log, BehaviorLog) else log.read()))

    def _run(
        self, logs: Sequence[BehaviorLog | DiskLog], client: Any, foresight: Deferred | None
    ) -> tuple[Evolution, str, tuple[str, ...]]:
        """Solve the logs in order; under "auto" a second time, in robust mode, if the exact solver cannot."""

        def walk(mode: str) -> Evolution:
            evolution = self._start(logs[0])
            with one_blas_thread(), workers(self.n_jobs) as team:
                where: dict[str, Any] = {
                    "watch": None if foresight is None else foresight.add,
                    "client": client,
                    "team": team,
                }
                for log in logs:
                    if self.incremental:
                        evolution.add_log(log, self._solver(mode), progress=bool(self.verbose), **where)
                    else:
                        evolution.add_jointly(log, self._solver(mode), **where)
            return evolution

        if self.solver != "auto" or self.expert_ in CHOOSERS:
            mode = "robust" if self.solver == "auto" else self.solver
            return walk(mode), mode, self._remark_on(logs[0], None)
        try:
            return walk("hard"), "hard", self._remark_on(logs[0], None)
        except SolverError as error:
            evolution = walk("robust")
            if isinstance(error, InfeasibleError):
                evolution.attach(error.certificate)
            return evolution, "robust", self._remark_on(logs[0], error)

    def _meaning(self) -> dict[str, Any]:
        """The parameters that a fitted model depends on."""
        params = self.get_params(deep=False)
        return {name: params[name] for name in _MEANING}

    def _start(self, log: BehaviorLog | DiskLog) -> Evolution:
        prior = _prior(self.prior_gram, log.n_features)
        margin = float(self.margin) if self.rows_ == "sbts" else None
        return Evolution(prior, self.l2_, margin, bool(self.prune))

    def _policies(self) -> NDArray[np.float64]:
        return np.array(self._evolution.policies).reshape(-1, self.n_features_in_)

    def _solver(self, mode: str) -> Solver:
        solvers: dict[str, Solver] = {
            "hard": hard,
            "soft": partial(soft, penalty=float(self.penalty)),
            "robust": partial(robust, penalty=float(self.penalty), bend=float(self.bend)),
            "paper": partial(paper, tolerance=float(self.tolerance)),
        }
        return solvers[mode]

    def _publish(self) -> None:
        """Set the fitted attributes, at the scale that alpha asks for."""
        evolution = self._evolution
        fitted_with = self._fitted_with
        scale = float(fitted_with["alpha"]) if self.rows_ == "sbucb" else 1.0
        self.coef_ = scale * evolution.theta
        self.policy_coefs_ = scale * self._policies()
        self._reached = scale * (evolution.ridge().shrinkage @ evolution.theta)
        if self._pursuit is not None:
            self.policy_coefs_ = self._unit * np.array(self._pursuit.policies)
        self.diagnostics_ = list(evolution.diagnostics)
        self.log_fingerprint_ = evolution.fingerprint
        for name in _LATER:
            self.__dict__.pop(name, None)
        if self.solver != "auto" or self.solver_ != "hard":
            # Nothing will ever be solved again: let go of the logs.
            self.__dict__.pop("_seen", None)

    # -- what comes next: found when it is first asked for ----------------------------------------------------------

    @property
    def _foresight(self) -> Foresight | None:
        return None if self._later is None else self._later.known()

    @cached_property
    def next_policy_coef_(self) -> NDArray[np.float64]:  # type: ignore[override]
        return self._reached if self._foresight is None and self._pursuit is None else self.forecast()

    @cached_property
    def _outdone(self) -> tuple[float, float] | None:
        """Shares of later choices foreseen by the forecast and by ``coef_`` alone, where the latter is clearly more."""
        if self._foresight is None:
            return None
        pairs = [
            (foreseen.agreement, entry.next_agreement)
            for foreseen, entry in zip(self._foresight.foreseen, self.diagnostics_, strict=True)
            if entry.next_agreement is not None
        ]
        if not pairs:
            return None
        forecast, plain = np.mean(pairs[len(pairs) // 2 :], axis=0).tolist()
        return (forecast, plain) if forecast < plain - _CLEARLY else None

    @cached_property
    def forecast_model_(self) -> str | None:
        followed = self._pursuit or self._foresight
        return None if followed is None else followed.model

    @cached_property
    def forecast_note_(self) -> str | None:
        if self._outdone is not None:
            return _OUTDONE.format(*self._outdone)
        return None if self._foresight is None else self._foresight.note()

    @cached_property
    def unidentified_features_(self) -> tuple[str, ...] | None:
        return None if self._foresight is None else self._named(self._foresight.unidentified())

    @cached_property
    def notes_(self) -> tuple[str, ...]:
        if not self._evolution.theta.any():
            return (*self._remarks, _NOTHING_LEARNED)
        if self._foresight is None:
            return self._remarks
        if self._outdone is not None:
            more: tuple[str, ...] = (_OUTDONE.format(*self._outdone),)
        else:
            more = () if self._foresight.runs_on else (self._foresight.note(),)
        return (*self._remarks, *more, *_on_unidentified(self.unidentified_features_ or ()))

    def forecast(self, updates: int = 1) -> NDArray[np.float64]:
        """The policy parameters ``updates`` updates after those that made the last episode's choices.

        1 is the policy right after the log, the first that has learned from its last episode. Where the decider was
        found to learn as ridge regression does, it is run on, choosing among candidates like those it has seen, or by
        one update only if it hardly foresees more than a policy that stays; where it was not, every forecast is its
        last policy. ``notes_`` say so in both cases. At the scale of ``policy_coefs_``.

        Returns
        -------
        policy : ndarray of shape (d,)
        """
        check_is_fitted(self, "coef_")
        updates = whole("updates", updates, 0, "it counts updates from the last logged policy on")
        if self._pursuit is not None:
            return self._unit * (self._pursuit.coming if updates else self._pursuit.policies[-1])
        known = self._known("to forecast")
        recovered: NDArray[np.float64] = self._reached if updates else self.policy_coefs_[-1]
        return recovered if self._outdone is not None else self._scaled(known.forecast(updates), recovered)

    def policy_at(self, episode: int) -> NDArray[np.float64]:
        """The policy parameters that make the choices of an episode, counted from 0; after the log they are forecast.

        Within the log, what was believed of the policy once the episode was seen: a point amid all those that explain
        the choices, nearer to the decider's own than ``policy_coefs_``, which lies at the edge of them
        (``benchmarks/centres.py``); without foresight ``policy_coefs_`` itself. Equal to ``next_policy_coef_`` right
        after the log, and to `forecast` further on; at the same scale.

        Returns
        -------
        policy : ndarray of shape (d,)
        """
        check_is_fitted(self, "coef_")
        ahead = whole("episode", episode, 0, "episodes are counted from 0") - len(self.policy_coefs_) + 1
        if ahead <= 0:
            logged: NDArray[np.float64] = self.policy_coefs_[episode]
            if self._foresight is None or self._outdone is not None:
                return logged
            return self._scaled(self._foresight.policies[episode], logged)
        return self.next_policy_coef_ if ahead == 1 else self.forecast(ahead)

    def policy_interval(self, level: float = 0.9, *, direction: bool = False) -> Interval:
        """Between which values each weight of the last episode's policy lies, with the given probability.

        Only what choices tell: weights per unit alpha for "sbucb", otherwise the weights of the unit direction, see
        `direction`. Where the decider was not seen to learn, and explores little, its choices hardly tell weights
        against alpha, but tell the direction well. Of ``unidentified_features_`` weights per unit alpha have no bounds.

        Parameters
        ----------
        level : float
            The probability, between 0 and 1.
        direction : bool
            True: of the unit direction for "sbucb" too.

        Returns
        -------
        interval : Interval
            ``estimate``, ``lower`` and ``upper``, each of shape (d,).
        """
        check_is_fitted(self, "coef_")
        level = positive("level", level, "it is a probability")
        if level >= 1:
            raise ValueError(f"level={level!r} must be below 1: nothing is certain.")
        if self._pursuit is not None:
            return self._pursuit.interval(level)
        known = self._known("for intervals")
        found = known.interval(level, direction=direction)
        if self._fitted_with["expert"] == "sbucb" and not direction:
            free = known.unidentified()
            found.lower[free], found.upper[free] = -np.inf, np.inf
        return found

    def direction(self, weights: ArrayLike) -> NDArray[np.float64]:
        """What choices tell well of some weights: at length 1, without any part on which no choice of the log depends.

        Parameters
        ----------
        weights : array of shape (d,) or (k, d)
            Such as ``coef_``, ``policy_coefs_`` or a forecast; zeros stay zeros.
        """
        check_is_fitted(self, "coef_")
        given = np.asarray(weights, dtype=np.float64)
        if given.ndim not in (1, 2) or given.shape[-1] != self.n_features_in_:
            raise ValueError(f"weights have shape {given.shape}; expected ({self.n_features_in_},), or rows of these.")
        return direction(given if self._foresight is None else self._foresight.identified(given))

    def certainty(self, log: BehaviorLog | ArrayLike) -> Any:
        """Probability that the decider, right after the log, prefers the candidate that `predict` picks.

        Without exploration, and given that its policies evolve as ``forecast_model_`` says. NaN where nothing has been
        learned.

        Parameters
        ----------
        log : BehaviorLog, or array of shape (M, d) or (steps, M, d), or a list of arrays (M_b, d)

        Returns
        -------
        probability : ndarray of shape (steps,); a float for one candidate set (M, d)
        """
        check_is_fitted(self, "coef_")
        known = self._known("for probabilities")
        sets, alone = as_candidates(log)
        self._check_features(sets.n_features, sets.feature_names)
        if not self.next_policy_coef_.any():
            found = np.full(sets.n_steps, np.nan)
        else:
            # A few steps at a time: every row has a score under each of the policies drawn.
            edges = [*range(0, sets.n_steps, _AT_ONCE), sets.n_steps]
            rows = sets.step_offsets
            found = np.concatenate(
                [
                    known.certainty(sets.contexts[rows[a] : rows[b]], rows[a : b + 1] - rows[a])
                    for a, b in pairwise(edges)
                ]
            )
        return float(found[0]) if alone else found

    def _known(self, what: str) -> Foresight:
        if self._foresight is None:
            raise ValueError(f"this model was fitted with forecast=None; fit it with forecast='auto' {what}.")
        return self._foresight

    def _named(self, features: NDArray[np.int64]) -> tuple[str, ...]:
        names = self.feature_names_in_
        return tuple(str(feature) if names is None else names[feature] for feature in features.tolist())

    def _scaled(self, policy: NDArray[np.float64], recovered: NDArray[np.float64]) -> NDArray[np.float64]:
        """A policy per unit alpha at the scale of ``policy_coefs_``; ``recovered`` is what ``coef_`` makes of it."""
        if not recovered.any():
            return recovered
        if self.rows_ == "sbucb":
            return float(self._fitted_with["alpha"]) * policy
        # Only the direction is known: the length is that of the recovered one.
        return float(np.linalg.norm(recovered) / (np.linalg.norm(policy) or 1.0)) * policy

    # -- from here on ----------------------------------------------------------------------------------------------

    def to_policy(
        self,
        *,
        alpha: float | None = None,
        scale: float = 1.0,
        draws: str = "step",
        random_state: int | np.random.Generator | None = None,
    ) -> SBUCB | SBTS:
        """The recovered decider as a live policy, as it was right after the log: it acts, and ``update`` teaches it.

        It has the Gram matrix of all choices so far (`prior_gram` included), the l2 of the fit, and the parameters
        ``scale * next_policy_coef_``; without foresight these are what ridge regression makes of those choices if s
        earned <scale * coef_, s>.

        The log tells neither the unit of the rewards nor the length of theta. ``scale`` brings the policy to the
        rewards that it will see; from a few rewards R of contexts S, with ``expected = S @ next_policy_coef_``, it is
        ``expected @ R / (expected @ expected)``.

        Parameters
        ----------
        alpha : float, optional
            Exploration weight, in the unit of the rewards: the decider's own where it is known. By default of an
            "sbucb" model ``scale`` times the alpha of the fit: until the first update the choices are those that the
            fit explains, whatever the scale. For "sbts" the same default is a mere guess: its rows do not tell how
            widely the decider drew.
        scale : float
            Rewards that one unit of <next_policy_coef_, s> is worth.
        draws : {"step", "episode"}
            Of an "sbts" policy: a fresh draw at every step, or one after every update.
        random_state : int, Generator or None
            Of an "sbts" policy.

        Examples
        --------
        >>> import ibcb
        >>> run = ibcb.simulate("synthetic", expert="sbucb", alpha=0.4, n_episodes=5, batch_size=200, seed=0)
        >>> policy = ibcb.IBCB(expert="sbucb", alpha=0.4, l2=0.3).fit(run.log).to_policy()
        >>> candidates = run.test_log.candidates(0)
        >>> chosen = policy.act(candidates)
        >>> policy.update(candidates[[chosen]], [0.7])
        """
        check_is_fitted(self, "next_policy_coef_")
        scale = positive("scale", scale, "it is the unit of the rewards")
        one_of("draws", draws, DRAWS)
        if self._pursuit is not None:
            raise ValueError(
                f"a decider of the kind {self.expert_!r} is followed, but how it learns is not known, so it cannot be "
                "brought to life; predict imitates it, and a fit with expert='sbucb' or 'sbts' assumes how it learns."
            )
        fitted_with, phi, l2 = self._fitted_with, self._evolution.phi, self.l2_
        # The b with Psi^-1 b = scale * next_policy_coef_.
        b = phi @ (scale * self.next_policy_coef_) + l2 * scale * self.next_policy_coef_
        weight = scale * float(fitted_with["alpha"]) if alpha is None else alpha
        if self.rows_ == "sbucb":
            return SBUCB(self.n_features_in_, alpha=weight, l2=l2, gram=phi, moment=b)
        state: dict[str, Any] = {"gram": phi, "moment": b, "random_state": random_state}
        return SBTS(self.n_features_in_, alpha=weight, l2=l2, draws=draws, **state)

    # -- storing ---------------------------------------------------------------------------------------------------

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything that fitting set, as named arrays and JSON: what `ibcb.save_model` stores."""
        arrays, state = super().get_state()
        evolution = self._evolution
        arrays |= {"gram": evolution.phi, "theta": evolution.theta, "policies": self._policies()}
        state |= {
            "fitted_with": self._fitted_with,
            "solver": self.solver_,
            "remarks": list(self._remarks),
            "diagnostics": [entry._asdict() for entry in self.diagnostics_],
            "stored": evolution.stored,
            "foresight": None,
            "kind": {"expert": self.expert_, "l2": self.l2_, "top_k": self.top_k_, "unit": self._unit},
            "evidence": [list(one) for one in self.evidence_],
            "pursuit": None,
        }
        if self._pursuit is not None:
            more, state["pursuit"] = self._pursuit.get_state()
            arrays |= {f"pursuit_{name}": array for name, array in more.items()}
        if self._foresight is not None:
            more, state["foresight"] = self._foresight.get_state()
            arrays |= {f"foresight_{name}": array for name, array in more.items()}
        return arrays, state

    def set_state(self, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> None:
        """Become fitted with what `get_state` gave."""
        super().set_state(arrays, state)
        self._check_parameters()
        self.solver_ = one_of("solver", state["solver"], SOLVERS[1:])
        self._remarks = tuple(str(remark) for remark in state["remarks"])
        self._fitted_with = {name: state["fitted_with"][name] for name in _MEANING}
        entries = [EpisodeDiagnosis(**entry) for entry in state["diagnostics"]]
        d = self.n_features_in_
        _prior(self.prior_gram, d)
        kind = state["kind"]
        self.expert_, self.top_k_ = one_of("expert", kind["expert"], EXPERTS), kind["top_k"]
        self.l2_, self._unit = float(kind["l2"]), float(kind["unit"])
        self.evidence_ = tuple(Candidate(*one) for one in state["evidence"])
        margin = float(self._fitted_with["margin"]) if self.rows_ == "sbts" else None
        evolution = Evolution(
            gram_matrix("gram", shaped(arrays, "gram", (d, d)), d),
            self.l2_,
            margin,
            self._fitted_with["prune"],
        )
        evolution.theta, evolution.fingerprint = shaped(arrays, "theta", (d,)), self.log_fingerprint_
        evolution.policies = list(shaped(arrays, "policies", (len(entries), d)))
        evolution.diagnostics = [
            entry._replace(
                certificate=entry.certificate and Certificate(Contradiction(*row) for row in entry.certificate)
            )
            for entry in entries
        ]
        evolution.stored = int(state["stored"])
        self._evolution = evolution

        def part(name: str) -> dict[str, NDArray[Any]]:
            return {key.removeprefix(name): array for key, array in arrays.items() if key.startswith(name)}

        known, pursued = state["foresight"], state["pursuit"]
        self._later = None if known is None else Deferred(Foresight.from_state(part("foresight_"), known))
        self._pursuit = None if pursued is None else Pursuit.from_state(part("pursuit_"), pursued)
        self._publish()

    def __getstate__(self) -> dict[str, Any]:
        if getattr(self, "_later", None) is not None:
            self._foresight  # noqa: B018 - so that its episodes need not be kept
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_seen", None)
        return state

    # -- checks and explanations -----------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        one_of("expert", self.expert, (*EXPERTS, "auto"))
        one_of("solver", self.solver, SOLVERS)
        if self.forecasts is not None:
            one_of("forecast", self.forecasts, ("auto",))
        positive("alpha", self.alpha, "it is the scale of theta")
        if self.l2 != "auto":
            positive("l2", self.l2, "without it Psi has no inverse before the first update")
        if self.top_k != "auto":
            whole("top_k", self.top_k, 2, "it counts the candidates drawn from")
        positive("margin", self.margin, "with 0 theta = 0 would explain every choice")
        positive("penalty", self.penalty, "it weighs the violated rows")
        positive("bend", self.bend, "it is a width")
        positive("tolerance", self.tolerance, "OSQP stops when it is met")
        for name in ("incremental", "prune", "verbose"):
            boolean(name, getattr(self, name))
        if self.n_jobs not in (None, -1):
            whole("n_jobs", self.n_jobs, 1, "it counts threads, -1 takes one per core")

    def _remark_on(self, log: BehaviorLog | DiskLog, found: SolverError | None) -> tuple[str, ...]:
        notes = []
        if found is not None:
            notes.append(
                f"no exact solution as {self.rows_} with l2={self.l2_:g}: {_reason(found)}. The whole log was solved "
                "in robust mode."
            )
        if self.prior_gram is None and log.warmup == 0 and self.expert_ not in CHOOSERS:
            missing = missing_past(first_steps(log), self.rows_)
            if missing:
                notes.append(missing)
                if self.expert == "sbucb":
                    warnings.warn(missing, UserWarning, stacklevel=5)
        return tuple(notes)


def _reason(error: SolverError) -> str:
    if not isinstance(error, InfeasibleError):
        return str(error).partition(";")[0]
    steps = list(dict.fromkeys(f"{row.episode}:{row.step}" for row in error.certificate))
    return f"steps {', '.join(steps)} (episode:step) contradict each other"


def _on_unidentified(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        return ()
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    if len(names) == 1:
        return (f"the choices do not determine the weight of feature {shown}: no choice depends on it.",)
    return (
        f"the choices do not determine the weights of features {shown}{more} one by one: no choice depends on some "
        "combination of them. Read them together, or leave one out.",
    )


def _prior(prior_gram: ArrayLike | None, d: int) -> NDArray[np.float64]:
    return np.zeros((d, d)) if prior_gram is None else gram_matrix("prior_gram", prior_gram, d)
