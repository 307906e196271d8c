"""dsjson: the log of Vowpal Wabbit's decision service (and of Azure Personalizer), one JSON object a line.

::

    {"_labelIndex": 1, "_label_Action": 2, "_label_cost": -1, "_label_probability": 0.8,
     "Timestamp": "2020-11-15T17:09:31.835Z", "EventId": "38cb", "a": [2, 1], "p": [0.8, 0.2],
     "c": {"user": {"age": 31}, "_multi": [{"item": {"price": 0.5, "colour": "red"}}, {"item": {"price": 0.25}}]}}

``c._multi`` holds the candidates; ``_labelIndex`` (from 0), ``_label_Action`` and the first of ``a`` (from 1) tell the
chosen one. A candidate's features: objects within objects give ``item.price``; numbers are what they are, true and
false 1 and 0, a text gives ``item.colour=red`` with value 1, an array of numbers ``path[0]``, ``path[1]``, ...; objects
in an array count as if they stood in its place. Keys that begin with ``_`` are not features, and null is nothing.

``p`` has the propensity of each candidate in ``a``, ``_label_probability`` that of the chosen one alone; they are kept
beside the log. Where those of the chosen ones are all 1, or 0, as whoever does not know them writes, there are none.
Costs are never kept. The other features in ``c`` are the same for all candidates of a step, so that
no linear policy can depend on them; they are left out, but for products: ``cross=[("user", "item")]`` multiplies the
features in one object at the top with those in another, as ``-q ui`` does. Lines that are no decision, such as rewards
that came later, are skipped and counted, and so are those marked ``_skipLearn``.

The writer adds keys that Vowpal Wabbit does not look at: ``ibcb_episode``, ``ibcb_unnamed`` where the features have no
names, ``ibcb_timestamp`` and ``ibcb_step_id`` where these are not times and texts, ``ibcb_unlogged`` at a choice
without propensity where others have one. Only the float type is lost, how the features were made, and propensities of
some candidates that are neither those of all nor that of the chosen one.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ibcb.io.cells import time_of
from ibcb.io.format import Format, has_suffix
from ibcb.io.opened import first_lines, text_lines
from ibcb.io.sources import refused, some
from ibcb.io.sparse import Decision, SparseSource, steps_to_write
from ibcb.io.words import refusal, sentence
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError, first_true, plural
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.numerics.printable import shown

#: what a line says of its step: the role, the key that we write, and the usual one
_EXTRAS = (
    ("episode", "ibcb_episode", "ibcb_episode"),
    ("step_id", "ibcb_step_id", "EventId"),
    ("timestamp", "ibcb_timestamp", "Timestamp"),
)
#: keys of propensities
_LABEL, _LISTS = "_label_probability", ("p", "_p")
#: names that JSON of other kinds may have, too
_UNSURE = tuple(f"{name}{gz}" for name in (".json", ".jsonl", ".ndjson", ".txt", ".log") for gz in ("", ".gz"))
#: of a fraction of seconds nanoseconds are taken
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(?:(?<=\.\d{9})\d+)?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
#: the years that 64 bits of nanoseconds reach whole
_YEARS = range(1678, 2262)


class DSJsonSource(SparseSource):
    """Steps from dsjson; see `Source`.

    ``options.columns`` may name the key that holds ``episode``, ``timestamp``, ``step_id`` or ``propensity``, with dots
    for keys within objects, as in ``VWState.m``. ``options.drop`` may name ``Timestamp``, ``EventId``,
    ``_label_probability`` and ``p``. With ``choices=False``
    decisions need no label; ``chosen`` is 0 where there is none. ``sort`` orders the steps by episode and time.
    """

    separator, _shared_words = ".", "shared features"
    _roles = ("episode", "timestamp", "step_id", "propensity")
    _own_keys = ("Timestamp", "EventId", _LABEL, *_LISTS)
    _without_propensities = f"drop=['p', {_LABEL!r}] (--drop p --drop {_LABEL})"
    _no_choice = "no key says which candidate was chosen; expected _labelIndex, _label_Action or a", "lines"

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        self._private: dict[str, None] = {}
        self._models: set[str] = set()
        self._unnamed = True
        #: of episode, step id and time: what the lines so far hold
        self._kinds: list[str] = []
        super().__init__(path, options)
        if self._unnamed and options.preparation is None and options.features is None and not options.drop:
            self.feature_names = self.preparation = None

    def _read(self) -> Iterator[Decision]:
        empty = True
        for number, raw in text_lines(self._opened, self._options.memory):
            try:
                decision = self._decided(_parsed(raw), f"line {number}") if raw.strip() else None
            except LogFormatError as error:
                raise LogFormatError(f"line {number}: {error}") from None
            except RecursionError:
                raise LogFormatError(f"line {number}: objects are nested too deeply to read; flatten them.") from None
            if decision is not None:
                empty = False
                yield decision
        if empty and self._left_out:
            lines = plural(self._left_out.total(), "line")
            raise LogFormatError(f"no decision in {lines}; a decision has its candidates in c._multi.")

    def _remarks(self) -> list[Note]:
        remarks = []
        if self._private:
            text = f"keys of candidates that begin with _ are not features; left out: {some(self._private)}."
            remarks.append(Note("private-keys", "info", text, {"keys": tuple(self._private)}))
        if count := self._left_out["no decision"]:
            text = f"{plural(count, 'line')} without a decision (rewards that came later, checkpoints) left out."
            remarks.append(Note("lines-without-decision", "info", text, {"lines": count}))
        if count := self._left_out["not learned from"]:
            text = f"{plural(count, 'decision')} marked _skipLearn, from which the decider never learned, left out."
            remarks.append(Note("decisions-not-learned-from", "info", text, {"decisions": count}))
        if len(self._models) > 1 and "episode" not in self._options.columns:
            remarks.append(Note("models-named", "info", sentence("models-named"), {"models": len(self._models)}))
        return remarks

    # -- one line --------------------------------------------------------------------------------------------------

    def _decided(self, line: Any, place: str) -> Decision | None:
        """The decision of a line, if it has one."""
        line = line if isinstance(line, dict) else {}
        if "_multi" in line:
            raise refusal("json-no-dsjson")
        context = line.get("c")
        if context is None or line.get("_skipLearn") is True:
            self._left_out["no decision" if context is None else "not learned from"] += 1
            return None
        if "_label_ca" in line:
            raise LogFormatError(f"the decision {refused('ca')}")
        context = context if isinstance(context, dict) else {}
        multi = context.get("_multi")
        if "_slots" in context:
            slates = any(isinstance(action, dict) and "_slot_id" in action for action in multi or ())
            raise refusal("decision-of-slots", refused=refused("slates" if slates else "ccb"))
        if not isinstance(multi, list) or not multi:
            raise LogFormatError("c has no list _multi of candidates; a decision needs at least one.")
        own = {key: value for key, value in context.items() if not key.startswith("_")}
        self._remember(self._shared, own)
        candidates = [self._features(value, f"candidate {index}") for index, value in enumerate(multi)]
        chosen = _chosen(line, len(candidates))
        episode, step_id, timestamp = self._extras(line)
        self._unnamed = self._unnamed and line.get("ibcb_unnamed") is True
        model = _at(line, "VWState.m")
        if isinstance(model, str) and model != "N/A" and len(self._models) < 2:
            self._models.add(model)
        shared = self._features(own, "c") if self._with_shared else {}
        logged = self._propensities(line, chosen, len(candidates))
        return Decision(place, candidates, chosen, episode, step_id, timestamp, shared, logged)

    def _features(self, value: Any, place: str) -> dict[str, float]:
        """The features of a candidate, or those of a step."""
        row: dict[str, float] = {}
        if not isinstance(value, dict):
            raise LogFormatError(f"{place}: {shown(value, 40)} is not an object; a candidate is an object of features.")
        if "__aid" in value:
            raise refusal("candidate-elsewhere", place=place)
        self._flatten(value, None, row, place)
        return row

    def _flatten(self, value: Any, path: str | None, row: dict[str, float], place: str) -> None:
        """Put the features of a value at ``path`` into the row."""
        if isinstance(value, dict):
            for key, inner in value.items():
                if not key.startswith("_"):
                    self._flatten(inner, key if path is None else f"{path}.{key}", row, place)
                elif len(self._private) < 1000:
                    self._private[key] = None
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                if isinstance(inner, list):
                    raise refusal("feature-nested", place=place, path=path)
                self._flatten(inner, f"{path}[{index}]" if isinstance(inner, (int, float)) else path, row, place)
        elif value is not None:
            name, number = (f"{path}={value}", 1.0) if isinstance(value, str) else (str(path), _float(value))
            if number - number != 0:
                raise LogFormatError(f"{place}: feature {shown(name)} is not finite; impute it or leave the line out.")
            row[name] = row[name] + number if name in row else number

    def _propensities(self, line: dict[str, Any], chosen: int | None, count: int) -> dict[int, float]:
        """The logged propensities by position: of the candidates in ``a``, or of the chosen one."""
        named, drop = self._options.columns, self._options.drop
        keys = [named["propensity"]] if "propensity" in named else [*_LISTS, _LABEL]
        told = {key: value for key in keys if (value := _at(line, key)) is not None and key not in drop}
        if not told or not self._options.choices or line.get("ibcb_unlogged") is True:
            return {}
        remedy = f"read without: {self._without_propensities}."
        for key, value in told.items():
            each = value if isinstance(value, list) else [value]
            if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in each):
                raise refusal("no-probability", key=key, value=shown(value, 40), remedy=remedy)
        actions = line.get("a")
        actions = actions if isinstance(actions, list) else list(range(1, count + 1))
        base = 0 if 0 in actions else 1
        fits = all(type(action) is int and base <= action < count + base for action in actions)
        fits = fits and len(set(actions)) == len(actions)
        for value in told.values():
            if not isinstance(value, list):
                return {chosen or 0: _float(value)}
            if fits and len(value) == len(actions):
                return {action - base: _float(number) for action, number in zip(actions, value, strict=True)}
        key, value = next(iter(told.items()))
        raise refusal(
            "actions-unlike", key=key, numbers=len(value), actions=shown(actions, 40), count=count, remedy=remedy
        )

    def _extras(self, line: dict[str, Any]) -> list[Any]:
        """Episode, step id and time of a line; all lines have them or none has."""
        named, drop = self._options.columns, self._options.drop
        values, kinds = [], []
        for place, (role, ours, usual) in enumerate(_EXTRAS):
            key = named.get(role, usual)
            if role not in named and key not in drop and ours in line:
                value = line[ours]
            else:
                value = _at(line, key) if role in named or key not in drop else None
                value = self._time(value) if role == "timestamp" and isinstance(value, str) else value
            if isinstance(value, bool) or not isinstance(value, (int, float, str, np.datetime64, type(None))):
                what = role.replace("timestamp", "time").replace("_", " ")
                raise LogFormatError(f"the {what} is {shown(value, 40)}; expected a number or a text.")
            values.append(value)
            kind = "missing" if value is None else "text" if isinstance(value, str) else "a number"
            kinds.append("a time" if isinstance(value, np.datetime64) else kind)
            if self._kinds and kinds[-1] != self._kinds[place]:
                remedy = f"; drop=['{key}'] (--drop {key}) reads the log without" if key in self._own_keys else ""
                raise LogFormatError(f"{key} is {kinds[-1]}, but {self._kinds[place]} in the lines before it{remedy}.")
        self._kinds = kinds
        return values

    def _time(self, text: str) -> np.datetime64:
        """A time as UTC; without a zone it is taken for UTC."""
        form = self._options.date_format
        try:
            return _utc(text) if form is None else time_of(text, form)
        except ValueError as error:
            raise LogFormatError(
                f"Timestamp is {shown(text, 40)}; expected a time such as 2020-11-15T17:09:31.835Z, or read without: "
                "drop=['Timestamp'] (--drop Timestamp)."
                if form is None
                else f"the time is {shown(text, 40)}, not as in {form!r} ({error}); correct --date-format."
            ) from None


def _utc(text: str) -> np.datetime64:
    """A time in the ISO form; ValueError where it is none, or one that 64 bits of nanoseconds do not reach."""
    match = _TIME.fullmatch(text.strip())
    if match is None or int(match[1][:4]) not in _YEARS:
        raise ValueError
    date, clock, zone = match.groups()
    time = np.datetime64(f"{date}T{clock}", "ns")
    if zone in (None, "Z"):
        return time
    minutes = 60 * int(zone[1:3]) + int(zone[-2:])
    return time - np.timedelta64(minutes if zone[0] == "+" else -minutes, "m")


def _parsed(raw: bytes) -> Any:
    """What a line of JSON holds."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a JSON number; impute it or leave the line out")

    try:
        line = json.loads(raw.decode("utf-8-sig"), parse_constant=refuse)
        if b"\\ud" in raw.lower():
            # Half a pair of surrogates is text to Python, and to nobody else.
            json.dumps(line, ensure_ascii=False).encode()
        return line
    except UnicodeEncodeError:
        raise LogFormatError("a text holds half a character (\\ud...); repair the text.") from None
    except UnicodeDecodeError as error:
        raise LogFormatError(f"byte {error.start} is not UTF-8; save the file as UTF-8.") from None
    except ValueError as error:
        raise LogFormatError(f"not a line of JSON ({error}); every line must be one whole object.") from None


def _chosen(line: dict[str, Any], count: int) -> int | None:
    """The position of the chosen candidate, which every key that tells it must tell alike; None where no key does."""
    told: dict[str, int] = {}
    values = {key: line.get(key) for key in ("_labelIndex", "_label_Action")}
    actions = line.get("a")
    if isinstance(actions, list) and actions and not (0 in actions and any(v is not None for v in values.values())):
        # Where a label tells, and it counts from 0, it lists the actions rather than ranks them.
        values["a"] = actions[0]
    for key, value in values.items():
        base = 0 if key == "_labelIndex" else 1
        if value is None:
            continue
        if type(value) is not int:
            raise LogFormatError(f"{key} is {shown(value, 40)}; expected a whole number, counted from {base}.")
        if not base <= value < count + base:
            raise refusal("choice-beyond", key=key, value=value, count=count, base=base)
        told[key] = value - base
    if len(set(told.values())) > 1:
        what = ", ".join(f"{key} tells candidate {index}" for key, index in told.items())
        raise refusal("choice-told-twice", what=what)
    return next(iter(told.values()), None)


# -- writing -------------------------------------------------------------------------------------------------------


def write_dsjson(parts: Iterable[tuple[int, BehaviorLog]], path: str | os.PathLike[str]) -> None:
    """Write a log, part by part; `DSJsonSource` reads the same log back, but for the float type.

    ``p`` has logged propensities where they are known of all candidates, ``_label_probability`` that of the chosen one.
    Cost 0 is a placeholder, and so is probability 1 where none was logged. The first candidate has all features, so
    that their order comes back; the others leave out those that are 0.
    """
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for number, part, step, multi in steps_to_write(parts):
            private = [name for name in multi[0] if name.startswith("_")]
            if private:
                raise refusal("feature-private", name=private[0])
            if step == 0:
                times, ids = _times(part.timestamps, part.n_steps), _ids(part.step_ids, part.n_steps)
            rows = slice(*part.step_offsets[step : step + 2])
            logged = None if part.propensities is None else part.propensities[rows].tolist()
            line = _line(int(part.chosen[step]), multi, times[step], ids[step], logged) | {"ibcb_episode": number}
            line |= {"ibcb_unnamed": True} if part.feature_names is None else {}
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")


def looks_like_dsjson(path: str | os.PathLike[str]) -> bool:
    """Whether one of the first lines is a decision."""
    try:
        # What is longer is cut, and no JSON then.
        for line in (json.loads(raw) for raw in first_lines(Path(path), 20, 1 << 24) if raw.strip()):
            context = line.get("c") if isinstance(line, dict) else None
            # What only looks like it is refused in words that fit.
            if isinstance(line, dict) and "_multi" in line:
                return True
            if isinstance(context, dict) and ("_multi" in context or "_label_ca" in line):
                return True
    except (ValueError, RecursionError):
        pass
    return False


def _line(
    chosen: int, multi: list[Any], time: dict[str, Any], name: dict[str, Any], logged: list[float] | None
) -> dict[str, Any]:
    order = [chosen, *(index for index in range(len(multi)) if index != chosen)]
    p: list[float] = [1, *(0 for _ in multi[1:])] if logged is None else [logged[index] for index in order]
    unknown = [math.isnan(value) for value in p]
    more: dict[str, Any] = {} if any(unknown) else {"p": p}
    if unknown[0]:
        more = {"ibcb_unlogged": True}
    # Vowpal Wabbit reads a line from left to right and needs the label before the candidates.
    return {
        "_label_cost": 0,
        "_label_probability": 1 if unknown[0] else p[0],
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        **time,
        "Version": "1",
        **name,
        "a": [index + 1 for index in order],
        "c": {"_multi": multi},
        **more,
        "VWState": {"m": "N/A"},
    }


def _times(timestamps: NDArray[Any] | None, steps: int) -> list[dict[str, Any]]:
    """The keys that hold the time of each step."""
    if timestamps is None:
        return [{}] * steps
    if timestamps.dtype.kind != "M":
        return [{"ibcb_timestamp": value} for value in _plain(timestamps, "timestamps")]
    years = timestamps.astype("datetime64[Y]").astype(np.int64) + 1970
    if (at := first_true(np.isnat(timestamps) | ~np.isin(years, _YEARS))) is not None:
        raise refusal("time-unwritable", time=timestamps[at], first=_YEARS[0], last=_YEARS[-1])
    texts = np.datetime_as_string(timestamps.astype("datetime64[ns]"), unit="ns").tolist()
    return [{"Timestamp": f"{text}Z"} for text in texts]


def _ids(step_ids: NDArray[Any] | None, steps: int) -> list[dict[str, Any]]:
    """The keys that hold the id of each step; Vowpal Wabbit wants a text."""
    if step_ids is None:
        return [{}] * steps
    if step_ids.dtype.kind == "M":
        raise refusal("id-unwritable", time=step_ids[0])
    values = _plain(step_ids, "step_ids")
    return [{"EventId": v} if isinstance(v, str) else {"EventId": str(v), "ibcb_step_id": v} for v in values]


def _plain(values: NDArray[Any], what: str) -> list[Any]:
    result: list[Any] = values.tolist()
    for value in result:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0
        if not number and not isinstance(value, str):
            raise LogFormatError(f"{what} holds {shown(value, 40)}; dsjson can hold finite numbers, texts and times.")
    return result


def _at(line: dict[str, Any], path: str) -> Any:
    """What a key holds; dots lead into objects."""
    if path in line:
        return line[path]
    value: Any = line
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _float(number: Any) -> float:
    """As JSON may write whole numbers that are larger than any float."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


FORMAT = Format(
    name="dsjson file",
    open=DSJsonSource,
    suffixes=(".dsjson", ".dsjson.gz"),
    looks_like=lambda source: has_suffix(source, *_UNSURE) and looks_like_dsjson(source),
    write=write_dsjson,
    loses="the float type, propensities of some candidates but not all, and how the features were made",
)
