"""How raw columns became features: kept with a log and its model, so that new data goes the same way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from itertools import chain
from itertools import product as combinations_of
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ibcb.log.array_checks import LogFormatError
from ibcb.log.read_options import READING
from ibcb.numerics.printable import shown

#: options of `ibcb.read_log` that say where things stand in a file
_PLACES = frozenset(each.name for each in READING if each.kept == "place")
#: what older recipes do not have
_LATER = frozenset(["center", "scale", "pooled", "crosses", "hidden", "arms", "reading"])
#: products that a recipe may ask for; a log has fewer features
_MOST_PRODUCTS = 10_000_000
#: a number beyond it would overflow when it is squared
_LARGEST = 1e150
#: the factors of products: for each of them, which features of the columns it may be, by position
Cross = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """One raw column and what is made of it.

    Attributes
    ----------
    name : str
    categories : tuple of str, optional
        One feature for each, 1 where the column has that value; None: the column's number is the feature.
    fill : float, optional
        What stands for a missing number; None: none was missing, and none may be. Missing text is all zeros.
    center, scale : float
        The feature is (number - center) / scale, where the log was standardised. Categories stay 0 and 1.
    pooled : bool
        One more feature after those of the categories: 1 where the column has any other value.
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float | None = None
    center: float = 0.0
    scale: float = 1.0
    pooled: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.categories is None:
            return (self.name,)
        rest = "other"
        while rest in self.categories:
            rest = f"({rest})"
        return tuple(f"{self.name}={category}" for category in (*self.categories, *([rest] if self.pooled else [])))


@dataclass(frozen=True, slots=True)
class ArmSet:
    """The arms of a log, each with weights of its own on the features of the step and on a constant 1.

    Attributes
    ----------
    column : str
        It has the arm chosen.
    names : tuple of str
    features : tuple of (str, tuple of float)
        Features of the arms, with weights that all share: name, and the number of each arm.
    available : str, optional
        The column of the arms that could be chosen.
    """

    column: str
    names: tuple[str, ...]
    features: tuple[tuple[str, tuple[float, ...]], ...] = ()
    available: str | None = None


def arm_feature_names(arms: Sequence[Any], features: Sequence[str], shared: Sequence[str] = ()) -> tuple[str, ...]:
    """The names that features have in the log, such as "arm=7:age"; "arm=7" for its constant, named "" among them.

    >>> arm_feature_names(["a", "b"], ["", "age"], ["price"])
    ('arm=a', 'arm=a:age', 'arm=b', 'arm=b:age', 'price')
    """
    own = tuple(f"arm={arm}:{name}" if name else f"arm={arm}" for arm in arms for name in features)
    return (*own, *shared)


@dataclass(frozen=True, slots=True)
class Preparation:
    """The columns that a log's features come from, in order, and which columns played which role.

    The features are those of the columns, but for the ``hidden``, and then the products of ``crosses``. Both name
    features of the columns by their position. With ``arms``, columns are of steps, and the features those of every arm.
    ``reading`` has the other options of `ibcb.read_log` that were given.

    >>> made = Preparation((FeatureColumn("price", center=3.0, scale=2.0), FeatureColumn("genre", ("a", "b"))))
    >>> made.feature_names
    ('price', 'genre=a', 'genre=b')
    >>> made.moments
    (array([3., 0., 0.]), array([2., 1., 1.]))
    >>> made.only(["genre=b", "price"]).feature_names
    ('genre=b', 'price')
    >>> made = Preparation((FeatureColumn("age"), FeatureColumn("price")), crosses=(((0,), (1,)),), hidden=(0,))
    >>> made.feature_names
    ('price', 'age*price')
    """

    columns: tuple[FeatureColumn, ...]
    roles: tuple[tuple[str, str], ...] = ()
    crosses: tuple[Cross, ...] = ()
    hidden: tuple[int, ...] = ()
    arms: ArmSet | None = None
    reading: tuple[tuple[str, Any], ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        names = self.column_features
        if self.arms is not None:
            return arm_feature_names(self.arms.names, ["", *names], [name for name, _ in self.arms.features])
        if not self.crosses:
            return names
        hidden = set(self.hidden)
        alone = (name for place, name in enumerate(names) if place not in hidden)
        return (*alone, *("*".join(names[place] for place in factors) for factors in self.products()))

    @property
    def column_features(self) -> tuple[str, ...]:
        """The features of the columns, before any are multiplied."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def uncrossed(self) -> Preparation:
        """The same columns, all of their features and no products."""
        return replace(self, crosses=(), hidden=())

    @property
    def of_choices(self) -> tuple[str, ...]:
        """The columns that tell what was chosen, and in which episode."""
        roles = dict(self.roles) | ({} if self.arms is None else {"chosen": self.arms.column})
        return tuple(roles[role] for role in ("chosen", "episode", "timestamp") if role in roles)

    def reading_again(self, *, choices: bool) -> dict[str, Any]:
        """Options to read another log with; of candidate sets without choices those that say where things stand."""
        return {name: value for name, value in self.reading if choices or name in _PLACES}

    def products(self) -> Iterator[tuple[int, ...]]:
        """The factors of every product, by position."""
        return chain.from_iterable(products for _, products in self.products_of_crosses())

    def products_of_crosses(self) -> Iterator[tuple[Cross, list[tuple[int, ...]]]]:
        """Every cross and its products, each product once.

        The same factors in another order are the same product, and two categories of a column are never 1 together.
        """
        encoded = [
            None if column.categories is None else place
            for place, column in enumerate(self.columns)
            for _ in column.feature_names
        ]
        seen: set[tuple[int, ...]] = set()
        for cross in self.crosses:
            products = []
            for factors in combinations_of(*cross):
                key = tuple(sorted(factors))
                columns = [encoded[place] for place in key if encoded[place] is not None]
                if key not in seen and len(set(columns)) == len(columns):
                    seen.add(key)
                    products.append(factors)
            yield cross, products

    @property
    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What is subtracted from each feature of the columns, and what it is then divided by; shape (d,) each."""
        both = [(column.center, column.scale) for column in self.columns for _ in column.feature_names]
        center, scale = np.array(both, dtype=np.float64).reshape(-1, 2).T
        return center, scale

    @property
    def is_standardized(self) -> bool:
        """Whether some feature is centred or scaled."""
        return any((column.center, column.scale) != (0.0, 1.0) for column in self.columns)

    @property
    def raw(self) -> Preparation:
        """The same without centring and scaling."""
        return replace(self, columns=tuple(replace(column, center=0.0, scale=1.0) for column in self.columns))

    def only(self, names: Iterable[str]) -> Preparation:
        """How some of the features are made, in that order."""
        names = list(names)
        if self.arms is not None:
            return self if names == list(self.feature_names) else Preparation(tuple(map(FeatureColumn, names)))
        if self.crosses:
            return self._only_products(names)
        home = {feature: column for column in self.columns for feature in column.feature_names}
        columns: list[FeatureColumn] = []
        for feature in names:
            column = home[feature]
            if column.categories is not None:
                place = column.feature_names.index(feature)
                kept, pooled = column.categories[place : place + 1], place == len(column.categories)
                begun = columns[-1].categories if columns and columns[-1].name == column.name else None
                # What is pooled stands last.
                if begun is not None and not columns[-1].pooled:
                    columns.pop()
                    kept = (*begun, *kept)
                column = replace(column, categories=kept, pooled=pooled)
            columns.append(column)
        return replace(self, columns=tuple(columns))

    def _only_products(self, names: list[str]) -> Preparation:
        if names == list(self.feature_names):
            return self
        plain = self.column_features
        factors = {"*".join(plain[place] for place in each): each for each in self.products()}
        products = [factors[name] for name in names if name in factors]
        kept = set(names)
        hidden = tuple(place for place, name in enumerate(plain) if name not in kept or place in self.hidden)
        crosses = tuple(tuple((place,) for place in each) for each in products)
        made = replace(self, crosses=crosses, hidden=hidden if crosses else ())
        made = made if crosses else made.only(names)
        if made.feature_names != tuple(names):
            raise LogFormatError(
                "features of a log with products (cross) can be left out but not put into another order; name them in "
                "the order of the log, the products last."
            )
        return made

    def to_json(self) -> dict[str, Any]:
        """As plain data, for a file's metadata."""
        data: dict[str, Any] = {"columns": [asdict(column) for column in self.columns], "roles": dict(self.roles)}
        if self.crosses:
            data |= {"crosses": self.crosses, "hidden": self.hidden}
        data |= {"reading": dict(self.reading)} if self.reading else {}
        return data if self.arms is None else data | {"arms": asdict(self.arms)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preparation:
        """What `to_json` gave; ValueError where it is something else."""
        given = dict(_mapping(data))
        given |= {name: list(_mapping(given[name]).items()) for name in ("roles", "reading") if name in given}
        made: Preparation = _made(cls, given)
        for column in made.columns:
            if column.scale <= 0:
                raise ValueError(f"scale is {column.scale}, which is not above 0")
        d = len(made.column_features)
        factors = (*chain.from_iterable(made.crosses), made.hidden)
        if any(not 0 <= place < d for places in factors for place in places):
            raise ValueError(f"a cross names a feature beyond the {d} there are")
        if sum(math.prod(map(len, cross)) for cross in made.crosses) > _MOST_PRODUCTS:
            raise ValueError(f"it has more than {_MOST_PRODUCTS:,} products")
        names, features = ((), ()) if made.arms is None else (made.arms.names, made.arms.features)
        if any(len(values) != len(names) for _, values in features):
            raise ValueError(f"a feature of arms lacks one number for each of the {len(names)} arms")
        return made


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{shown(value)} is not a mapping")
    return value


def _made(kind: Any, value: Any) -> Any:
    """What JSON has of a value of some type, as that again; ValueError where it is something else."""
    if isinstance(kind, type) and is_dataclass(kind):
        types, given = get_type_hints(kind), _mapping(value)
        for name in types:
            if name not in given and name not in _LATER:
                raise ValueError(f"{name!r} is missing from the recipe of features")
        return kind(**{name: _made(types[name], given[name]) for name in types if name in given})
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        return None if value is None else _made(parts[0], value)
    if get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{shown(value)} is not a list")
        parts = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        if len(parts) != len(value):
            raise ValueError(f"{shown(value)} is not a name and its values")
        return tuple(_made(part, each) for part, each in zip(parts, value, strict=True))
    if kind is float and (isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST):
        raise ValueError(f"a number (fill, center, scale) is {shown(value)}, which is not finite")
    if kind in (str, int) and type(value) is not kind:
        raise ValueError(f"{shown(value)} is not {'a name' if kind is str else 'the position of a feature'}")
    return value if kind in (str, int, Any) else kind(value)
