"""Generated logs of known truth, and what may be said of each: the table `CORPUS`.

Every log is made from a seed. Beside it stand the candidates of the next day and what the decider's own policy prefers
there, so that "good" can be held to its promise. Of each log some findings and notes must appear, some may; all others
must not, whatever they are.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from selection import policy

import ibcb

#: steps of the next day
TEST_STEPS = 1000
#: what a fit says of every decider of its kind, and what `validate` may say of any small log
ROUTINE_NOTES = frozenset({"kind-chosen", "kind-open", "learner-forecast", "last-policy-forecast", "coef-is-policy"})
ROUTINE_FINDINGS = frozenset({"no-change"})


class Made(NamedTuple):
    """A log, and the next day: candidate sets, and what the decider prefers there (None: not known, or not asked).

    ``told``: by code of a finding, what its message must hold, from what was put into the log.
    """

    log: Any
    test: Any = None
    preferred: Any = None
    told: Mapping[str, str] = {}


@dataclass(frozen=True)
class Play:
    """Days of a decider: candidate sets and choices, those at random first, and the next day."""

    days: list[tuple[Any, Any]]
    test: Any
    preferred: Any
    warmup: int
    more: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)

    def seen(self, how: Callable[[Any, Any], Any]) -> Play:
        """The same days with other columns: a function of candidate sets and choices."""
        return replace(self, days=[(how(X, c), c) for X, c in self.days], test=how(self.test, self.preferred))

    def made(self) -> Made:
        """As a log."""
        log = ibcb.BehaviorLog.from_episodes(self.days, warmup=self.warmup, **self.more)
        return Made(log, self.test, self.preferred, self.told)


def normal(rng: Any, steps: int, M: int, d: int) -> Any:
    """Candidates with independent normal features."""
    return rng.normal(size=(steps, M, d))


def played(
    decider: Any,
    weights: Any,
    rng: Any,
    *,
    days: int = 8,
    steps: int = 150,
    M: int = 5,
    start: int = 60,
    candidates: Callable[..., Any] = normal,
    flips: float = 0.0,
) -> Play:
    """What a decider chose while it learned, after ``start`` choices at random."""
    done, d = [], len(weights)
    for day in range(0 if start else 1, days + 1):
        X = candidates(rng, steps if day else start, M, d)
        chosen = decider.act(X) if day else rng.integers(M, size=start)
        if day:
            chosen = np.where(rng.random(steps) < flips, rng.integers(M, size=steps), chosen)
        own = X[np.arange(len(X)), chosen]
        decider.update(own, own @ weights + 0.5 * rng.normal(size=len(own)))
        done.append((X, chosen))
    test = candidates(rng, TEST_STEPS, M, d)
    # One that draws among its best prefers what its expert does.
    prefers = getattr(decider, "expert", decider)
    return Play(done, test, prefers.act(test, explore=False), int(start > 0))


def of_kind(kind: str, rng: Any, *, d: int = 5, **sizes: Any) -> Play:
    """A decider of a kind of `benchmarks/selection.py`."""
    weights = rng.normal(size=d) / np.sqrt(d)
    decider = policy(kind, int(rng.integers(2**31)), weights)
    return played(decider if kind != "other" else Preferring(decider), weights, rng, **sizes)


class Preferring:
    """A walker, which tells what it prefers."""

    def __init__(self, walker: Any) -> None:
        self.walker, self.update = walker, walker.update

    def act(self, X: Any, *, explore: bool = True) -> Any:
        return self.walker.act(X) if explore else (X @ self.walker.weights).argmax(axis=1)


# -- other deciders --------------------------------------------------------------------------------------------------


class Seeing:
    """A decider that goes by functions of the features."""

    def __init__(self, inner: Any, features: Callable[[Any], Any], worth: Any) -> None:
        self.inner, self.features, self.worth = inner, features, worth

    def act(self, X: Any, *, explore: bool = True) -> Any:
        return self.inner.act(self.features(X), explore=explore)

    def update(self, rows: Any, rewards: Any) -> None:
        Z = self.features(rows)
        self.inner.update(Z, rewards + Z @ self.worth)


class RolledBack:
    """A learner that is put back once to what it was some days earlier."""

    def __init__(self, inner: Any, day: int, to: int) -> None:
        self.inner, self.day, self.to, self.kept = inner, day, to, list[Any]()

    def act(self, X: Any, *, explore: bool = True) -> Any:
        return self.inner.act(X, explore=explore)

    def update(self, rows: Any, rewards: Any) -> None:
        self.inner.update(rows, rewards)
        self.kept.append(copy.deepcopy(self.inner))
        if len(self.kept) == self.day:
            self.inner = copy.deepcopy(self.kept[self.to])


class Either:
    """Every step by one of two deciders, by a coin or in turn; each learns by its own rewards."""

    def __init__(self, one: Any, other: Any, tastes: Any, rng: Any) -> None:
        self.both, self.tastes, self.rng = (one, other), tastes, rng

    def act(self, X: Any, *, explore: bool = True) -> Any:
        picks = [each.act(X, explore=explore) for each in self.both]
        self.who = self.rng.integers(2, size=len(X))
        return np.where(self.who, picks[1], picks[0])

    def update(self, rows: Any, rewards: Any) -> None:
        who = getattr(self, "who", np.zeros(0))
        who = who if len(who) == len(rows) else self.rng.integers(2, size=len(rows))
        for number, (each, taste) in enumerate(zip(self.both, self.tastes, strict=True)):
            each.update(rows[who == number], (rewards + rows @ taste)[who == number])


def nothing(d: int) -> Any:
    return np.zeros(d)


def hidden(rng: Any) -> Made:
    """Four of the decider's eight features are not in the log."""
    made = of_kind("sbucb", rng, d=8).seen(lambda X, _: X[..., :4]).made()
    return made._replace(preferred=None)


def curved(rng: Any) -> Made:
    """A learner of squares and products."""
    d = 4

    def features(X: Any) -> Any:
        left, right = np.triu_indices(d)
        return np.concatenate([X, X[..., left] * X[..., right]], axis=-1)

    worth = rng.normal(size=d + d * (d + 1) // 2) / 2
    decider = Seeing(ibcb.SBUCB(len(worth), alpha=0.5), features, worth)
    return played(decider, nothing(d), rng, steps=250).made()


def rolled_back(rng: Any) -> Made:
    d = 5
    inner = ibcb.EGreedy(d, epsilon=0.1, random_state=rng)
    return played(RolledBack(inner, 6, 1), rng.normal(size=d) / np.sqrt(d), rng).made()


def mixed(rng: Any) -> Made:
    """A learner and weights that never change, by a coin."""
    d, other = 5, rng.normal(size=5)
    learner, fixed = (
        ibcb.EGreedy(d, epsilon=0.1, random_state=rng),
        ibcb.FixedPolicy(other, epsilon=0.1, random_state=rng),
    )
    both = Either(learner, fixed, np.zeros((2, d)), rng)
    made = played(both, rng.normal(size=d) / np.sqrt(d), rng, steps=200).made()
    return made._replace(preferred=None)


def two(rng: Any) -> Made:
    """Two Thompson samplers of opposite tastes."""
    d = 5
    taste = rng.normal(size=d) / np.sqrt(d)
    both = Either(*(ibcb.SBTS(d, alpha=1.0, random_state=rng) for _ in range(2)), np.array([taste, -taste]), rng)
    made = played(both, nothing(d), rng, steps=200).made()
    return made._replace(preferred=None)


def at_random(rng: Any) -> Made:
    days = [(normal(rng, 150, 5, 5), rng.integers(5, size=150)) for _ in range(8)]
    return Made(ibcb.BehaviorLog.from_episodes(days, warmup=1))


# -- other logs of the same deciders ---------------------------------------------------------------------------------


def leaking(rng: Any) -> Made:
    """A score that was written after the choice: it is highest for what was chosen."""

    def leak(X: Any, chosen: Any) -> Any:
        score = rng.random(X.shape[:2])
        score[np.arange(len(X)), chosen] += 1
        return np.dstack([X, score])

    return _unasked(replace(of_kind("sbts", rng).seen(leak), told={"leak": "feature 5 in 100.00% of the steps"}))


def with_outcome(rng: Any) -> Made:
    """What came of the choice, nothing for the others."""

    def outcome(X: Any, chosen: Any) -> Any:
        clicks = np.zeros(X.shape[:2])
        clicks[np.arange(len(X)), chosen] = rng.random(len(X)) < 0.4
        return np.dstack([X, clicks])

    return _unasked(replace(of_kind("sbts", rng).seen(outcome), told={"outcome": "1 of 6 features"}))


def _softmax(rng: Any, **sizes: Any) -> tuple[Play, Callable[[Any], Any]]:
    """A softmax that stands still, and its propensities."""
    weights = rng.normal(size=5) / np.sqrt(5)
    decider = ibcb.FixedPolicy(weights, temperature=0.4, random_state=rng)
    return played(decider, weights, rng, start=0, **sizes), decider.propensities


def with_propensity_column(rng: Any) -> Made:
    play, chances = _softmax(rng)
    return _unasked(play.seen(lambda X, _: np.dstack([X, chances(X)])))


def _unasked(play: Play) -> Made:
    return play.made()._replace(preferred=None)


def with_propensities(rng: Any, *, wrong: bool = False) -> Made:
    play, chances = _softmax(rng)
    logged = np.concatenate([chances(X) for X, _ in play.days])
    if wrong:
        logged = logged[:, ::-1]
    return replace(play, more={"propensities": logged.ravel()}).made()


def one_hot(rng: Any) -> Made:
    """Candidates of a catalogue of three brands, each with a price."""

    def candidates(rng: Any, steps: int, M: int, d: int) -> Any:
        brands = np.eye(d - 1)[rng.integers(d - 1, size=(steps, M))]
        return np.concatenate([brands, rng.normal(size=(steps, M, 1))], axis=-1)

    return of_kind("sbts", rng, d=4, M=3, candidates=candidates).made()


def constants(rng: Any) -> Made:
    """An intercept, and the user's age, which all candidates of a step share."""

    def more(X: Any, _: Any) -> Any:
        return np.dstack([X, np.ones(X.shape[:2]), np.broadcast_to(rng.normal(size=(len(X), 1)), X.shape[:2])])

    return of_kind("sbts", rng).seen(more).made()


def collinear(rng: Any) -> Made:
    """A total beside its parts."""
    return of_kind("sbts", rng).seen(lambda X, _: np.dstack([X, X[..., 0] + 2 * X[..., 1]])).made()


def mixed_units(rng: Any) -> Made:
    units = 10.0 ** np.array([-2, -1, 0, 1, 3])
    return of_kind("sbts", rng).seen(lambda X, _: X * units).made()


def unmarked(rng: Any) -> Made:
    """A random start that is not marked."""
    return replace(of_kind("sbucb", rng, start=150), warmup=0).made()


def late(rng: Any) -> Made:
    """The first three days are lost."""
    play = of_kind("sbucb", rng, days=10, start=0)
    return replace(play, days=play.days[3:]).made()


def cut_wrongly(rng: Any, *, steps: int = 240) -> Made:
    """Every episode begins half a day late; the policy is drawn anew every day, and far from the one before."""
    weights = rng.normal(size=4) / 2
    made = played(ibcb.SBTS(4, alpha=5.0, draws="episode", random_state=rng), weights, rng, days=6, steps=steps).made()
    log, first = made.log, made.log.policy_steps.start
    inner = np.arange(first + steps // 2, log.n_steps, steps)
    offsets = np.concatenate([[0, first], inner, [log.n_steps]])
    recut = ibcb.BehaviorLog(log.contexts, log.step_offsets, log.chosen, offsets, warmup=log.warmup)
    return made._replace(log=recut)


def twice_logged(rng: Any) -> Made:
    """Every tenth step of the days by the policy is there twice."""
    play, days = of_kind("sbucb", rng), []
    for day, (X, chosen) in enumerate(play.days):
        times = np.where((np.arange(len(X)) % 10 == 0) & (day > 0), 2, 1)
        days.append((X.repeat(times, axis=0), chosen.repeat(times)))
    doubled = 8 * 15
    return replace(play, days=days, told={"repeated-steps": f"{doubled} steps ("}).made()


def twins(rng: Any) -> Made:
    """In every step two candidates are alike."""

    def candidates(rng: Any, steps: int, M: int, d: int) -> Any:
        X = rng.normal(size=(steps, M, d))
        X[:, 1] = X[:, 0]
        return X

    play = of_kind("sbucb", rng, candidates=candidates)
    steps = sum(len(chosen) for _, chosen in play.days)
    return replace(play, told={"twin-candidates": f"{steps} steps (100.0%)"}).made()


def sometimes_alone(rng: Any) -> Made:
    """A third of the steps has one candidate."""
    play, days = of_kind("sbts", rng), []
    alone = 0
    for X, chosen in play.days:
        single = np.arange(len(X)) % 3 == 0
        alone += int(single.sum())
        sets = [x[[c]] if s else x for x, c, s in zip(X, chosen, single, strict=True)]
        days.append((sets, np.where(single, 0, chosen)))
    return replace(play, days=days, told={"one-candidate": f"{alone} steps ("}).made()


def always_alone(rng: Any) -> Made:
    days = [(normal(rng, 40, 1, 3), np.zeros(40, int)) for _ in range(4)]
    return Made(ibcb.BehaviorLog.from_episodes(days))


def chosen_first(rng: Any) -> Made:
    """The chosen candidate is written first."""
    play = of_kind("sbts", rng)
    days = []
    for X, chosen in play.days:
        order = np.argsort(np.arange(X.shape[1]) != chosen[:, None], axis=1, kind="stable")
        days.append((np.take_along_axis(X, order[..., None], axis=1), np.zeros(len(X), int)))
    return replace(play, days=days, told={"same-position": "position 0 in 100.0% of the steps"}).made()


def arms(rng: Any) -> Made:
    return Made(ibcb.simulate("arms", expert="sbucb", seed=int(rng.integers(2**31)), **ARMS).log)


ARMS = {"n_episodes": 8, "batch_size": 150, "n_arms": 4, "n_features": 3, "warmup": 80}


def named(*names: str) -> Callable[[Any], Made]:
    """Features with such names."""
    return lambda rng: replace(of_kind("sbts", rng, d=len(names)), more={"feature_names": names}).made()


def backwards(rng: Any) -> Made:
    """Steps with times, two of which are swapped in the fourth day."""
    play = of_kind("sbts", rng)
    times = np.arange(sum(len(X) for X, _ in play.days), dtype=float)
    times[[500, 501]] = times[[501, 500]]
    return replace(play, more={"timestamps": times}, told={"unsorted-times": "1 step"}).made()


# -- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A log and what may be said of it.

    Attributes
    ----------
    make : callable
        Makes it, given luck.
    fit : mapping or None
        How it is fitted; None where it cannot be.
    truth : set of str
        Names that are true of the decider, beside those that claim nothing.
    must, may : set of str
        Codes of findings; all others must not appear.
    notes, may_note : set of str
        Codes of notes of a fit; all others must not appear, but those of a routine fit.
    levels : set of str
        Levels of the verdict that are true; "good" moreover must keep its promise.
    says, may_say, never : tuple of str
        Patterns of which each must be in a sentence, may be, and none may be.
    slow : bool
    lies : mapping
        By the check that fails, what is false and why it stands.
    """

    make: Callable[[Any], Made]
    fit: Mapping[str, Any] | None = field(default_factory=lambda: {"expert": "auto"})
    truth: frozenset[str] = frozenset()
    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    notes: frozenset[str] = frozenset()
    may_note: frozenset[str] = frozenset()
    levels: frozenset[str] = frozenset({"good", "fair"})
    says: tuple[str, ...] = ()
    may_say: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    slow: bool = False
    lies: Mapping[str, str] = field(default_factory=dict)


def entry(make: Callable[[Any], Made], **said: Any) -> Entry:
    """An entry; sets are written as words."""
    words = {"truth", "must", "may", "notes", "may_note", "levels"}
    return Entry(make, **{name: frozenset(value.split()) if name in words else value for name, value in said.items()})


def kind(name: str, **sizes: Any) -> Callable[[Any], Made]:
    return lambda rng: of_kind(name, rng, **sizes).made()


def as_kind(name: str, **more: Any) -> dict[str, Any]:
    return {"fit": {"expert": name} | more, "truth": name}


LONG = "the price of the item as shown to the visitor, in euros, with tax and without delivery " * 2
NAMES = ("Preis €", "价格", "цена", LONG.strip(), 'a,b\n<c> & "d"')

#: what is false and why it stands
MIXTURE = {"kind": "two deciders by a coin look like one that draws by a softmax: no check tells them apart yet"}
#: what is said only where it is so; of two tastes it is: extremes are what either takes
RARE = ("with their squares and products",)
#: of what never learned, this would be false
NOT_STILL = ("the decider learns", "'stationary' learns")
#: of one that never learned, its first day is like any other
MIDDLE = "starts-in-the-middle"

CORPUS: dict[str, Entry] = {}


def made(name: str, seed: int = 0) -> Made:
    """The log of an entry."""
    return CORPUS[name].make(np.random.default_rng([zlib.crc32(name.encode()), seed]))


def claims_nothing() -> Iterable[str]:
    """Names that are never false."""
    return "undetermined", "other"


CORPUS |= {
    # every kind, named
    "sbucb": entry(kind("sbucb"), **as_kind("sbucb")),
    "sbts": entry(kind("sbts"), **as_kind("sbts")),
    "sbts, one draw a day": entry(kind("sbts, episode"), **as_kind("sbts", draws="episode")),
    "egreedy": entry(kind("egreedy"), **as_kind("egreedy")),
    "softmax": entry(kind("softmax"), **as_kind("softmax")),
    "topk": entry(kind("topk"), **as_kind("topk", top_k=2)),
    "stationary": entry(kind("stationary, softmax"), never=NOT_STILL, **as_kind("stationary")),
    "other": entry(kind("other"), may_note="restless", levels="fair poor", **as_kind("other")),
    # and not named
    "sbucb?": entry(kind("sbucb"), truth="sbucb"),
    "sbts?": entry(kind("sbts"), truth="sbts"),
    "sbts, one draw a day?": entry(kind("sbts, episode"), truth="sbts", slow=True),
    "egreedy?": entry(kind("egreedy"), truth="egreedy"),
    "egreedy, falling?": entry(kind("egreedy, falling"), truth="egreedy", slow=True),
    "softmax?": entry(kind("softmax"), truth="softmax", slow=True),
    "topk?": entry(kind("topk"), truth="topk", slow=True),
    "stationary, greedy?": entry(
        kind("stationary, greedy"), truth="stationary", never=(*NOT_STILL, "have no exact explanation")
    ),
    "stationary, softmax?": entry(kind("stationary, softmax"), truth="stationary", slow=True),
    "walker?": entry(kind("other"), may_note="restless", levels="fair poor", slow=True),
    # deciders of no kind
    "missing features": entry(hidden, truth="sbucb", levels="fair poor unknown", never=("on predict and",)),
    "squares": entry(curved, may_note="no-exact-solution", levels="fair poor unknown", says=RARE, slow=True),
    "rollback": entry(rolled_back, truth="egreedy", slow=True),
    "A/B": entry(mixed, may_note="restless", may_say=RARE, levels="fair poor unknown", lies=MIXTURE),
    "two deciders": entry(two, notes="restless", may_say=RARE, levels="fair poor unknown", slow=True),
    "random choices": entry(
        at_random,
        never=("do not fit", "decider learns"),
        must="unexplained",
        says=("than chance",),
        notes="not-predicted",
        levels="poor unknown",
    ),
    # records
    "dirty": entry(
        kind("sbucb", flips=0.01), notes="no-exact-solution", says=("do not fit the rest",), **as_kind("sbucb")
    ),
    "leak": entry(leaking, must="leak", levels="fair poor unknown", **as_kind("sbts")),
    "outcome": entry(with_outcome, must="outcome", levels="fair poor unknown", **as_kind("sbts")),
    "propensity among features": entry(
        with_propensity_column,
        must="propensity-feature",
        may=MIDDLE,
        levels="fair poor unknown",
        **as_kind("stationary"),
    ),
    "propensities": entry(with_propensities, may=MIDDLE, **as_kind("stationary")),
    "wrong propensities": entry(
        lambda rng: with_propensities(rng, wrong=True),
        must="propensities-not-drawn",
        may=MIDDLE,
        **as_kind("stationary"),
    ),
    "logged twice": entry(twice_logged, must="repeated-steps", **as_kind("sbucb")),
    "times backwards": entry(backwards, must="unsorted-times", **as_kind("sbts")),
    "chosen first": entry(chosen_first, must="same-position", **as_kind("sbts")),
    # features and candidates
    "one-hot": entry(one_hot, must="sums-to-constant", notes="undetermined-features", **as_kind("sbts")),
    "constants": entry(
        constants, must="constant-feature constant-within-steps", notes="undetermined-features", **as_kind("sbts")
    ),
    "collinear": entry(collinear, must="collinear", notes="undetermined-features", **as_kind("sbts")),
    "mixed units": entry(mixed_units, must="scales", **as_kind("sbts")),
    "names": entry(named(*NAMES), **as_kind("sbts")),
    "arms": entry(arms, must="sums-to-constant", notes="undetermined-features", **as_kind("sbucb")),
    "wide": entry(kind("sbts", d=25, steps=60), **as_kind("sbts")),
    "twins": entry(twins, must="twin-candidates", **as_kind("sbucb")),
    "some alone": entry(sometimes_alone, must="one-candidate", **as_kind("sbts")),
    "all alone": entry(always_alone, must="no-alternatives", fit=None),
    "two candidates": entry(kind("sbucb", M=2), **as_kind("sbucb")),
    # episodes
    "tiny": entry(kind("sbucb", days=3, steps=8, start=0), must="few-episodes", levels="unknown", **as_kind("sbucb")),
    "random start": entry(
        unmarked, must="unmarked-warmup", notes="unmarked-warmup", says=("warmup=1",), **as_kind("sbucb")
    ),
    "late start": entry(
        late, must="starts-in-the-middle", notes="late-start", says=("prior_gram=",), **as_kind("sbucb")
    ),
    "wrong edges": entry(cut_wrongly, must="episode-edges", levels="fair poor unknown", truth="sbts", slow=True),
}
