"""What every imitator shares: a linear policy, and predict, decision_function and score with it."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from ibcb.io import read_log
from ibcb.log import BehaviorLog, argmax_per_step, is_log
from ibcb.log.array_checks import candidate_array, distinct_names
from ibcb.log.fingerprint import is_fingerprint, log_fingerprint
from ibcb.log.recipe import Preparation
from ibcb.numerics.printable import WrongTypeError

#: a weight beyond it would overflow when it is squared
LARGEST_WEIGHT = 1e150


class Imitator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: learns one weight per feature from a log, then acts greedily on it.

    A subclass implements ``fit``, which ends in ``_become`` with ``next_policy_coef_`` (the weights it acts on),
    ``coef_``, and whatever else it found.
    """

    # No metadata routing: the log is all there is to pass.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"log": UNUSED}
    __metadata_request__partial_fit: ClassVar[dict[str, Any]] = {"log": UNUSED}
    __metadata_request__predict: ClassVar[dict[str, Any]] = {"log": UNUSED}
    __metadata_request__decision_function: ClassVar[dict[str, Any]] = {"log": UNUSED}
    __metadata_request__score: ClassVar[dict[str, Any]] = {"log": UNUSED}

    #: whether coef_ estimates reward parameters; behaviour cloning only separates the chosen from the rest
    learns_rewards = True

    coef_: NDArray[np.float64]
    next_policy_coef_: NDArray[np.float64]
    n_features_in_: int
    feature_names_in_: tuple[str, ...] | None
    #: how the log's features were made of raw columns; `ibcb.read_log(path, preparation=...)` does the same again
    preparation_: Preparation | None
    #: name of the log that was fitted, see `ibcb.log.fingerprint`
    log_fingerprint_: str

    def fit(self, log: BehaviorLog, y: None = None) -> Self:
        """Learn from a log; ``y`` is ignored and only there for scikit-learn's conventions."""
        raise NotImplementedError

    def decision_function(self, log: BehaviorLog | ArrayLike) -> NDArray[Any]:
        """Score of every candidate under the policy right after the log.

        Parameters
        ----------
        log : BehaviorLog, DataFrame, or array of shape (M, d) or (steps, M, d)

        Returns
        -------
        scores : ndarray of shape (rows,), (M,) or (steps, M)
        """
        check_is_fitted(self, "next_policy_coef_")
        read: Any = self._read(log)
        if is_log(read):
            whole = check_log(read).read()
            self._check_features(whole.n_features, whole.feature_names)
            contexts = whole.contexts
        else:
            contexts = candidate_array(read)
            self._check_features(contexts.shape[-1], None)
        with np.errstate(over="ignore", invalid="ignore"):
            scores: NDArray[Any] = contexts @ self.next_policy_coef_.astype(contexts.dtype, copy=False)
        if not np.isfinite(scores).all():
            raise ValueError(
                f"scores leave the range of floating point: features reach {abs(contexts).max():.3g} and weights "
                f"{np.abs(self.next_policy_coef_).max():.3g}. Rescale the features to about 1 and fit again."
            )
        return scores

    def predict(self, log: BehaviorLog | ArrayLike) -> Any:
        """Index of the candidate the policy picks: the best score, the first of equals.

        Parameters
        ----------
        log : BehaviorLog, DataFrame, or array of shape (M, d) or (steps, M, d), or a list of arrays (M_b, d)
            A DataFrame, or another table with the Arrow interface, is read as `ibcb.read_log` does, its features made
            as those of the fitted log.

        Returns
        -------
        chosen : ndarray of shape (steps,); an int for one candidate set (M, d)
        """
        check_is_fitted(self, "next_policy_coef_")
        log = self._read(log)
        scores = self.decision_function(log)
        if is_log(log):
            return argmax_per_step(scores, log.read())
        return int(scores.argmax()) if scores.ndim == 1 else scores.argmax(axis=1)

    def score(self, log: Any, y: None = None) -> float:
        """Share of steps where `predict` agrees with the log; a warm-up's steps, chosen at random, do not count."""
        log = check_log(self._table_read(log, choices=True))
        steps = log.policy_steps
        return float(np.mean(self.predict(log)[steps] == log.chosen[steps]))

    def weights(self, *, as_frame: bool = True) -> Any:
        """Every feature with its weight in the policy right after the log, and in the rewards if they are estimated.

        Parameters
        ----------
        as_frame : bool
            True: a DataFrame of pandas, which must be installed. False: a table of pyarrow.

        Returns
        -------
        weights : DataFrame or pyarrow.Table, with columns feature, policy, reward
        """
        check_is_fitted(self, "next_policy_coef_")
        names = self.feature_names_in_ or tuple(str(column) for column in range(self.n_features_in_))
        kind = getattr(self, "decider_", None)
        # Lone surrogates, which a name in memory may hold, have no place in a table.
        names = tuple(name.encode("utf-8", "replace").decode() for name in names)
        columns = {"feature": names, "policy": self.next_policy_coef_}
        if self.learns_rewards and (kind is None or kind.learns):
            columns["reward"] = self.coef_
        table = pa.table(columns)
        if not as_frame:
            return table
        try:
            return table.to_pandas()
        except ImportError:
            raise ImportError("weights() needs pandas (pip install pandas), or as_frame=False.") from None

    def _read(self, log: Any, *, choices: bool = False) -> Any:
        """A table, or a list of candidate sets, as a log; anything else as it is."""
        log = self._table_read(log, choices=choices)
        if isinstance(log, (list, tuple)) and len({np.shape(each) for each in log if np.ndim(each) == 2}) > 1:
            return BehaviorLog.from_episodes([(log, np.zeros(len(log), dtype=np.int64))])
        return log

    def _tells_choices(self, log: Any) -> bool:
        """Whether a table has the columns that told the choices of the fitted log, and their episodes."""
        if not hasattr(log, "__arrow_c_stream__"):
            return False
        needed = ("chosen", "episode") if self.preparation_ is None else self.preparation_.of_choices
        return set(needed) <= set(pa.table(log).column_names)

    def _table_read(self, log: Any, *, choices: bool) -> Any:
        """A table as a log, with its features made as those of the fitted one; anything else as it is."""
        if not hasattr(log, "__arrow_c_stream__"):
            return log
        names = self.feature_names_in_
        if names is None or tuple(pa.table(log).column_names) == names:
            return log  # one set of candidates, without a column that names a step
        made = self.preparation_
        if made is None:
            return read_log(log, features=list(names), choices=choices)
        return read_log(log, preparation=made, choices=choices, **made.reading_again(choices=choices))

    def _check_features(self, d: int, names: tuple[str, ...] | None) -> None:
        if d != self.n_features_in_:
            raise ValueError(
                f"the candidates have {d} features but {type(self).__name__} was fitted on {self.n_features_in_}; "
                "give it the features of the log it was fitted on."
            )
        fitted = self.feature_names_in_
        if names is not None and fitted is not None and names != fitted:
            column = next(i for i, (a, b) in enumerate(zip(names, fitted, strict=True)) if a != b)
            raise ValueError(
                f"feature {column} is {names[column]!r} but {type(self).__name__} was fitted with {fitted[column]!r} "
                f"there; {'bring the columns into the order' if names[column] in fitted else 'give it the features'} "
                "of the fitted log."
            )

    def _become(self, log: BehaviorLog, **fitted: Any) -> Self:
        """Become fitted on a log with these attributes: all at once, so that nobody ever sees half of them."""
        of_log = {
            "n_features_in_": log.n_features,
            "feature_names_in_": log.feature_names,
            "preparation_": log.preparation,
            "log_fingerprint_": log_fingerprint(log),
        }
        self.__dict__ = self.__dict__ | of_log | fitted
        return self

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        own: str = super().__repr__(N_CHAR_MAX)
        if not hasattr(self, "next_policy_coef_"):
            return own
        entries, facts = getattr(self, "diagnostics_", ()), [getattr(self, "expert_", "")]
        if entries:
            facts += [f"{len(entries):,} episodes, {sum(entry.steps for entry in entries):,} steps"]
        return f"{own}, fitted: {', '.join(filter(None, [*facts, f'{self.n_features_in_:,} features']))}"

    def _repr_html_inner(self) -> str:
        # Imported here, and from a room above, because only notebooks want it.
        from ibcb.report.rendering import summary_html

        return f"{summary_html(self)}{super()._repr_html_inner()}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        # As scikit-learn's, whose setting sklearn.set_config(display=...) decides whether there is HTML at all.
        shown: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in shown:
            shown["text/html"] = self._repr_html_inner()
        return shown

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything that fitting set, as named arrays and JSON: what `ibcb.save_model` stores."""
        arrays = {"coef": self.coef_, "next_policy_coef": self.next_policy_coef_}
        preparation = None if self.preparation_ is None else self.preparation_.to_json()
        return arrays, {
            "feature_names": self.feature_names_in_,
            "preparation": preparation,
            "log_fingerprint": self.log_fingerprint_,
        }

    def set_state(self, arrays: dict[str, NDArray[Any]], state: dict[str, Any]) -> None:
        """Become fitted with what `get_state` gave."""
        self.n_features_in_ = d = arrays["coef"].size
        for name in ("coef", "next_policy_coef"):
            weights = arrays[name]
            if weights.ndim != 1 or weights.size != d or not d or np.abs(weights).max() > LARGEST_WEIGHT:
                raise ValueError(f"{name} must have a weight for every feature, none beyond {LARGEST_WEIGHT:g}")
        self.coef_, self.next_policy_coef_ = arrays["coef"], arrays["next_policy_coef"]
        names = state["feature_names"]
        if names is not None and not (isinstance(names, list) and all(isinstance(each, str) for each in names)):
            raise ValueError("feature_names is not a list of names")
        self.feature_names_in_ = distinct_names(names, self.n_features_in_)
        stored = state["preparation"]
        self.preparation_ = None if stored is None else Preparation.from_json(stored)
        if self.preparation_ is not None and self.preparation_.feature_names != self.feature_names_in_:
            raise ValueError("the features are not those that its recipe makes")
        if not is_fingerprint(state["log_fingerprint"]):
            raise ValueError(f"log_fingerprint is {state['log_fingerprint']!r}, not 32 hexadecimal digits")
        self.log_fingerprint_ = state["log_fingerprint"]


def as_candidates(log: Any, *, on_disk: bool = False) -> tuple[Any, tuple[int, ...] | None]:
    """Candidate sets, a log or an array, as a log, ``on_disk`` where that will do; and how an array arranged them: (M,)
    or (steps, M).
    """
    if is_log(log):
        return check_log(log, on_disk=on_disk), None
    contexts = candidate_array(log)
    sets = [contexts] if contexts.ndim == 2 else contexts
    return BehaviorLog.from_episodes([(sets, np.zeros(len(sets), dtype=np.int64))]), contexts.shape[:-1]


def check_log(log: Any, *, on_disk: bool = False) -> Any:
    """The log itself, or an error if it is something else, or holds numbers that nothing can be learned from.

    One on disk only where that will do; its numbers are checked as they are read.
    """
    if not is_log(log):
        raise WrongTypeError(
            f"expected a BehaviorLog, got {type(log).__name__}; build one with "
            "BehaviorLog.from_episodes([(contexts, chosen), ...]) or ibcb.read_log(path)."
        )
    if not (on_disk or log.in_memory):
        raise TypeError("this needs the log in memory, but it is on disk; give it log.read().")
    if log.in_memory:
        log.read().check_sizes()
    return log
