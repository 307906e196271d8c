"""Feedback as the Open Bandit Pipeline keeps it: a dict of arrays, with the features of the actions.

``action`` (n_rounds,) has the action of each round, ``action_context`` (n_actions, d) the features of the actions,
which are the candidates of every round, and ``context`` (n_rounds, m) those of the round. Without ``action_context``
every action has weights of its own on the context: it is an arm, as for `ibcb.BehaviorLog.from_arms`. ``pscore`` has
the propensity of each round's action, kept beside the log. ``reward`` and what is derived from it are never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.format import Format, Tables
from ibcb.io.layouts import table_source
from ibcb.io.sources import BATCH_NUMBERS, kept_features, refuse_roles, some
from ibcb.io.words import refusal
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError, first_true, float_array, plural, whole_numbers
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.steps import Source, Steps
from ibcb.numerics.contexts import dense
from ibcb.numerics.printable import shown

_STEP, _ACTION, _CHOSEN, _PSCORE = "step", "action", "chosen", "pscore"
#: numbers that ``context`` and ``pi_b`` may have together, 1.6 GB
_MOST_NUMBERS = 200_000_000


def _open(source: Mapping[str, Any], options: ReadOptions) -> Source:
    """The rounds as a table with a row for each of the actions."""
    if "action" in source and source.get("action_context") is None:
        return _Arms(source, options)
    chosen, of_round, of_action = _arrays(source)
    n, k = len(chosen), len(of_action["action_0"])
    most = BATCH_NUMBERS // k

    def rows(columns: Sequence[str], first: int, last: int) -> pa.Table:
        owner, action = np.repeat(np.arange(first, last), k), np.tile(np.arange(k), last - first)
        made = {_STEP: owner, _ACTION: action, _CHOSEN: action == chosen[owner]}
        made |= {name: np.repeat(of_round[name][first:last], k) for name in columns if name in of_round}
        made |= {name: np.tile(of_action[name], last - first) for name in columns if name in of_action}
        return pa.table({name: made[name] for name in columns})

    def read(columns: Sequence[str]) -> Iterator[pa.Table]:
        step = max(1, most // max(1, len(columns)))
        return (rows(columns, first, min(first + step, n)) for first in range(0, n, step))

    schema = rows([_STEP, _ACTION, _CHOSEN, *of_action, *of_round], 0, 0).schema
    roles = {"step": _STEP, "chosen": _CHOSEN, "candidate": _ACTION}
    if _PSCORE in of_round and _PSCORE not in options.drop:
        roles["propensity"] = _PSCORE
    tables = Tables("the feedback", schema, read, of_step=tuple(of_round))
    return table_source(tables, replace(options, columns=roles | dict(options.columns)))


def _arrays(source: Mapping[str, Any]) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The arrays of the feedback, checked: what was chosen, and the columns of rounds, and of actions."""
    if "action" not in source:
        raise refusal("feedback-no-action", keys=some(map(str, source), 12))
    chosen = whole_numbers(source["action"], "action", "the number of the chosen action")
    features = _matrix(source["action_context"], "action_context")
    n, k = len(chosen), len(features)
    told = _count(source, k)
    if isinstance(told, bool) or not isinstance(told, (int, float)) or told != k:
        raise refusal("feedback-actions-wrong", told=told, k=k)
    if (at := first_true((chosen < 0) | (chosen >= k))) is not None:
        raise LogFormatError(f"action[{at}] is {chosen[at]} but there are {k} actions; actions count from 0.")
    of_round: dict[str, NDArray[Any]] = {}
    if source.get("context") is not None:
        of_round = _columns("context", _matrix(source["context"], "context"))
    if source.get("position") is not None:
        of_round["position"] = whole_numbers(source["position"], "position", "where it was shown").astype(float)
    if source.get(_PSCORE) is not None:
        of_round[_PSCORE] = _pscore(source)
    for name, values in of_round.items():
        if len(values) != n:
            raise refusal("feedback-rounds-unlike", name=name.partition("_")[0], rows=len(values), n=n)
    return chosen, of_round, _columns("action", features)


def _columns(what: str, features: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {f"{what}_{place}": column for place, column in enumerate(features.T)}


class _Arms:
    """Rounds whose actions have no features; see `Source`."""

    name = "the feedback"
    preparation = None
    notes: tuple[Note, ...] = ()

    def __init__(self, source: Mapping[str, Any], options: ReadOptions) -> None:
        if source.get("context") is None:
            raise refusal("feedback-no-context")
        refuse_roles(options, self.name)
        arms = _count(source, None)
        if isinstance(arms, bool) or not isinstance(arms, (int, type(None))):
            raise LogFormatError(f"n_actions is {shown(arms)}; it is the number of actions, a whole number.")
        context = _matrix(source["context"], "context")
        log = BehaviorLog.from_arms(
            [(context, source["action"])],
            n_arms=arms,
            feature_names=list(_columns("context", context)),
            propensities=None if source.get(_PSCORE) is None or _PSCORE in options.drop else _pscore(source),
        )
        options = replace(options, drop=[name for name in options.drop if name != _PSCORE])
        self.feature_names, kept = kept_features(log.feature_names or (), options)
        self._steps = Steps(
            log.contexts if kept is None else log.contexts[:, kept],
            np.diff(log.step_offsets),
            log.chosen,
            candidate_ids=log.candidate_ids,
            propensities=log.propensities if options.choices else None,
        )

    def batches(self) -> Iterator[Steps]:
        """All rounds at once; they are in memory."""
        yield self._steps


def _count(source: Mapping[str, Any], default: int | None) -> Any:
    """The number of actions, as somebody has it."""
    told = source.get("n_actions", default)
    return told.item() if isinstance(told, (np.ndarray, np.generic)) and told.ndim == 0 else told


def _pscore(source: Mapping[str, Any]) -> NDArray[np.float64]:
    """Propensities of the actions, one per round."""
    values = float_array(source[_PSCORE], _PSCORE).astype(np.float64)
    if values.ndim != 1:
        raise refusal("feedback-pscore-shape", shape=values.shape)
    return values


def _matrix(values: Any, what: str) -> NDArray[Any]:
    array = float_array(values, what).astype(np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise LogFormatError(f"{what} has shape {array.shape}; expected a row for each and a column per feature.")
    return array


# -- writing -----------------------------------------------------------------------------------------------------------


def to_feedback(log: BehaviorLog) -> dict[str, Any]:
    """A log as feedback of the Open Bandit Pipeline, without ``reward``, which a log does not have.

    The actions are the candidates by their ids, in order, or by their position where they have none. What a step does
    not offer has probability 0.

    Parameters
    ----------
    log : BehaviorLog
        With propensities of all chosen candidates: logged ones, or ``log.with_propensities(model.propensities(log))``.

    Returns
    -------
    feedback : dict
        ``n_rounds``, ``n_actions``, ``action`` (n_rounds,), ``position`` (all 0), ``pscore`` (n_rounds,); ``context``
        (n_rounds, m), all features of candidates that vary from step to step, each once; ``action_context`` (n_actions,
        q), those that belong to the action, where there are any; ``pi_b`` (n_rounds, n_actions, 1), where propensities
        of all candidates are known; ``actions``, the ids. Add ``reward``.

    Examples
    --------
    >>> import ibcb
    >>> episodes = [([[[1.0], [2.0]], [[1.0], [2.0]]], [1, 0])]
    >>> log = ibcb.BehaviorLog.from_episodes(episodes, propensities=[0.2, 0.8, 0.4, 0.6])
    >>> feedback = ibcb.io.to_feedback(log)
    >>> feedback["action"].tolist(), feedback["pscore"].tolist(), feedback["action_context"].tolist()
    ([1, 0], [0.8, 0.4], [[1.0], [2.0]])
    """
    pscore = None if log.propensities is None else log.propensities[log.chosen_rows]
    if log.propensities is None or pscore is None or np.isnan(pscore).any():
        unknown = 0 if pscore is None else int(np.isnan(pscore).sum())
        missing = f"no propensity of {plural(unknown, 'choice')}" if unknown else "no propensities"
        raise refusal("feedback-no-propensities", missing=missing)
    n, counts = log.n_steps, np.diff(log.step_offsets)
    owner = np.repeat(np.arange(n), counts)
    names, actions = np.arange(int(counts.max())), np.arange(log.n_rows) - np.repeat(log.step_offsets[:-1], counts)
    if log.candidate_ids is not None:
        names, actions = np.unique(log.candidate_ids, return_inverse=True)
    k = len(names)
    feedback: dict[str, Any] = {
        "n_rounds": n,
        "n_actions": k,
        "action": actions[log.chosen_rows],
        "position": np.zeros(n, dtype=np.int64),
        "pscore": pscore,
        "actions": names,
    }
    feedback |= _split_features(log, owner, actions, k)
    if not np.isnan(log.propensities).any():
        feedback["pi_b"] = np.bincount(owner * k + actions, log.propensities, n * k).reshape(n, k, 1)
    return feedback


def _split_features(
    log: BehaviorLog, owner: NDArray[np.int64], actions: NDArray[np.int64], k: int
) -> dict[str, NDArray[Any]]:
    """What varies from step to step is context, what does not belongs to the action."""
    n, d = log.n_steps, log.n_features
    each = np.split(np.argsort(actions, kind="stable"), np.cumsum(np.bincount(actions, minlength=k))[:-1])
    low, high = np.empty((k, d)), np.empty((k, d))
    for action, rows in enumerate(each):
        X = log.contexts[rows]
        low[action], high[action] = dense(X.min(axis=0)).ravel(), dense(X.max(axis=0)).ravel()
    varying = low < high
    width = int(varying.sum()) + k
    if n * width > _MOST_NUMBERS:
        raise refusal("feedback-too-wide", n=n, width=width, most=_MOST_NUMBERS)
    # Features that several actions share are there once.
    columns: dict[bytes, NDArray[np.float64]] = {}
    for rows, its in zip(each, varying, strict=True):
        values = np.zeros((int(its.sum()), n))
        values[:, owner[rows]] = dense(log.contexts[rows][:, np.flatnonzero(its)]).T
        columns |= {column.tobytes(): column for column in values}
    of_action = ~varying.any(axis=0)
    arrays = {"context": np.column_stack(list(columns.values())) if columns else np.ones((n, 1))}
    return arrays | ({"action_context": low[:, of_action]} if of_action.any() else {})


FORMAT = Format(
    name="feedback",
    open=_open,
    looks_like=lambda source: (
        isinstance(source, Mapping)
        and "action" in source
        and bool({"context", "action_context", "n_actions", "reward"} & set(source))
    ),
)
