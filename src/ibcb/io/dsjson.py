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
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ibcb.io.cells import time_of
from ibcb.io.files import binary
from ibcb.io.format import Format, has_suffix
from ibcb.io.sources import refuse_roles, refused, same_features, shared_features, some, sorted_steps, unlabelled_steps
from ibcb.io.sparse import Decision, SparseSource, as_array, names_to_write
from ibcb.log import BehaviorLog
from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.disk import DAMAGE
from ibcb.log.notes import Note
from ibcb.log.steps import ReadOptions
from ibcb.numerics.contexts import dense

__all__ = ["FORMAT", "DSJsonSource", "looks_like_dsjson", "write_dsjson"]

_ROLES = ("episode", "timestamp", "step_id", "propensity")
#: keys of propensities
_LABEL, _LISTS = "_label_probability", ("p", "_p")
#: names that JSON of other kinds may have, too
_UNSURE = tuple(f"{name}{gz}" for name in (".json", ".jsonl", ".ndjson", ".txt", ".log") for gz in ("", ".gz"))
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII)


class DSJsonSource(SparseSource):
    """Steps from dsjson; see `Source`.

    ``options.columns`` may name the key that holds ``episode``, ``timestamp``, ``step_id`` or ``propensity``, with dots
    for keys within objects, as in ``VWState.m``. ``options.drop`` may name ``Timestamp``, ``EventId``,
    ``_label_probability`` and ``p``. With ``choices=False``
    decisions need no label; ``chosen`` is 0 where there is none. ``sort`` orders the steps by episode and time.
    """

    separator = "."

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        refuse_roles(options, Path(path).name, _ROLES)
        if options.preparation is not None:
            before = {role: key for role, key in options.preparation.roles if role in _ROLES}
            options = replace(options, columns=before | dict(options.columns))
        self._lines_without = {"no decision": 0, "not learned from": 0, "no choice": 0}
        self._shared: dict[str, None] = {}
        self._private: dict[str, None] = {}
        self._models: set[str] = set()
        self._unnamed = True
        self._kinds: tuple[str, ...] | None = None
        self._order: NDArray[np.int64] | None = None
        super().__init__(path, options)
        if self._unnamed and options.preparation is None and options.features is None and not options.drop:
            self.feature_names = self.preparation = None

    # -- the two passes --------------------------------------------------------------------------------------------

    def _decisions(self) -> Iterator[Decision]:
        keys: list[tuple[Any, Any]] = []
        offsets: list[tuple[int, int]] = []
        for offset, number, decision in self._read():
            if self._options.sort:
                keys.append((decision.episode, decision.timestamp))
                offsets.append((offset, number))
            yield decision
        if self._options.sort and keys:
            try:
                order = sorted_steps(as_array([key[0] for key in keys]), as_array([key[1] for key in keys]))
            except LogFormatError as error:
                raise LogFormatError(f"{self.name}: {error}") from None
            self._order = np.array(offsets, dtype=np.int64)[order]

    def _in_order(self) -> Iterator[Decision]:
        if self._order is None:
            yield from (decision for _, _, decision in self._read())
            return
        with self._opened.unpacked() as file:
            for offset, number in self._order.tolist():
                file.seek(offset)
                decision = self._decision(file.readline(), number)
                if decision is not None:
                    yield decision

    def _read(self) -> Iterator[tuple[int, int, Decision]]:
        """Every decision in the order of the file, with the place of its line in bytes and in lines."""
        offset = 0
        self._lines_without = dict.fromkeys(self._lines_without, 0)
        for number, raw in self._lines():
            decision = self._decision(raw, number)
            if decision is not None:
                yield offset, number, decision
            offset += len(raw)

    def _check_steps(self, steps: int) -> None:
        skipped = sum(self._lines_without.values())
        if steps == 0 and skipped:
            raise LogFormatError(
                f"{self.name}: no decision in {plural(skipped, 'line')}; a decision has its candidates in c._multi."
            )
        super()._check_steps(steps)

    def _own_keys(self) -> tuple[str, ...]:
        return ("Timestamp", "EventId", _LABEL, *_LISTS)

    @property
    def _without_propensities(self) -> str:
        keys = ("p", _LABEL)
        return f"drop={list(keys)!r} ({' '.join(f'--drop {key}' for key in keys)})"

    def _remarks(self) -> list[Note]:
        remarks = []
        if self._shared and not self._with_shared:
            example = next(iter(self._shared)), next(iter(self._columns)).partition(".")[0]
            remarks.append(shared_features(self._shared, "shared features", example))
        if self._private:
            text = f"keys of candidates that begin with _ are not features; left out: {some(self._private)}."
            remarks.append(Note("private-keys", "info", text, {"keys": tuple(self._private)}))
        if self._lines_without["no decision"]:
            count = self._lines_without["no decision"]
            text = f"{plural(count, 'line')} without a decision (rewards that came later, checkpoints) left out."
            remarks.append(Note("lines-without-decision", "info", text, {"lines": count}))
        if self._lines_without["not learned from"]:
            count = self._lines_without["not learned from"]
            text = f"{plural(count, 'decision')} marked _skipLearn, from which the decider never learned, left out."
            remarks.append(Note("decisions-not-learned-from", "info", text, {"decisions": count}))
        remarks += unlabelled_steps(self._lines_without["no choice"])
        if len(self._models) > 1 and "episode" not in self._options.columns:
            text = (
                "the lines name the model that chose, in VWState.m: columns={'episode': 'VWState.m'} "
                "(--column episode=VWState.m) makes an episode of each."
            )
            remarks.append(Note("models-named", "info", text, {"models": len(self._models)}))
        return remarks

    # -- one line --------------------------------------------------------------------------------------------------

    def _decision(self, raw: bytes, number: int) -> Decision | None:
        """The decision of a line, if it has one."""
        place = f"line {number}"
        if not raw.strip():
            return None
        line = self._parsed(raw, place)
        context = line.get("c") if isinstance(line, dict) else None
        if isinstance(line, dict) and "_multi" in line:
            raise self._error(
                place, "_multi stands at the top: this is Vowpal Wabbit's --json. In dsjson it is within 'c'."
            )
        if context is None:
            self._lines_without["no decision"] += 1
            return None
        if line.get("_skipLearn") is True:
            self._lines_without["not learned from"] += 1
            return None
        if "_label_ca" in line:
            raise self._error(place, f"the decision {refused('ca')}")
        candidates = self._candidates(context, place)
        chosen = self._chosen(line, len(candidates), place)
        if chosen is None:
            self._lines_without["no choice"] += 1
            return None
        extras = self._extras(line, place)
        self._unnamed = self._unnamed and line.get("ibcb_unnamed") is True
        model = _at(line, "VWState.m")
        if isinstance(model, str) and model != "N/A" and len(self._models) < 2:
            self._models.add(model)
        own = {key: value for key, value in context.items() if not key.startswith("_")}
        shared = self._candidate(own, place) if self._with_shared else {}
        logged = self._propensities(line, chosen, len(candidates), place) if self._options.choices else {}
        return Decision(place, candidates, chosen, *extras, shared, logged)

    def _parsed(self, raw: bytes, place: str) -> Any:
        def refuse(constant: str) -> NoReturn:
            raise ValueError(f"{constant} is not a JSON number; impute it or leave the line out")

        try:
            line = json.loads(raw.decode("utf-8-sig"), parse_constant=refuse)
            if b"\\ud" in raw.lower():
                # Half a pair of surrogates is text to Python, and to nobody else.
                json.dumps(line, ensure_ascii=False).encode()
            return line
        except UnicodeEncodeError:
            raise self._error(place, "a text holds half a character (\\ud...); repair the text.") from None
        except UnicodeDecodeError as error:
            raise self._error(place, f"byte {error.start} is not UTF-8; save the file as UTF-8.") from None
        except (ValueError, RecursionError) as error:
            raise self._error(place, f"not a line of JSON ({error}); every line must be one whole object.") from None

    def _candidates(self, context: Any, place: str) -> list[dict[str, float]]:
        multi = context.get("_multi") if isinstance(context, dict) else None
        if isinstance(context, dict) and "_slots" in context:
            slates = any(isinstance(action, dict) and "_slot_id" in action for action in multi or ())
            raise self._error(
                place, f"the line has _slots, several choices at once: it {refused('slates' if slates else 'ccb')}"
            )
        if not isinstance(multi, list) or not multi:
            raise self._error(place, "c has no list _multi of candidates; a decision needs at least one.")
        if len(self._shared) < 1000:
            self._shared.update((key, None) for key in context if not key.startswith("_"))
        return [self._candidate(value, f"{place}, candidate {index}") for index, value in enumerate(multi)]

    def _candidate(self, value: Any, place: str) -> dict[str, float]:
        row: dict[str, float] = {}
        if not isinstance(value, dict):
            raise self._error(place, f"{_short(value)} is not an object; a candidate is an object of features.")
        if "__aid" in value:
            raise self._error(
                place,
                "its features are stored elsewhere (__aid refers to a dictionary of candidates); write them into the "
                "log.",
            )
        try:
            self._flatten(value, None, row, place)
        except RecursionError:
            raise self._error(place, "objects are nested too deeply to read; flatten them.") from None
        return row

    def _flatten(self, value: Any, path: str | None, row: dict[str, float], place: str) -> None:
        """Put the features of a value at ``path`` into the row."""
        if isinstance(value, dict):
            for key, inner in value.items():
                if key.startswith("_"):
                    if len(self._private) < 1000:
                        self._private[key] = None
                else:
                    self._flatten(inner, key if path is None else f"{path}.{key}", row, place)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                if isinstance(inner, list):
                    raise self._error(
                        place, f"{path!r} holds an array within an array; give each row a name of its own."
                    )
                self._flatten(inner, f"{path}[{index}]" if isinstance(inner, (int, float)) else path, row, place)
        elif isinstance(value, str):
            name = f"{path}={value}"
            row[name] = row.get(name, 0.0) + 1.0
        elif value is not None:
            name = str(path)
            number = _float(value)
            if number - number != 0:
                raise self._error(place, f"feature {shown(name)} is not finite; impute it or leave the line out.")
            row[name] = row[name] + number if name in row else number

    def _chosen(self, line: dict[str, Any], count: int, place: str) -> int | None:
        """The position of the chosen candidate, which every key that tells it must tell alike.

        None where no key does and such steps are to be left out.
        """
        told: dict[str, int] = {}
        actions = line.get("a")
        if isinstance(actions, list):
            labelled = line.get("_labelIndex") is not None or line.get("_label_Action") is not None
            # Counted from 0, it lists the actions rather than ranks them; the label tells.
            actions = None if not actions or (labelled and 0 in actions) else actions[0]
        for key, value, base in (
            ("_labelIndex", line.get("_labelIndex"), 0),
            ("_label_Action", line.get("_label_Action"), 1),
            ("a", actions, 1),
        ):
            if value is None:
                continue
            if type(value) is not int:
                raise self._error(place, f"{key} is {_short(value)}; expected a whole number, counted from {base}.")
            if not base <= value < count + base:
                raise self._error(
                    place,
                    f"{key} is {value} but the line has {plural(count, 'candidate')}; it counts from {base}.",
                )
            told[key] = value - base
        if len(set(told.values())) > 1:
            what = ", ".join(f"{key} tells candidate {index}" for key, index in told.items())
            raise self._error(
                place, f"{what} (counted from 0): they disagree. Correct the line or leave out the keys that are wrong."
            )
        if not told and self._options.choices:
            if self._options.skip_unlabelled:
                return None
            raise self._error(
                place,
                "no key says which candidate was chosen; expected _labelIndex, _label_Action or a. Leave such lines "
                "out with skip_unlabelled=True (--skip-unlabelled).",
            )
        return next(iter(told.values()), 0)

    def _propensities(self, line: dict[str, Any], chosen: int, count: int, place: str) -> dict[int, float]:
        """The logged propensities by position: of the candidates in ``a``, or of the chosen one."""
        named = self._options.columns.get("propensity")
        keys = [key for key in ([*_LISTS, _LABEL] if named is None else [named]) if key not in self._options.drop]
        told = {key: _at(line, key) for key in keys if _at(line, key) is not None}
        if not told or line.get("ibcb_unlogged") is True:
            return {}
        for key, value in told.items():
            each = value if isinstance(value, list) else [value]
            if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in each):
                raise self._error(
                    place,
                    f"{key} is {_short(value)}; expected a probability, or a list of them. Read without: "
                    f"{self._without_propensities}.",
                )
        actions = line["a"] if isinstance(line.get("a"), list) else list(range(1, count + 1))
        base = 0 if 0 in actions else 1
        fits = all(type(action) is int and base <= action < count + base for action in actions)
        fits = fits and len(set(actions)) == len(actions)
        for value in told.values():
            if not isinstance(value, list):
                return {chosen: _float(value)}
            if fits and len(value) == len(actions):
                return {action - base: _float(number) for action, number in zip(actions, value, strict=True)}
        key, value = next(iter(told.items()))
        raise self._error(
            place,
            f"{key} has {plural(len(value), 'number')} but a is {_short(actions)}, of {plural(count, 'candidate')}; "
            f"expected one for each in a. Correct it, or read without: {self._without_propensities}.",
        )

    def _extras(self, line: dict[str, Any], place: str) -> tuple[Any, Any, Any]:
        """Episode, step id and time of a line; all lines have them or none has."""
        named, drop = self._options.columns, self._options.drop
        episode = _at(line, named.get("episode", "ibcb_episode"))
        ids = None if "EventId" in drop else line.get("ibcb_step_id", line.get("EventId"))
        step_id = _at(line, named["step_id"]) if "step_id" in named else ids
        times = None if "Timestamp" in drop else line.get("ibcb_timestamp", line.get("Timestamp"))
        timestamp = _at(line, named["timestamp"]) if "timestamp" in named else times
        for what, value in (("episode", episode), ("step id", step_id), ("time", timestamp)):
            if isinstance(value, bool) or not isinstance(value, (int, float, str, type(None))):
                raise self._error(place, f"the {what} is {_short(value)}; expected a number or a text.")
        if isinstance(timestamp, str) and ("timestamp" in named or "ibcb_timestamp" not in line):
            timestamp = self._time(timestamp, place)
        kinds = (_kind(episode), _kind(step_id), _kind(timestamp))
        if self._kinds is None:
            self._kinds = kinds
        elif kinds != self._kinds:
            index = next(i for i in range(3) if kinds[i] != self._kinds[i])
            usual = (("episode", "ibcb_episode"), ("step_id", "EventId"), ("timestamp", "Timestamp"))[index]
            key = named.get(*usual)
            remedy = f"; drop=['{key}'] (--drop {key}) reads the log without" if key in self._own_keys() else ""
            raise self._error(
                place, f"{key} is {kinds[index]}, but {self._kinds[index]} in the lines before it{remedy}."
            )
        return episode, step_id, timestamp

    def _time(self, text: str, place: str) -> np.datetime64:
        """A time as UTC; without a zone it is taken for UTC."""
        form = self._options.date_format
        if form is not None:
            try:
                return time_of(text, form)
            except ValueError as error:
                raise self._error(
                    place,
                    f"the time is {_short(text)}, not as in {form!r} ({error}); correct --date-format.",
                ) from None
        match = _TIME.fullmatch(text.strip())
        try:
            if match is None or not 1678 <= int(text.strip()[:4]) <= 2261:
                raise ValueError
            date, clock, zone = match.groups()
            clock, dot, fraction = clock.partition(".")
            time = np.datetime64(f"{date}T{clock}{dot}{fraction[:9]}", "ns")
        except ValueError:
            raise self._error(
                place,
                f"Timestamp is {_short(text)}; expected a time such as 2020-11-15T17:09:31.835Z, or read without: "
                "drop=['Timestamp'] (--drop Timestamp).",
            ) from None
        if zone in (None, "Z"):
            return time
        minutes = 60 * int(zone[1:3]) + int(zone[-2:])
        return time - np.timedelta64(minutes if zone[0] == "+" else -minutes, "m")


# -- writing -------------------------------------------------------------------------------------------------------


def write_dsjson(parts: Iterable[tuple[int, BehaviorLog]], path: str | os.PathLike[str]) -> None:
    """Write a log, part by part; `DSJsonSource` reads the same log back, but for the float type.

    ``p`` has logged propensities where they are known of all candidates, ``_label_probability`` that of the chosen one.
    Cost 0 is a placeholder, and so is probability 1 where none was logged. The first candidate has all features, so
    that their order comes back; the others leave out those that are 0.
    """
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        names: tuple[str, ...] | None = None
        for number, part in same_features(parts):
            every = names is None
            if names is None:
                names = names_to_write(part)
                _check_names(names)
            times = [{}] * part.n_steps if part.timestamps is None else _times(part.timestamps)
            ids = [{}] * part.n_steps if part.step_ids is None else _ids(part.step_ids)
            start = 0
            for step, end in enumerate(part.step_offsets[1:].tolist()):
                multi = []
                for row in dense(part.contexts[start:end]).tolist():
                    multi.append({n: v for n, v in zip(names, row, strict=True) if every or v != 0 or str(v) == "-0.0"})
                    every = False
                logged = None if part.propensities is None else part.propensities[start:end].tolist()
                line = _line(int(part.chosen[step]), multi, times[step], ids[step], logged)
                line["ibcb_episode"] = number
                if part.feature_names is None:
                    line["ibcb_unnamed"] = True
                file.write(json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")
                start = end


def looks_like_dsjson(path: str | os.PathLike[str]) -> bool:
    """Whether one of the first lines is a decision."""
    try:
        with binary(Path(path)) as file:
            # What is longer is cut, and no JSON then.
            for raw in (file.readline(1 << 24) for _ in range(20)):
                line = json.loads(raw) if raw.strip() else {}
                context = line.get("c") if isinstance(line, dict) else None
                # What only looks like it is refused in words that fit.
                if isinstance(line, dict) and "_multi" in line:
                    return True
                if isinstance(context, dict) and ("_multi" in context or "_label_ca" in line):
                    return True
    except (*DAMAGE, ValueError, RecursionError):
        return False
    return False


def _line(
    chosen: int,
    multi: list[dict[str, float]],
    time: dict[str, Any],
    name: dict[str, Any],
    logged: list[float] | None,
) -> dict[str, Any]:
    others = [index + 1 for index in range(len(multi)) if index != chosen]
    probability: float = 1
    more: dict[str, Any] = {"p": [1, *(0 for _ in others)]}
    if logged is not None:
        unknown = [math.isnan(value) for value in logged]
        probability = 1 if unknown[chosen] else logged[chosen]
        more = {"ibcb_unlogged": True} if unknown[chosen] else {}
        if not any(unknown):
            more = {"p": [logged[chosen], *(logged[action - 1] for action in others)]}
    # Vowpal Wabbit reads a line from left to right and needs the label before the candidates.
    return {
        "_label_cost": 0,
        "_label_probability": probability,
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        **time,
        "Version": "1",
        **name,
        "a": [chosen + 1, *others],
        "c": {"_multi": multi},
        **more,
        "VWState": {"m": "N/A"},
    }


def _check_names(names: tuple[str, ...]) -> None:
    for name in names:
        if name.startswith("_"):
            raise LogFormatError(
                f"feature {name!r}: in dsjson keys that begin with _ are not features; rename it to write the log so."
            )


def _times(timestamps: NDArray[Any]) -> list[dict[str, Any]]:
    """The keys that hold the time of each step."""
    if timestamps.dtype.kind != "M":
        return [{"ibcb_timestamp": value} for value in _plain(timestamps, "timestamps")]
    years = timestamps.astype("datetime64[Y]").astype(np.int64) + 1970
    wrong = np.isnat(timestamps) | (years < 1678) | (years > 2261)
    if wrong.any():
        raise LogFormatError(
            f"timestamps holds {timestamps[int(np.argmax(wrong))]}; dsjson is written with times from 1678 to 2261 and "
            "nanoseconds."
        )
    texts = np.datetime_as_string(timestamps.astype("datetime64[ns]"), unit="ns").tolist()
    return [{"Timestamp": f"{text}Z"} for text in texts]


def _ids(step_ids: NDArray[Any]) -> list[dict[str, Any]]:
    """The keys that hold the id of each step; Vowpal Wabbit wants a text."""
    if step_ids.dtype.kind == "M":
        raise LogFormatError(
            f"step_ids holds times, such as {step_ids[0]}; in dsjson an id is a number or a text. Write Parquet, or "
            "give them as timestamps."
        )
    values = _plain(step_ids, "step_ids")
    return [{"EventId": v} if isinstance(v, str) else {"EventId": str(v), "ibcb_step_id": v} for v in values]


def _plain(values: NDArray[Any], what: str) -> list[Any]:
    result: list[Any] = values.tolist()
    for value in result:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0
        if not number and not isinstance(value, str):
            raise LogFormatError(f"{what} holds {_short(value)}; dsjson can hold finite numbers, texts and times.")
    return result


def _at(line: dict[str, Any], path: str) -> Any:
    """What a key holds; dots lead into objects."""
    if path in line:
        return line[path]
    value: Any = line
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    return "a number" if isinstance(value, (int, float)) else "text" if isinstance(value, str) else "a time"


def _float(number: Any) -> float:
    """As JSON may write whole numbers that are larger than any float."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


FORMAT = Format(
    name="dsjson file",
    open=DSJsonSource,
    suffixes=(".dsjson", ".dsjson.gz"),
    looks_like=lambda source: has_suffix(source, *_UNSURE) and looks_like_dsjson(source),
    write=write_dsjson,
    loses="the float type, propensities of some candidates but not all, and how the features were made",
)
