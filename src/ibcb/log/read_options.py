"""What a user may say about how to read a log, each option declared once.

`ReadOptions` holds the options and checks them; `ibcb.read_log`, files of options and the command line are made from
`READING`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ibcb.log.option import (
    COUNT,
    FLAG,
    Form,
    Option,
    boolean,
    check_all,
    declared,
    did_you_mean,
    names,
    one_of,
    option,
    text,
    whole,
)
from ibcb.numerics.printable import WrongTypeError, shown

if TYPE_CHECKING:
    from ibcb.log.recipe import Preparation

#: what a column can be, and names that are recognised, the likelier first; in lower case with _ for - and space
ROLES: dict[str, tuple[str, ...]] = {
    "episode": ("episode", "episode_id", "batch", "batch_id", "policy_version", "model_version"),
    "step": ("step", "step_id", "request_id", "decision_id", "impression_id", "event_id", "round"),
    "chosen": ("chosen", "is_chosen", "selected", "is_selected", "picked", "action_taken", "choice"),
    "timestamp": ("timestamp", "time", "ts", "datetime", "event_time", "logged_at"),
    "step_id": ("step_id", "request_id", "decision_id", "impression_id", "event_id"),
    "propensity": (
        *("propensity", "propensity_score", "pscore", "probability", "prob"),
        *("propensities", "propensity_scores", "pscores", "probabilities"),
    ),
    "candidate": ("candidate", "candidate_id", "item", "item_id", "arm", "arm_id", "action", "action_id"),
}
#: what people write for a role, and for which
_MEANT = {"action": "chosen", "user": "step", "day": "episode", "date": "timestamp", "item": "candidate"}
#: ways to cut episodes, of which one will do
CUTS = ("episode_every", "episode_size", "episodes")
#: what to do with missing numbers
_FILLED = ("refuse", "mean", "zero")
_LARGEST = 2**63 - 1
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def window_seconds(text: str) -> int:
    """Such as "1d", as seconds."""
    if not isinstance(text, str):
        raise WrongTypeError(f"episode_every={shown(text)} is not a duration; write it as text: '1d', '6h' or '30min'.")
    match = re.fullmatch(r"(\d+)\s*(s|min|h|d|w)", text.strip())
    seconds = 0 if match is None else int(match[1]) * _UNITS[match[2]]
    if not 0 < seconds < _LARGEST:
        raise ValueError(f"episode_every={shown(text)} is not a duration; write 1d, 6h or 30min.")
    return seconds


# -- how values are written on the command line ----------------------------------------------------------------------


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise ValueError(f"{wrong[0]}: write ROLE=NAME, such as step=request_id.")
    return {role: name for role, _, name in (text.partition("=") for text in texts)}


def _edges(text: str) -> str | list[int]:
    try:
        return text if text == "auto" else [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"{text}: write auto, or the first step of every episode, such as 0,400,800.") from None


# -- checks ----------------------------------------------------------------------------------------------------------


def _check_roles(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise WrongTypeError(
            f"{name}={shown(value)} is no mapping; give roles and their columns, {{'step': 'request'}}."
        )
    for role in value:
        if role not in ROLES:
            hint = did_you_mean(str(role), ROLES, _MEANT)
            raise ValueError(f"{name} has a role {shown(role)}{hint}; the roles are {', '.join(ROLES)}.")


def _check_names(name: str, value: Any) -> None:
    if isinstance(value, str):
        raise WrongTypeError(f"{name}={shown(value)} is text; give a list of names, [{shown(value)}].")


def _check_crosses(name: str, value: Any) -> None:
    _check_names(name, value)
    for cross in value:
        rule = "give the names of the columns to multiply: ('a', 'b')."
        if isinstance(cross, str):
            raise WrongTypeError(f"{name} has {shown(cross)}, a text; {rule}")
        if not cross or not all(isinstance(each, str) and each for each in cross):
            raise ValueError(f"{name} has {shown(cross)}; {rule}")


def _check_alternatives(name: str, value: Any) -> None:
    _check_names(name, value)
    if value and len({str(each).casefold() for each in value}) < max(2, len(value)):
        raise ValueError(
            f"{name}={shown(list(value))} must be two or more different names; with fewer there is nothing to choose."
        )


def _check_sign(name: str, value: Any) -> None:
    plain = isinstance(value, str) and len(value) == 1 and value.isascii() and not value.isalnum()
    if value is not None and not (plain and value not in "\r\n\"'"):
        raise ValueError(f"{name}={shown(value)} cannot be used; give a single character, such as a comma.")


def _check_date_format(name: str, value: Any) -> None:
    if value is not None and "%" not in str(value):
        raise ValueError(f"{name}={shown(value)} has no %; write it as in %d.%m.%Y %H:%M.")


def _check_duration(name: str, value: Any) -> None:
    if value is not None:
        window_seconds(value)


def _check_episodes(name: str, value: Any) -> None:
    from ibcb.log.array_checks import first_steps

    if isinstance(value, str) and value != "auto":
        raise ValueError(
            f"{name}={shown(value)} is unknown; write 'auto' to find the edges, or give the first step of every "
            "episode: [0, 400, 800]."
        )
    if value is not None and value != "auto":
        first_steps(value)


def _check_memory(name: str, value: Any) -> None:
    from ibcb.log.memory import memory_budget

    memory_budget(value)


# -- the options -----------------------------------------------------------------------------------------------------

_NAME, _EACH, _NAMES, _CHAR = text("NAME"), Form("NAME", list, repeated=True), Form("A,B,C", names), text("CHAR")
_FILE = text("FILE")
_PAIRS = Form("ROLE=NAME", _pairs, repeated=True)
_ENCODED = Form("NAME", lambda texts: list(texts) == ["all"] or list(texts), repeated=True)
_CROSSES = Form("'A,B'", lambda texts: [tuple(names(text)) for text in texts], repeated=True)
#: options of how features are made, and those of them that most people need
_OWN: dict[str, Any] = {"kept": "features"}
_OFTEN: dict[str, Any] = {"kept": "features", "usual": True}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a user may say about how to read a log.

    Attributes
    ----------
    columns : dict, optional
        Which column plays a role, as in chosen=shown, where its name does not tell. Roles: episode, step, chosen,
        candidate, timestamp, step_id, propensity.

        In Python ``{"chosen": "shown"}``. Propensities are kept beside the log (``log.propensities``) and never fitted.
    features : list of str, optional
        Columns to use as features. Default: all without another role.

        In this order. By default those without a name and those whose name suggests a reward are left out, too;
        ``log.notes`` says which.
    drop : list of str
        Columns to ignore.
    keep : list of str
        Columns to use as features though their names suggest a reward or a probability.

        Such as a ``cost`` that was known before the choice. Only for tables with a row per candidate; other formats
        leave out no feature because of its name.
    one_hot : list of str, or True
        Columns of text, numbers or ids to encode as one feature per value; 'all' encodes every column of text.

        True is "all".
    min_count : int
        With ``one_hot``: values with fewer rows share one feature, NAME=other. So do values that only new data has.
    cross : list of tuples of str
        Products of features: with user_*,item_* every feature of a user's column times every one of an item's.

        As ``user_age*item_price``. Names may have shell wildcards; text columns are encoded. Columns that all
        candidates of a step share are used in products only. In Vowpal Wabbit text and dsjson the names are those of
        namespaces, and ``("ui",)`` is ``-q ui``, by their first letters.
    missing : {"refuse", "mean", "zero"}
        Missing numbers: refuse them, or fill in the column's mean or 0.
    standardize : bool
        Centre each feature and scale it to deviation 1, new data likewise.

        By the mean and standard deviation of all candidates' rows; one-hot features stay 0 and 1. Both are kept with
        the log and its model, which apply them to new data (``preparation``); weights are then per standard deviation.
        Reads the log once more.
    arm : str, optional
        For a row per step: the column with the chosen arm. Each arm gets weights of its own.

        The other columns are features of the step. Every arm is a candidate, with a constant and weights of its own on
        these features: ``arm=7``, ``arm=7:age``.
    alternatives : list of str
        For a row per step: names of the alternatives. With car,bus the columns price_car and price_bus are the feature
        price.

        A column ``alternative`` holds their names; one-hot, it gives each a constant. See `ibcb.io.wide`.
    items : path, or table
        A table of the items' features, joined on the candidate's id.

        By the column with the role candidate, or the one that both have.
    available : str, optional
        With ``arm``: the column that lists the arms available at each step, as in a|b|c.

        Or as a list. An empty cell means all arms.
    arm_features : path, or DataFrame, optional
        With ``arm``: a table with a row per arm, whose features all arms share.

        The arms stand in a column of the same name.
    episode_every : str, optional
        Start an episode every 1d, 6h or 30min.

        Counted from midnight, 1 January 1970, UTC. Steps must be in the order of time.
    episode_size : int, optional
        Start an episode every N steps.
    episodes : "auto", or list of int, optional
        First step of every episode, as in 0,400,800; auto finds from the choices when the policy was updated.

        In one more pass over the log (`ibcb.find_updates`); ``log.notes`` says what was found. Steps are counted after
        the warm-up, if the log's own episodes mark one.
    warmup : int, optional
        How many leading episodes were chosen at random, not by the policy. Default: those with negative numbers.
    sort : bool
        Sort the rows by episode, time and step first; needs all of them in memory.
    format : str, optional
        File format, if the name does not tell: parquet, csv, arrow, jsonl, npz, vw, dsjson, openbandit.
    delimiter : str, optional
        Separator of CSV, as in ';'. Default: guessed from the header.
    decimal : str
        Decimal mark of CSV, a point or a comma.
    date_format : str, optional
        How times are written, as in '%d.%m.%Y %H:%M'. Default: ISO 8601.

        As for `datetime.datetime.strptime`.
    max_memory : int or str, optional
        Memory that reading may take, as in 500MB or 2GB. Default: half of the machine's.

        Or a number of bytes. What needs more is refused: a whole log, or a single step of one that is read part by
        part.
    deduplicate : bool
        Leave out rows that repeat an earlier one in all columns that are not dropped; needs the log in memory.
    skip_unlabelled : bool
        Leave out steps without a chosen candidate. By default they are refused.
    choices : bool
        False: candidate sets without choices, for ``predict``.
    preparation : Preparation, optional
        Make the features as for another log: ``model.preparation_``.

        A log that does not say how its features were made is assumed to hold raw numbers, which are centred and scaled
        if those of the other log were.
    """

    columns: Mapping[str, str] = option(
        {}, _PAIRS, _check_roles, flags="--column", heading="Reading: columns", **_OFTEN
    )
    features: Sequence[str] | None = option(None, _NAMES, _check_names, **_OFTEN)
    drop: Sequence[str] = option((), _EACH, _check_names, **_OFTEN)
    keep: Sequence[str] = option((), _EACH, _check_names, **_OFTEN)
    one_hot: Sequence[str] | bool = option((), _ENCODED, _check_names, **_OFTEN)
    min_count: int = option(
        1, COUNT, whole(1, "it is the number of rows that a category needs for a feature of its own"), **_OWN
    )
    cross: Sequence[Sequence[str]] = option((), _CROSSES, _check_crosses, **_OWN)
    missing: str = option("refuse", text("|".join(_FILLED)), one_of(lambda: _FILLED), **_OWN)
    standardize: bool = option(False, FLAG, boolean, **_OWN)
    arm: str | None = option(None, _NAME, heading="Reading: layout", **_OFTEN)
    alternatives: Sequence[str] = option((), _NAMES, _check_alternatives, usual=True, kept="place")
    items: Any = option(None, _FILE, usual=True, kept="place")
    available: str | None = option(None, _NAME, **_OWN)
    arm_features: Any = option(None, _FILE, **_OWN)
    episode_every: str | None = option(None, text("TIME"), _check_duration, heading="Reading: episodes", usual=True)
    episode_size: int | None = option(None, COUNT, whole(1, "it is the number of steps in an episode"), usual=True)
    episodes: str | Sequence[int] | None = option(None, Form("auto|STEPS", _edges), _check_episodes, usual=True)
    warmup: int | None = option(
        None, COUNT, whole(0, "it is the number of leading episodes that were random"), usual=True
    )
    sort: bool = option(False, FLAG, boolean)
    format: str | None = option(None, _NAME, heading="Reading: file", kept="place")
    delimiter: str | None = option(None, _CHAR, _check_sign, kept="place")
    decimal: str = option(".", _CHAR, _check_sign, kept="place")
    date_format: str | None = option(None, text("PATTERN"), _check_date_format)
    max_memory: int | str | None = option(None, text("SIZE"), _check_memory, **_OWN)
    deduplicate: bool = option(False, FLAG, boolean)
    skip_unlabelled: bool = option(False, FLAG, boolean)
    choices: bool = option(True, **_OWN)
    preparation: Preparation | None = option(None, **_OWN)

    def __post_init__(self) -> None:
        check_all(READING, self.__getattribute__, self._check_arms, self._check_cuts)

    def _check_arms(self) -> None:
        for name in ("available", "arm_features"):
            if getattr(self, name) is not None and self.arm is None and self.preparation is None:
                raise ValueError(f"{name} is about arms; name the column with the chosen arm, too: arm='arm' (--arm).")

    def _check_cuts(self) -> None:
        cuts = [name for name in CUTS if getattr(self, name) is not None]
        if len(cuts) > 1:
            raise ValueError(f"{cuts[0]} and {cuts[1]} exclude each other; give one of them.")

    @property
    def cuts(self) -> bool:
        """Whether episodes are cut here, rather than by labels of the log."""
        return any(getattr(self, name) is not None for name in CUTS)

    @cached_property
    def memory(self) -> int:
        """Bytes of memory that reading may take."""
        from ibcb.log.memory import memory_budget

        return memory_budget(self.max_memory)

    @property
    def encoded(self) -> list[str]:
        """The columns that were named to be encoded."""
        return [] if isinstance(self.one_hot, bool) else list(self.one_hot)

    def kept(self) -> tuple[tuple[str, Any], ...]:
        """What the preparation of a log does not say of how it was read, for others like it."""
        before = {} if self.preparation is None else dict(self.preparation.reading)
        for each in READING:
            value = getattr(self, each.name)
            if isinstance(value, (list, tuple)):
                value = [int(one) if each.name == "episodes" else str(one) for one in value]
            elif isinstance(value, os.PathLike):
                value = os.fspath(value)
            elif not isinstance(value, (bool, int, float, str)):
                continue
            if each.kept != "features" and value not in ([], each.default):
                before[each.name] = value
        return tuple(before.items())

    @property
    def crossed(self) -> list[str]:
        """The names in crosses, and the patterns."""
        return list(dict.fromkeys(name for names in self.cross for name in names))


#: how to read a log, in the order of the help texts
READING = declared(ReadOptions)
#: those that a file of options can hold
STORED = tuple(each for each in READING if each.form is not None)
OPTIONS_FILE = Option(
    name="options",
    form=_FILE,
    heading="Reading: file",
    usual=True,
    help="TOML file of options, as ibcb validate --save-options writes it; what is given beside it wins.",
    entry="options : path, optional\n    A TOML file with any of these options; those given here win. ``ibcb validate "
    "--save-options`` writes one.",
)
