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
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.cells import as_texts, complete, flags, one_array
from ibcb.io.columns import assign_roles, listed, named_features, no_column, normal_name
from ibcb.io.rows import Tables
from ibcb.io.unfold import Candidates, named_roles, unfolded
from ibcb.log.arrays import LogFormatError, plural, shown
from ibcb.log.notes import Note
from ibcb.log.steps import ROLES, ReadOptions

__all__ = ["wide_rows"]

_AVAILABLE = frozenset(["av", "avail", "availability", "available"])
_ALTERNATIVE = "alternative"
_BETWEEN = ("_", ".", "-", " ")


def wide_rows(tables: Tables, options: ReadOptions) -> tuple[Tables, ReadOptions]:
    """A row per candidate, and the options that are left for it."""
    names, alternatives = tables.schema.names, [str(name) for name in options.alternatives]
    given = named_roles(tables, options)
    parts = _parts([name for name in names if name not in (*given.values(), *options.drop)], alternatives)
    features = list(dict.fromkeys(feature for feature, _ in parts))
    available = {
        alternative: name for (feature, alternative), name in parts.items() if normal_name(feature) in _AVAILABLE
    }
    features = [name for name in features if normal_name(name) not in _AVAILABLE]
    unknown = [name for name in options.drop if name not in (*names, *features, _ALTERNATIVE)]
    if unknown:
        raise LogFormatError(no_column(unknown[0], [*names, *features]))
    features = [name for name in features if name not in options.drop]
    logged = _logged(features, given, options)
    given = {role: name for role, name in given.items() if role != "propensity" or logged is None}
    _check_complete([name for name in features if name != logged], parts, alternatives, options)
    kinds = {feature: _common(tables.schema, feature, parts, alternatives) for feature in features}
    roles, _ = assign_roles([name for name in names if name not in parts.values()], replace(options, columns=given))
    roles.pop("candidate", None)
    chosen = roles.get("chosen") if options.choices else None
    # Of candidate sets nobody asks what was chosen, nor how that is written.
    unasked = roles.pop("chosen", None) if chosen is None else None
    picks: dict[str, int | None] = {}
    notes: tuple[Note, ...] = ()
    if chosen is not None:
        picks, notes = _numbered(_counted(tables, chosen), chosen, alternatives)
        _check_available(tables, chosen, picks, available, alternatives, options)

    def sources(asked: Sequence[str]) -> list[str]:
        columns = [parts[feature, name] for feature in asked for name in alternatives if (feature, name) in parts]
        return [*columns, *available.values(), *(name for name in asked if name == chosen)]

    def candidates(table: pa.Table, asked: Sequence[str], row: int) -> Candidates:
        n, k = table.num_rows, len(alternatives)
        there = np.ones((n, k), dtype=bool)
        for place, name in enumerate(alternatives):
            if name in available:
                there[:, place] = _flags(table, available[name], row)
        owner, which = np.nonzero(there)
        order = pa.array(which * n + owner)
        cells: dict[str, pa.Array] = {}
        for name in asked:
            if name == chosen:
                cells[name] = pa.array(_picked(table[name], picks)[owner] == which)
            elif name == _ALTERNATIVE:
                cells[name] = pa.array(np.array(alternatives, dtype=object)[which], pa.string())
            else:
                kind = kinds[name]
                columns = [parts.get((name, alternative)) for alternative in alternatives]
                pieces = [pa.nulls(n, kind) if c is None else one_array(table[c]).cast(kind) for c in columns]
                cells[name] = pa.concat_arrays(pieces).take(order)
        return Candidates(owner, cells)

    fields = [pa.field(_ALTERNATIVE, pa.string())]
    fields += [pa.field(feature, kinds[feature]) for feature in features]
    fields += [] if chosen is None else [pa.field(chosen, pa.bool_())]
    roles |= {"candidate": _ALTERNATIVE} | ({} if logged is None else {"propensity": logged})
    long, left = unfolded(tables, options, roles, fields, sources, candidates)
    drop = [name for name in (*options.drop, *([unasked] if unasked else ())) if name in long.schema.names]
    # What every alternative has is no outcome of the choice, whatever it is called, nor does it name anything.
    ordinary = [name for name in features if name != logged]
    known = ordinary if options.features is None and options.preparation is None else ()
    keep = list(dict.fromkeys([*options.keep, *known]))
    left = replace(left, drop=drop, keep=keep, alternatives=())
    return long._replace(notes=lambda: (*tables.notes(), *notes)), left


def _logged(features: Sequence[str], given: Mapping[str, str], options: ReadOptions) -> str | None:
    """What the columns of logged propensities have in common, if every alternative may have one of its own."""
    if "propensity" in given:
        return given["propensity"] if given["propensity"] in features else None
    own = named_features(options)
    return next((name for name in features if normal_name(name) in ROLES["propensity"] and name not in own), None)


def _parts(names: Sequence[str], alternatives: Sequence[str]) -> dict[tuple[str, str], str]:
    """The column of every feature and alternative."""
    parts: dict[tuple[str, str], str] = {}
    for name in names:
        found = dict.fromkeys(chain.from_iterable(_split(name, alternative) for alternative in alternatives))
        if len({alternative for _, alternative in found}) > 1:
            meanings = " or ".join(f"{shown(feature)} of {shown(alternative)}" for feature, alternative in found)
            raise LogFormatError(
                f"column {shown(name)} could be {meanings}; rename it, or leave it out with drop=[{shown(name)}]."
            )
        for part in found:
            if part in parts:
                raise LogFormatError(
                    f"columns {shown(parts[part])} and {shown(name)} are both {shown(part[0])} of {shown(part[1])}; "
                    "leave one of them out (--drop)."
                )
            parts[part] = name
    if not parts:
        raise LogFormatError(
            f"no column belongs to one of the alternatives {listed(alternatives)}: none is called as in "
            f"'price_{alternatives[0]}' or '{alternatives[0]}_price'; the columns are {listed(names)}."
        )
    return parts


def _split(name: str, alternative: str) -> list[tuple[str, str]]:
    """The feature and the alternative that a column is of, if it is of this one."""
    low, end = name.lower(), alternative.lower()
    for sign in _BETWEEN:
        if low.endswith(sign + end) and len(low) > len(end) + 1:
            return [(name[: -len(end) - 1], alternative)]
        if low.startswith(end + sign) and len(low) > len(end) + 1:
            return [(name[len(end) + 1 :], alternative)]
    stem = name[: -len(end)]
    # price1, but not price11 for the alternative 1.
    if end.isdigit() and low.endswith(end) and stem and not stem[-1].isdigit():
        return [(stem, alternative)]
    return []


def _check_complete(
    features: Sequence[str],
    parts: Mapping[tuple[str, str], str],
    alternatives: Sequence[str],
    options: ReadOptions,
) -> None:
    """Refuse features that an alternative has no column for, unless 0 is to stand for them."""
    if options.missing == "zero" or options.preparation is not None:
        return
    asked = [name for name in features if options.features is None or name in options.features]
    bare = [name for name in alternatives if not any((feature, name) in parts for feature in features)]
    if bare:
        raise LogFormatError(
            f"no column belongs to the alternative{'s' if len(bare) > 1 else ''} {listed(bare)}; correct alternatives "
            "(--alternatives), or fill in 0 for all of its features with missing='zero' (--missing zero)."
        )
    lacking = [
        f"{shown(feature)} of {listed(without)}"
        for feature in asked
        if (without := [name for name in alternatives if (feature, name) not in parts])
    ]
    if lacking:
        more = f" and {len(lacking) - 12} more" if len(lacking) > 12 else ""
        raise LogFormatError(
            f"no column for {', '.join(lacking[:12])}{more}; fill in 0 for what an alternative lacks with "
            "missing='zero' (--missing zero), or leave the feature out (--drop)."
        )


def _common(
    schema: pa.Schema, feature: str, parts: Mapping[tuple[str, str], str], alternatives: Sequence[str]
) -> pa.DataType:
    """A type for the values of all alternatives."""
    columns = [parts[feature, name] for name in alternatives if (feature, name) in parts]
    try:
        every = [pa.schema([pa.field(feature, schema.field(name).type)]) for name in columns]
        return pa.unify_schemas(every, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        kinds = ", ".join(f"{shown(name)} ({schema.field(name).type})" for name in columns[:12])
        raise LogFormatError(
            f"feature {shown(feature)} cannot be read from columns of different kinds: {kinds}. Correct one, or leave "
            "them out (--drop)."
        ) from None


def _counted(tables: Tables, chosen: str) -> Counter[str]:
    """How often the column holds each value; missing ones are left out."""
    counts: Counter[str] = Counter()
    for table in tables.read([chosen], False):
        for entry in as_texts(table[chosen]).value_counts().to_pylist():
            if entry["values"] is not None:
                counts[entry["values"].strip()] += entry["counts"]
    counts.pop("", None)
    return counts


def _numbered(
    counts: Counter[str], chosen: str, alternatives: Sequence[str]
) -> tuple[dict[str, int | None], tuple[Note, ...]]:
    """The position of the alternative that each value of the column stands for; None where it stands for no choice."""
    places = {name.lower(): place for place, name in enumerate(alternatives)}
    prefix = chosen.lower()
    picks: dict[str, int | None] = {}
    for value in counts:
        low = value.lower()
        place = places.get(low, places.get(low.removeprefix(prefix).lstrip("".join(_BETWEEN))))
        if place is not None:
            picks[value] = place
    if picks or not counts:
        _refuse_others({value: n for value, n in counts.items() if value not in picks}, chosen, alternatives)
        return picks, ()
    # Numbers, which may follow the name of the column.
    stems = {value: value.lower().removeprefix(prefix).lstrip("".join(_BETWEEN)) for value in counts}
    numbers = {value: int(stem) for value, stem in stems.items() if stem.isdecimal()}
    k = len(alternatives)
    first = 0 if 0 in numbers.values() and k not in numbers.values() else 1
    known = {value: number - first for value, number in numbers.items() if 0 <= number - first < k}
    none = [value for value, number in numbers.items() if number < first]
    others = {value: n for value, n in counts.items() if value not in known and value not in none}
    _refuse_others(others, chosen, alternatives)
    means = ", ".join(f"{place + first} is {name}" for place, name in enumerate(alternatives))
    steps = sum(counts[value] for value in none)
    without = f", 0 ({plural(steps, 'step')}) no choice" if none else ""
    text = f"column {shown(chosen)} numbers the alternatives: {means}{without}."
    note = Note("alternatives-numbered", "info", text, {"first": first, "alternatives": tuple(alternatives)})
    return {**known, **dict.fromkeys(none)}, (note,)


def _refuse_others(others: Mapping[str, int], chosen: str, alternatives: Sequence[str]) -> None:
    if others:
        each = ", ".join(f"{shown(value)} ({plural(n, 'row')})" for value, n in list(others.items())[:12])
        more = f" and {len(others) - 12} more" if len(others) > 12 else ""
        raise LogFormatError(
            f"column {shown(chosen)} holds {each}{more}, which is not one of the alternatives {listed(alternatives)}; "
            "add it to them (--alternatives), or leave these rows out."
        )


def _picked(column: pa.ChunkedArray, picks: Mapping[str, int | None]) -> NDArray[np.int64]:
    """The position of the chosen alternative of every row, -1 where none is."""
    texts = as_texts(column).to_pylist()
    places = [None if text is None else picks.get(text.strip()) for text in texts]
    return np.array([-1 if place is None else place for place in places], dtype=np.int64)


def _flags(table: pa.Table, name: str, row: int) -> NDArray[np.bool_]:
    return flags(complete(table, name, row), name, row, "says whether the alternative could be chosen")


def _check_available(
    tables: Tables,
    chosen: str,
    picks: Mapping[str, int | None],
    available: Mapping[str, str],
    alternatives: Sequence[str],
    options: ReadOptions,
) -> None:
    """Refuse choices of what could not be chosen, unless these steps are to be left out."""
    if not available or options.skip_unlabelled:
        return
    wrong: list[tuple[int, int]] = []
    row = 0
    for table in tables.read([chosen, *available.values()], False):
        places = _picked(table[chosen], picks)
        for place, name in enumerate(alternatives):
            if name in available:
                rows = np.flatnonzero((places == place) & ~_flags(table, available[name], row))
                wrong += [(row + int(at), place) for at in rows]
        row += table.num_rows
    if wrong:
        at, place = min(wrong)
        name = alternatives[place]
        others = f", and so in {plural(len(wrong) - 1, 'other row')}" if len(wrong) > 1 else ""
        raise LogFormatError(
            f"row {at} (from 0): {shown(name)} was chosen but {shown(available[name])} says that it could not be"
            f"{others}; correct them, leave these steps out with skip_unlabelled=True (--skip-unlabelled), or do "
            f"without the column (--drop {available[name]})."
        )
