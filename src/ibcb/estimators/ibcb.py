"""IBCB: recover reward and policy parameters from a log without rewards.

Algorithm 2 of the paper walks through the episodes. At each one the Gram matrix of the choices made so far turns the
episode's choices into linear inequalities on the reward parameters, and the parameters move as little as possible to
satisfy them. Its four corrections here (the Gram matrix *before* the episode, minus epsilon for SBTS, alpha as a pure
scale, and a first episode that gives no rows) are explained in docs/decisions/0001-reading-the-paper.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ibcb.engine import Subscriber, replay
from ibcb.estimators.answers import Answering
from ibcb.estimators.fitting import Fit, Judge, continued, fit_logs
from ibcb.estimators.imitator import LARGEST_WEIGHT, check_log
from ibcb.estimators.parameters import PARAMETERS
from ibcb.estimators.published import published
from ibcb.estimators.reduction import Lens, Reduction, lens_of
from ibcb.estimators.settings import Settings
from ibcb.estimators.state import Named, pack, parameters, unpack
from ibcb.log import Log
from ibcb.log.fingerprint import Naming, log_fingerprint
from ibcb.log.option import documented
from ibcb.numerics.checks import gram_matrix

#: parameters that a fitted model depends on: `partial_fit` goes on with the same
_MEANING = (
    *("expert", "alpha", "l2", "sampling_rate", "margin", "top_k", "draws"),
    *("solver", "prune", "penalty", "bend", "tolerance", "forecast"),
)
#: attributes of a model that has the logs it was fitted on, and what it has worked out since
_OF_LOGS = ("_seen", "_chooses", "_judged", "_futures")
#: attributes with a weight for every feature
_WEIGHTS = ("coef_", "policy_coefs_", "next_policy_coef_")


@documented(PARAMETERS)
class IBCB(Answering):
    """Inverse batched contextual bandit.

    Parameters
    ----------
    **options
        See `ibcb.estimators.parameters.Parameters`.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (d,), float
        Rewards as the decider found them, <coef_, s> + intercept_: the linear rewards that explain how its policy
        evolved. For a decider that learns in an unknown way, its policy right after the log, and 0.
    policy_coefs_ : ndarray of shape (N, d)
        Policy parameters that made each episode's choices; zeros where nothing had been learned.
    next_policy_coef_ : ndarray of shape (d,)
        Policy parameters right after the log, which `predict` uses.
    epsilon_, temperature_ : float or None
        For "egreedy", the share of random choices right after the log; for "softmax", the temperature divided by the
        standard deviation of the scores within a step. `exploration_interval` gives their uncertainty.
    expert_, l2_, units_, top_k_, draws_ : str, float, str, int or None, str or None
        The kind of decider and its parameters, as given or chosen. ``units_`` are those of ``l2_``: "own" for the
        log's, "scaled" for features over their root mean square, "standardized" for features less their mean, over
        their standard deviation. ``top_k_`` only for "topk", ``draws_`` only for "sbts". Of ``expert="auto"``,
        ``expert_`` is "undetermined" where no kind has nine tenths of what is plausible, or its checks fail; the other
        parameters are then those of the kind that predicts best.
    rules_, motions_ : tuple of ibcb.tracking.posterior.Plausible
        How plausible each choice rule is, with its checks, and how plausible each motion of the policy is.
    evidence_ : tuple of ibcb.tracking.selection.Candidate
        If something was "auto": every alternative that was tried, with its log-likelihood and agreement one episode
        ahead.
    diagnostics_ : list of EpisodeDiagnosis
        Per episode: status, violated rows, duality gap, and the share of its choices predicted one episode ahead.
    solver_ : str
        The solver that made the result.
    log_fingerprint_ : str
        Name of the log so far, as `ibcb.log.fingerprint.log_fingerprint` computes it.
    forecast_model_ : str or None
        The model of the policy's evolution that predicted the log best: a "learner", which `forecast` projects
        forward, or a "walk", which stays where it is; of a decider that is only tracked, how it moves: "settling",
        "restless", "reverting", "still".
    forecast_note_ : ibcb.log.notes.Note or None
        What ``forecast_model_`` means for the forecast.
    unidentified_features_ : tuple of str or None
        Features, by name or else by number, whose weights the choices do not determine, alone or in combination. None
        if the policy was not tracked.
    notes_ : tuple of ibcb.log.notes.Note
        What a reader should know about the result: each with a code, a severity, words and figures.
    decider_ : ibcb.deciders.Kind
        The kind of decider as an object: what it does, and words for it.

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

    def fit(self, log: Log, y: None = None, *, client: Any = None, judge: bool = False) -> Self:
        """Recover the parameters from a whole log, forgetting any earlier fit.

        A log on disk (`ibcb.open_log`) is streamed, with the same result to the last bit. After `ibcb convert` it may
        be of any size; in other formats one episode at a time must fit in memory. With a ``client`` of a Dask cluster
        (`distributed.Client`) the rows lie on its workers, which read a log on disk themselves. With more than 1,024
        features, 128 numbers per row are held in memory. An interrupted fit leaves the model as it was. With ``judge``
        what `verdict` needs is gathered on the way, so that it need not go through the log again.
        """
        return self.fit_along(log, client=client, judge=judge)

    def fit_along(
        self, log: Log, *, client: Any = None, judge: bool = False, also: Sequence[Subscriber] = (), **steps: Any
    ) -> Self:
        """As `fit`, with others along that need the log; ``steps``: what was begun, and who watches, of `fit_logs`."""
        lens = self._lens_of([log])
        if lens.reduces and also:
            # They are to see all features.
            replay([log], *also)
            also = ()
        settings = self._settings(client)
        if log.n_episodes is not None:
            self._check_length(settings, len(log), log.warmup)
        begin: Callable[[], Judge] | None = None
        if judge:
            # Imported here, and from a room above: what is said of a model is the report's.
            from ibcb.report.judging import Judging

            begin = Judging
        return self._fit_all([log], lens, settings, judge=begin, also=also, **steps)

    def partial_fit(self, log: Log, y: None = None, *, client: Any = None) -> Self:
        """Learn from exactly one more episode; the first may have a warm-up.

        Equal to `fit` on all episodes so far. What "auto" chose in `fit` stays chosen. You can begin with l2="auto",
        but then all episodes so far are fitted again each time, because each may change the choice; a number is faster.
        You cannot begin with expert="auto": one episode does not show the kind. With solver="auto" the model keeps a
        reference to the logs it has seen, because one infeasible episode means that all are solved again; a named
        solver keeps none. A loaded model continues with the solver and the l2 that it had chosen, and raises if all
        episodes would have to be solved again.
        """
        begun = hasattr(self, "_fit")
        seen = getattr(self, "_seen", None) if begun else None
        lens = self._lens if begun and seen is None else self._lens_of([*(seen or ()), log])
        settings = self._settings(client)
        check_log(log, on_disk=True)
        choice = [each for each in settings.open if not each.startswith("l2=")]
        if choice and not begun:
            raise ValueError(
                f"partial_fit cannot begin with {' and '.join(choice)}: one episode says nothing about it. Call "
                "fit on the first episodes, then partial_fit; or name it."
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
        if not begun:
            _check_choosable(1, settings)
            return self._fit_all([log], lens, settings, by_episode=True)
        self._check_features(log.n_features, log.feature_names)
        for name, value in self._meaning().items():
            if value != self._fitted_with[name]:
                raise ValueError(
                    f"{name} is {value!r} but the episodes so far were fitted with {self._fitted_with[name]!r}; "
                    "set it back, or call fit on the whole log."
                )
        if log.warmup:
            raise ValueError("this episode has a warm-up, but the model has seen episodes before it.")
        if seen is not None and getattr(self, "_chooses", False):
            return self._fit_all([*seen, log], lens, settings, by_episode=True)
        before = None if seen is None else self._before(seen[0], lens)
        naming = Naming(self.log_fingerprint_)
        tracked = lens.log(log, naming)
        fit = continued(self._fit, tracked, seen and [lens.log(each) for each in seen], settings, before)
        logs, named = None if seen is None else [*seen, log], naming.name if lens.reduces else None
        self._adopt(fit, self._fitted_with, logs, None, lens, name=named)
        return self

    def recall(self, log: Log) -> None:
        """Give a loaded model the log that it was fitted on, or one that begins with it, so that it can go on.

        Only solver="auto" needs it, to solve all episodes again should a later one have no exact solution.
        """
        check_is_fitted(self, "coef_")
        seen = list(islice(log, len(self.diagnostics_)))
        if log_fingerprint(*seen) != self.log_fingerprint_:
            raise ValueError(
                f"the first {len(seen)} episodes of this log are not those that the model was fitted on; give the same "
                "log, or fit from the start."
            )
        if self.solver == "auto" and self.solver_ == "hard":
            self._seen = seen

    def _check_length(self, settings: Settings, episodes: int, warmup: int) -> None:
        """Raise ValueError where a whole log has too few episodes to tell anything."""
        if episodes == 1 and warmup == 0 and self.prior_gram is None:
            raise ValueError(
                "the log has one episode and nothing before it: its choices were made before anything had been "
                "learned, so they say nothing about the rewards. fit needs two episodes or more, or a warm-up, or "
                "prior_gram=; partial_fit takes one at a time."
            )
        _check_choosable(episodes, settings)

    def _fit_all(
        self, logs: list[Log], lens: Lens, settings: Settings, *, by_episode: bool = False, **how: Any
    ) -> Self:
        """Become fitted on logs, from the start. Given ``by_episode``, the next may change what is chosen."""
        naming = Naming()
        fitted = fit_logs([lens.log(log, naming) for log in logs], settings, self._before(logs[0], lens), **how)
        fit, history = fitted.fit, fitted.fit.evolution.history
        if logs[0].n_episodes is None and not by_episode:
            self._check_length(settings, history.episodes, history.stored - history.episodes)
        # Who names the kind is told at once; who asks the log finds the note.
        if fit.kind.name == self.expert and fit.kind.per_unit is not None:
            for note in fit.solving:
                if note.code in ("late-start", "unmarked-warmup"):
                    warnings.warn(note.text, UserWarning, stacklevel=3)
        chooses, name = by_episode and (fitted.chose or lens.reduces), naming.name if lens.reduces else None
        self._adopt(fit, self._meaning(), logs, logs[0], lens, name=name, chooses=chooses)
        if fitted.judge is not None:
            self._judged = (logs[0], fitted.judge)
        return self

    def _lens_of(self, logs: list[Any]) -> Lens:
        """How logs are tracked; as they are where nothing is."""
        for log in logs:
            check_log(log, on_disk=True)
        return Lens() if self.forecasts is None else lens_of(logs)

    def _settings(self, client: Any) -> Settings:
        """The parameters, checked."""
        return Settings(self.get_params(deep=False), client)

    def _meaning(self) -> dict[str, Any]:
        """The parameters that a fitted model depends on."""
        params = self.get_params(deep=False)
        return {name: params[name] for name in _MEANING}

    # -- what fitting gives ----------------------------------------------------------------------------------------

    def _adopt(
        self,
        fit: Fit,
        fitted_with: dict[str, Any],
        seen: Any,
        log: Log | None,
        lens: Lens,
        *,
        name: str | None = None,
        chooses: bool = False,
    ) -> None:
        """Become fitted: all attributes at once, so that nobody ever sees half of them.

        ``seen``: the logs so far; ``log``: the first, whose features the model takes over; ``lens``: through which they
        were tracked, and ``name`` then that of the logs; ``chooses``: whether the next episode may change what is
        chosen.
        """
        names = self.feature_names_in_ if log is None else log.feature_names
        attributes = published(fit, float(fitted_with["alpha"]), lens.names(names))
        attributes |= {each: lens.expanded(attributes[each]) for each in _WEIGHTS}
        attributes |= {"notes_": (*attributes["notes_"], *lens.notes)}
        attributes |= {} if name is None else {"log_fingerprint_": name}
        attributes |= {"_fit": fit, "_fitted_with": fitted_with, "_lens": lens}
        if log is not None:
            d = len(attributes["coef_"])
            attributes |= {"n_features_in_": d, "feature_names_in_": names, "preparation_": log.preparation}
        # Where nothing will ever be solved again, let go of the logs.
        keep = seen is not None and (chooses or (self.solver == "auto" and fit.solver == "hard"))
        attributes |= {"_seen": seen, "_chooses": chooses} if keep else {}
        kept = {name: value for name, value in self.__dict__.items() if name not in _OF_LOGS}
        self.__dict__ = kept | attributes

    def as_tracked(self) -> Self:
        """The model of the reduced features, where a log had very many; itself where it had not."""
        if not self._lens.reduces:
            return self
        view: Self = copy(self)
        if self.prior_gram is not None:
            view.prior_gram = self._lens.gram(gram_matrix("prior_gram", self.prior_gram, self.n_features_in_))
        view.feature_names_in_, view.preparation_ = self._lens.names(self.feature_names_in_), None
        view.n_features_in_ = len(self._fit.evolution.theta)
        view._adopt(self._fit, self._fitted_with, None, None, Lens())
        return view

    # -- storing ---------------------------------------------------------------------------------------------------

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything that fitting set, as named arrays and JSON: what `ibcb.save_model` stores."""
        arrays, state = super().get_state()
        arrays |= self._lens.arrays
        return arrays, state | {"fitted_with": self._fitted_with, "fit": pack(self._fit, "fit", arrays)}

    def set_state(self, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> None:
        """Become fitted with what `get_state` gave."""
        super().set_state(arrays, state)
        self._check_parameters()
        if self.prior_gram is not None:
            gram_matrix("prior_gram", self.prior_gram, self.n_features_in_)
        lens, d = Lens(), self.n_features_in_
        if "reduction_kept" in arrays:
            lens = Reduction.checked(arrays["reduction_kept"], arrays["reduction_others"], d)
            d = len(lens.kept) + 1
        fitted_with = {name: Named(state["fitted_with"])[name] for name in _MEANING}
        IBCB(**parameters(IBCB, fitted_with, {}))._check_parameters()
        fit = unpack(Fit, state["fit"], arrays, d)
        own = fit.evolution.history.fingerprint
        if not lens.reduces and own != self.log_fingerprint_:
            raise ValueError(f"log_fingerprint is {self.log_fingerprint_!r}, but the fit's is {own!r}")
        self._adopt(fit, fitted_with, None, None, lens, name=self.log_fingerprint_)
        self._check_answers()

    def _check_answers(self) -> None:
        """Numbers that each could be may be too large together: ask what a user would."""
        told: list[Any] = [self.coef_, self.intercept_, self.policy_coefs_, self.next_policy_coef_]
        if self._fit.track is not None:
            told += [self.forecast(2), self.policy_interval().estimate, self.policy_interval(direction=True).estimate]
            told += [self.reward_interval().estimate] if self._fit.kind.learns else []
        if not all((np.abs(each) <= LARGEST_WEIGHT).all() for each in told):
            raise ValueError("its numbers lead to weights that are not finite")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        return {name: value for name, value in state.items() if name not in _OF_LOGS}


def _check_choosable(episodes: int, settings: Settings) -> None:
    # Or, of a kind whose learning is not known, to track it.
    if episodes < 2 and (settings.expert == "auto" or not settings.learns):
        raise ValueError(
            "the log has one episode; to choose or track a decider takes two or more, each predicted from those "
            "before. Name expert='sbucb' or 'sbts'."
        )
