"""Which column of a table plays which part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ibcb.io.cells import shown_type
from ibcb.io.words import Problems, listed, name_it, no_column
from ibcb.log.array_checks import LogFormatError
from ibcb.log.read_options import ROLES, ReadOptions
from ibcb.numerics.printable import shown


def assign_roles(names: Sequence[str], options: ReadOptions) -> tuple[dict[str, str], list[str]]:
    """The column of every role that the table has, and the columns left for no role."""
    problems = Problems()
    for role, column in options.columns.items():
        if column not in names:
            problems.add(no_column(column, names, f" for {role}"))
    problems.settle()
    roles, own = dict(options.columns), named_features(options)
    taken = {*roles.values(), *own, *options.drop}
    free = {normal_name(name): name for name in reversed(names) if name not in taken}
    for role, known in ROLES.items():
        if role == "candidate":
            # It names rows in predictions, and may be a feature as well.
            taken -= own
            free |= {normal_name(name): name for name in reversed(names) if name in own - set(roles.values())}
        usual = next((name for name in known if name in free), None)
        if role in roles or usual is None:
            continue
        alike = {name for name in names if name not in taken and normal_name(name) == usual}
        if len(alike) > 1:
            raise LogFormatError(
                f"the columns {listed(sorted(alike))} could each be the {role}; name one of them: {name_it(role)}."
            )
        roles[role] = free.pop(usual)
    rest = [name for name in names if name not in roles.values() or (name == roles.get("candidate") and name in own)]
    return roles, rest


def named_features(options: ReadOptions) -> set[str]:
    """The columns that are features because somebody said so, whatever they are called."""
    fitted = () if options.preparation is None else [column.name for column in options.preparation.columns]
    return {*(options.features or ()), *options.keep, *options.encoded, *options.crossed, *fitted}


def fitted_roles(names: Iterable[str], options: ReadOptions) -> dict[str, str]:
    """The columns that were named for a role, by the options or for the log of a model, and are there."""
    before = () if options.preparation is None else options.preparation.roles
    usable = set(names) - set(options.drop)
    return {role: name for role, name in before if name in usable} | dict(options.columns)


def check_roles(schema: pa.Schema, roles: dict[str, str]) -> None:
    """Refuse columns that hold what cannot name or mark anything."""
    for role, name in roles.items():
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise LogFormatError(
                f"column {shown(name)} holds {shown_type(kind)}, which cannot be the {role}: that is a number, a text "
                f"or a time. Name another one: {name_it(role)}."
            )


def role_missing(role: str, names: Sequence[str], options: ReadOptions) -> str:
    """That no column plays a role that a table with a row per candidate needs."""
    what = {"step": "tells the steps apart", "chosen": "marks the chosen candidate of each step"}[role]
    named = (*(options.features or ()), *options.drop, *options.keep, *options.encoded, *options.crossed)
    taken = [name for name in named if name in names and normal_name(name) in ROLES[role]]
    if taken:
        return (
            f"no column {what}: {shown(taken[0])} would, but was named among the features or to be dropped. Leave it "
            f"out there, or name another one with {name_it(role)}."
        )
    return (
        f"no column {what}: none is called {' or '.join(ROLES[role][:3])}. Name it with {name_it(role)}; the columns "
        f"are {listed(names) or 'none'}."
    )


def normal_name(name: str) -> str:
    """A name as roles are recognised by: in lower case, with _ for - and space."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")
