"""Wide tables: a row per step, a column per feature and alternative, as tables of travel choices have them.

``price_car``, ``car_price`` (or with ``.``, ``-`` or a space, or for a numbered alternative ``price1``) is the feature
``price`` of the alternative ``car``. ``av_car``, ``car_available`` and the like say whether it could be chosen. A
column holds the alternative that was: its name, its number in the order of the alternatives, or the column's own name
with either, as in ``choice2``. The name of the alternative is a column called ``alternative``. All other columns are
the step's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.cells import as_texts, complete, flags, one_array, value_counts
from ibcb.io.columns import assign_roles, fitted_roles, named_features, normal_name
from ibcb.io.format import Tables
from ibcb.io.lists import Candidates, unfolded
from ibcb.io.words import enumerated, listed, no_column, refusal
from ibcb.log.array_checks import LogFormatError, plural
from ibcb.log.notes import Note
from ibcb.log.read_options import ROLES, ReadOptions
from ibcb.numerics.printable import shown

_AVAILABLE = frozenset(["av", "avail", "availability", "available"])
_ALTERNATIVE = "alternative"
_BETWEEN = "_.- "


def wide_rows(tables: Tables, options: ReadOptions) -> tuple[Tables, ReadOptions]:
    """A row per candidate, and the options that are left for it."""
    names, alternatives = tables.schema.names, [str(name) for name in options.alternatives]
    given = fitted_roles(names, options)
    features = _features([name for name in names if name not in (*given.values(), *options.drop)], alternatives)
    outside = [name for name in names if not any(name in columns.values() for columns in features.values())]
    available: dict[str, str] = {}
    for name in [name for name in features if normal_name(name) in _AVAILABLE]:
        available |= features.pop(name)
    for name in options.drop:
        if name not in (*names, *features, _ALTERNATIVE):
            raise LogFormatError(no_column(name, [*names, *features]))
        features.pop(name, None)
    own = named_features(options)
    usual = (name for name in features if normal_name(name) in ROLES["propensity"] and name not in own)
    logged = given.get("propensity", next(usual, None))
    if logged in features:
        given.pop("propensity", None)
    # What every alternative has is no outcome of the choice, whatever it is called, nor does it name anything.
    ordinary = {name: columns for name, columns in features.items() if name != logged}
    _check_complete(ordinary, alternatives, options)
    kinds = {name: _common(tables.schema, name, [*columns.values()]) for name, columns in features.items()}
    roles, _ = assign_roles(outside, replace(options, columns=given))
    roles.pop("candidate", None)
    choices, notes = None, tuple[Note, ...]()
    # Of candidate sets nobody asks what was chosen, nor how that is written.
    unasked = [] if options.choices or "chosen" not in roles else [roles.pop("chosen")]
    if "chosen" in roles:
        places, notes = _numbered(tables, roles["chosen"], alternatives)
        choices = _Choices(roles["chosen"], places, alternatives, available)
        if not options.skip_unlabelled:
            choices.check(tables)
    marked = [] if choices is None else [choices.column]

    def sources(asked: Sequence[str]) -> list[str]:
        columns = [column for name in asked if name in features for column in features[name].values()]
        return [*columns, *available.values(), *(name for name in asked if name in marked)]

    def candidates(table: pa.Table, asked: Sequence[str], row: int) -> Candidates:
        n = table.num_rows
        owner, which = np.nonzero(_could(table, available, alternatives, row))
        order = pa.array(which * n + owner)
        cells = {_ALTERNATIVE: pa.array(np.array(alternatives, dtype=object)[which], pa.string())}
        for name in set(asked) & set(features):
            columns = [features[name].get(alternative) for alternative in alternatives]
            pieces = [pa.nulls(n, kinds[name]) if c is None else one_array(table[c]).cast(kinds[name]) for c in columns]
            cells[name] = pa.concat_arrays(pieces).take(order)
        if choices is not None and choices.column in asked:
            cells[choices.column] = pa.array(choices.of(table)[owner] == which)
        return Candidates(owner, cells)

    fields = {_ALTERNATIVE: pa.string()} | kinds | dict.fromkeys(marked, pa.bool_())
    roles |= {"candidate": _ALTERNATIVE} | ({"propensity": logged} if logged in features else {})
    long, left = unfolded(tables, options, roles, [*pa.schema(fields)], sources, candidates)
    keep = ordinary if options.features is None and options.preparation is None else ()
    drop = [name for name in (*options.drop, *unasked) if name in long.schema.names]
    left = replace(left, drop=drop, keep=list(dict.fromkeys([*options.keep, *keep])), alternatives=())
    return long.noted(*notes), left


# -- columns of alternatives -------------------------------------------------------------------------------------------


def _features(names: Sequence[str], alternatives: Sequence[str]) -> dict[str, dict[str, str]]:
    """Of every feature the columns of its alternatives."""
    features: dict[str, dict[str, str]] = {}
    for name in names:
        meanings = {each: feature for each in alternatives if (feature := _feature(name, each)) is not None}
        if len(meanings) > 1:
            either = " or ".join(f"{shown(feature)} of {shown(each)}" for each, feature in meanings.items())
            raise refusal("wide-either", name=name, either=either)
        for alternative, feature in meanings.items():
            first = features.setdefault(feature, {}).setdefault(alternative, name)
            if first != name:
                raise refusal("wide-both", first=first, name=name, feature=feature, alternative=alternative)
    if not features:
        raise refusal("wide-no-columns", alternatives=alternatives, first=alternatives[0], columns=names)
    return {
        name: {each: columns[each] for each in alternatives if each in columns} for name, columns in features.items()
    }


def _feature(name: str, alternative: str) -> str | None:
    """The feature that a column is of, if it is of this alternative."""
    low, end = name.lower(), alternative.lower()
    rest = len(name) - len(end)
    if rest > 1 and low.endswith(end) and low[rest - 1] in _BETWEEN:
        return name[: rest - 1]
    if rest > 1 and low.startswith(end) and low[len(end)] in _BETWEEN:
        return name[len(end) + 1 :]
    # price1, but not price11 for the alternative 1.
    numbered = rest > 0 and end.isdigit() and low.endswith(end) and not name[rest - 1].isdigit()
    return name[:rest] if numbered else None


def _check_complete(
    features: Mapping[str, Mapping[str, str]], alternatives: Sequence[str], options: ReadOptions
) -> None:
    """Refuse features that an alternative has no column for, unless 0 is to stand for them."""
    if options.missing == "zero" or options.preparation is not None:
        return
    bare = [each for each in alternatives if not any(each in columns for columns in features.values())]
    if bare:
        raise refusal("wide-bare", alternatives=" nor ".join(map(shown, bare)))
    asked = {name: each for name, each in features.items() if options.features is None or name in options.features}
    without = {name: [each for each in alternatives if each not in columns] for name, columns in asked.items()}
    lacking = [f"{shown(name)} of {listed(those)}" for name, those in without.items() if those]
    if lacking:
        raise refusal("wide-lacking", lacking=enumerated(lacking))


def _common(schema: pa.Schema, feature: str, columns: Sequence[str]) -> pa.DataType:
    """A type for the values of all alternatives."""
    fields = [schema.field(name) for name in columns]
    try:
        every = [pa.schema([field.with_name(feature)]) for field in fields]
        return pa.unify_schemas(every, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        kinds = ", ".join(f"{shown(field.name)} ({field.type})" for field in fields[:12])
        raise refusal("wide-kinds", feature=feature, kinds=kinds) from None


# -- choices -----------------------------------------------------------------------------------------------------------


def _numbered(
    tables: Tables, chosen: str, alternatives: Sequence[str]
) -> tuple[dict[str, int | None], tuple[Note, ...]]:
    """The position of the alternative that each value of the column stands for; None where it stands for no choice."""
    counts: Counter[str] = Counter()
    for table in tables.read([chosen]):
        for text, count in value_counts(as_texts(table[chosen])).items():
            counts[text.strip()] += count
    counts.pop("", None)
    # Names and numbers may follow the name of the column.
    stems = {value: value.lower().removeprefix(chosen.lower()).lstrip(_BETWEEN) for value in counts}
    places = {name.lower(): place for place, name in enumerate(alternatives)}
    named = {value: places.get(value.lower(), places.get(stem)) for value, stem in stems.items()}
    picks: dict[str, int | None] = {value: place for value, place in named.items() if place is not None}
    notes: tuple[Note, ...] = ()
    if not picks and counts:
        numbers = {value: int(stem) for value, stem in stems.items() if stem.isdecimal()}
        first = 0 if 0 in numbers.values() and len(alternatives) not in numbers.values() else 1
        none = [value for value, number in numbers.items() if number < first]
        picks = {value: n - first for value, n in numbers.items() if 0 <= n - first < len(alternatives)}
        picks |= dict.fromkeys(none)
        means = ", ".join(f"{place + first} is {name}" for place, name in enumerate(alternatives))
        steps = sum(counts[value] for value in none)
        without = f", 0 ({plural(steps, 'step')}) no choice" if none else ""
        text = f"column {shown(chosen)} numbers the alternatives: {means}{without}."
        notes = (Note("alternatives-numbered", "info", text, {"first": first, "alternatives": tuple(alternatives)}),)
    others = [f"{shown(value)} ({plural(n, 'row')})" for value, n in counts.items() if value not in picks]
    if others:
        raise refusal("wide-unknown", column=chosen, values=enumerated(others), alternatives=alternatives)
    return picks, notes


class _Choices(NamedTuple):
    """The column of choices, what its values stand for, and the columns of what could be chosen."""

    column: str
    picks: Mapping[str, int | None]
    alternatives: Sequence[str]
    available: Mapping[str, str]

    def of(self, table: pa.Table) -> NDArray[np.int64]:
        """The position of the chosen alternative of every row, -1 where none is."""
        texts = as_texts(table[self.column]).to_pylist()
        places = [None if text is None else self.picks.get(text.strip()) for text in texts]
        return np.array([-1 if place is None else place for place in places], dtype=np.int64)

    def check(self, tables: Tables) -> None:
        """Refuse choices of what could not be chosen."""
        wrong: list[tuple[int, str]] = []
        for table, row in tables.numbered([self.column, *self.available.values()]) if self.available else ():
            places, could = self.of(table), _could(table, self.available, self.alternatives, row)
            rows = np.flatnonzero((places >= 0) & ~could[np.arange(len(places)), places])
            wrong += [(row + int(at), self.alternatives[places[at]]) for at in rows]
        if wrong:
            (at, name), others = wrong[0], f", and so in {plural(len(wrong) - 1, 'other row')}"
            others, column = others if len(wrong) > 1 else "", self.available[name]
            raise refusal("wide-not-available", row=at, name=name, column=column, others=others)


def _could(table: pa.Table, available: Mapping[str, str], alternatives: Sequence[str], row: int) -> NDArray[np.bool_]:
    """What could be chosen at each step, shape (steps, alternatives); ``row`` is the number of the first."""
    could = np.ones((table.num_rows, len(alternatives)), dtype=bool)
    for name, column in available.items():
        values, what = complete(table, column, row), "says whether the alternative could be chosen"
        could[:, alternatives.index(name)] = flags(values, column, row, what)
    return could
