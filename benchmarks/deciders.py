"""Logs of deciders that are not ours: bandits of MABWiser, Vowpal Wabbit, bayesianbandits, river and scikit-learn.

    python benchmarks/deciders.py [--seeds 3] [--first-seed 0] [--folder DIR] [--only TEXT] [--model auto] [--json]

Each decider learns between batches and is frozen within them. Printed per log: how often the library's own last policy
agrees with its next one (after learning from the last batch), and how often imitators of the log do: two choice models,
IBCB with its defaults, and the model under test; all act greedily on fresh candidates. The gain is the agreement of the
model under test less that of the better choice model. Learners whose own last policy agrees with the next in less than
9 of 10 steps are listed apart and not judged, with the agreement with that last policy, the last one that a log shows.
"no linear theta" marks logs of which the fit says that none explains them, as it should of those; it goes by the moves
before, since no log shows the move to the next policy. Exit code 1 if the mean gain is below 0.003, or if more than one
log in 15 is more than 0.03 behind.

Needs ``pip install "ibcb[test]"``. With --folder the logs are kept there and read again by the next run.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ibcb

Array = NDArray[np.float64]
Picks = NDArray[np.int64]

TEST_STEPS = 2000
STEADY = 0.9
GAIN, BEHIND, ONE_IN = 0.003, 0.03, 15


# -- deciders ------------------------------------------------------------------------------------------------------


class Decider:
    """A library's learner with its exploration; contexts are of shape (B, M, d), picks of shape (B,)."""

    def expected(self, contexts: Array) -> Array:
        """Scores without exploration, shape (B, M)."""
        raise NotImplementedError

    def explored(self, contexts: Array) -> Array:
        """Scores with the library's own exploration, shape (B, M)."""
        return self.expected(contexts)

    def act(self, contexts: Array, rng: np.random.Generator) -> Picks:
        return _best(self.explored(contexts))

    def greedy(self, contexts: Array) -> Picks:
        return _best(self.expected(contexts))

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        raise NotImplementedError


class Epsilon(Decider):
    """A decider that takes a candidate at random now and then."""

    def __init__(self, inner: Decider, epsilon: float) -> None:
        self.inner, self.epsilon = inner, epsilon
        self.expected, self.learn = inner.expected, inner.learn  # type: ignore[method-assign]

    def act(self, contexts: Array, rng: np.random.Generator) -> Picks:
        picks = self.inner.act(contexts, rng)
        at_random = rng.random(len(picks)) < self.epsilon
        return np.where(at_random, rng.integers(contexts.shape[1], size=len(picks)), picks)


class Softmax(Decider):
    """A decider that draws from the softmax of its scores, sharper the more they differ on average."""

    def __init__(self, inner: Decider, sharpness: float) -> None:
        self.inner, self.sharpness = inner, sharpness
        self.expected, self.learn = inner.expected, inner.learn  # type: ignore[method-assign]

    def act(self, contexts: Array, rng: np.random.Generator) -> Picks:
        scores = self.inner.expected(contexts)
        spread = float(scores.std(axis=1).mean()) or 1.0
        return _best(self.sharpness * scores / spread + rng.gumbel(size=scores.shape))


class SharedMab(Decider):
    """MABWiser with one arm, "take", and the candidates as contexts: one model shared by all."""

    def __init__(self, policy: Any, seed: int) -> None:
        from mabwiser.mab import MAB

        self.mab, self.fitted = MAB(["take"], policy, seed=seed), False

    def explored(self, contexts: Array) -> Array:
        rows = contexts.reshape(-1, contexts.shape[2])
        scores = [row["take"] for row in self.mab.predict_expectations(rows)]
        return np.array(scores).reshape(contexts.shape[:2])

    def expected(self, contexts: Array) -> Array:
        scores: Array = contexts @ self.mab._imp.arm_to_model["take"].beta
        return scores

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        rows = contexts[np.arange(len(picks)), picks]
        (self.mab.partial_fit if self.fitted else self.mab.fit)(["take"] * len(picks), rewards, rows)
        self.fitted = True


class ArmsMab(Decider):
    """MABWiser with one model per arm; candidate j of a log is the context in the j-th of M blocks, zeros elsewhere."""

    def __init__(self, policy: Any, arms: int, seed: int) -> None:
        from mabwiser.mab import MAB

        self.mab, self.fitted = MAB(list(range(arms)), policy, seed=seed), False

    def act(self, contexts: Array, rng: np.random.Generator) -> Picks:
        return np.array(self.mab.predict(arm_context(contexts)), dtype=np.int64)

    def expected(self, contexts: Array) -> Array:
        models = self.mab._imp.arm_to_model
        beta = np.column_stack([models[arm].beta for arm in range(contexts.shape[1])])
        scores: Array = arm_context(contexts) @ beta
        return scores

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        (self.mab.partial_fit if self.fitted else self.mab.fit)(picks, rewards, arm_context(contexts))
        self.fitted = True


class Vowpal(Decider):
    """Vowpal Wabbit's contextual bandit with action-dependent features."""

    def __init__(self, options: str, seed: int) -> None:
        from vowpalwabbit import Workspace

        self.vw = Workspace(f"--cb_explore_adf {options} --noconstant --random_seed {seed} --quiet")
        self.chosen_with = np.empty(0)

    def _probabilities(self, contexts: Array) -> Array:
        return np.array([self.vw.predict(_lines(candidates)) for candidates in contexts])

    def expected(self, contexts: Array) -> Array:
        return self._probabilities(contexts)

    def act(self, contexts: Array, rng: np.random.Generator) -> Picks:
        p = self._probabilities(contexts)
        cumulative = p.cumsum(axis=1)
        picks: Picks = (cumulative > rng.random((len(p), 1)) * cumulative[:, -1:]).argmax(axis=1)
        self.chosen_with = p[np.arange(len(p)), picks]
        return picks

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        for candidates, pick, reward, p in zip(contexts, picks, rewards, self.chosen_with, strict=True):
            lines = _lines(candidates)
            lines[pick] = f"0:{-reward:.6g}:{p:.6g} {lines[pick]}"
            self.vw.learn(lines)


class Bayesian(Decider):
    """bayesianbandits: a Bayesian regression shared by all candidates, Thompson sampling per step or per batch."""

    def __init__(self, learner: Any, draws: str, remember: float = 1.0) -> None:
        self.learner, self.draws, self.remember = learner, draws, remember

    def explored(self, contexts: Array) -> Array:
        rows, block = contexts.reshape(-1, contexts.shape[2]), contexts.shape[1]
        if self.draws == "none":
            return self.expected(contexts)
        if self.draws == "step":
            scores = self.learner.sample_reward_space(rows, size=1, block_size=block)
        else:
            scores = self.learner.sample(rows, size=1)
        return np.asarray(scores).reshape(contexts.shape[:2])

    def expected(self, contexts: Array) -> Array:
        scores = self.learner.predict(contexts.reshape(-1, contexts.shape[2]))
        return np.asarray(scores).reshape(contexts.shape[:2])

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        if self.remember < 1:
            self.learner.decay(decay_rate=self.remember)
        self.learner.partial_fit(contexts[np.arange(len(picks)), picks], rewards)


class River(Decider):
    """river: an online regression over the candidates' features, with an upper bound where it has a distribution."""

    def __init__(self, model: Any, bound: float = 0.0) -> None:
        self.model, self.bound = model, bound

    def _rows(self, contexts: Array) -> Iterator[dict[int, float]]:
        return (dict(enumerate(row)) for row in contexts.reshape(-1, contexts.shape[-1]).tolist())

    def expected(self, contexts: Array) -> Array:
        scores = [self.model.predict_one(row) for row in self._rows(contexts)]
        return np.array(scores, dtype=np.float64).reshape(contexts.shape[:2])

    def explored(self, contexts: Array) -> Array:
        if self.bound == 0:
            return self.expected(contexts)
        beliefs = [self.model.predict_one(row, with_dist=True) for row in self._rows(contexts)]
        # The predictive variance holds the noise too, the same for all candidates of a model.
        return np.array([belief.mu + self.bound * belief.sigma for belief in beliefs]).reshape(contexts.shape[:2])

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        for row, reward in zip(self._rows(contexts[np.arange(len(picks)), picks]), rewards.tolist(), strict=True):
            self.model.learn_one(row, reward)


class RiverArms(Decider):
    """river's LinUCBDisjoint: one Bayesian regression per arm."""

    def __init__(self, arms: int, seed: int) -> None:
        from river.bandit import LinUCBDisjoint

        self.policy: Any = LinUCBDisjoint(beta=4.0, seed=seed)
        self.arms = list(range(arms))

    def act(self, contexts: Array, rng: np.random.Generator) -> Picks:
        rows = (dict(enumerate(row)) for row in arm_context(contexts).tolist())
        return np.array([self.policy.pull(self.arms, row) for row in rows], dtype=np.int64)

    def expected(self, contexts: Array) -> Array:
        rows = [dict(enumerate(row)) for row in arm_context(contexts).tolist()]
        models = self.policy._bayes_lin_regs
        return np.array([[models[arm].predict_one(row) for arm in self.arms] for row in rows])

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        for row, pick, reward in zip(arm_context(contexts).tolist(), picks.tolist(), rewards.tolist(), strict=True):
            self.policy.update(pick, dict(enumerate(row)), reward)


class Scikit(Decider):
    """A scikit-learn regressor or classifier of the rewards, fitted again to everything seen, or once."""

    def __init__(self, model: Any, *, thompson: int | None = None, once: bool = False) -> None:
        self.model, self.once = model, once
        self.luck = None if thompson is None else np.random.default_rng(thompson)
        self.seen: list[tuple[Array, Array]] = []

    def expected(self, contexts: Array) -> Array:
        scores: Array = contexts @ np.ravel(self.model.coef_)
        return scores

    def explored(self, contexts: Array) -> Array:
        if self.luck is None:
            return self.expected(contexts)
        # BayesianRidge: coef_ and sigma_ are the mean and the covariance of the weights.
        drawn = self.luck.multivariate_normal(
            self.model.coef_, self.model.sigma_, size=len(contexts), method="cholesky"
        )
        scores: Array = np.einsum("bmd,bd->bm", contexts, drawn)
        return scores

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        if self.once and self.seen:
            return
        self.seen.append((contexts[np.arange(len(picks)), picks], rewards))
        S, R = (np.concatenate(parts) for parts in zip(*self.seen, strict=True))
        self.model.fit(S, R)


class ScikitOnline(Scikit):
    """One pass of `partial_fit` over every batch."""

    def learn(self, contexts: Array, picks: Picks, rewards: Array) -> None:
        self.model.partial_fit(contexts[np.arange(len(picks)), picks], rewards)


def _best(scores: Array) -> Picks:
    picks: Picks = scores.argmax(axis=1)
    return picks


def arm_context(contexts: Array) -> Array:
    """The context that all arms share, from candidate rows that hold it in one block each: (B, M, M k) to (B, k)."""
    return contexts[:, 0, : contexts.shape[2] // contexts.shape[1]]


def _lines(candidates: Array) -> list[str]:
    """Candidates in Vowpal Wabbit's text format."""
    return ["|c " + " ".join([f"x{i}:{value:.6g}" for i, value in enumerate(row)]) for row in candidates.tolist()]


# -- kinds ---------------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A decider of some library: how it is made for a seed, M candidates and d features, and the log it leaves.

    ``arms``: M arms with a context, each with its own weights, instead of candidates with features. ``start``: steps
    chosen at random before it takes over, for libraries that cannot act before they have learned. ``binary``: rewards
    are 0 or 1.
    """

    library: str
    name: str
    make: Callable[[int, int, int], Decider]
    arms: bool = False
    start: int = 0
    binary: bool = False


def _mab(policy: str, **options: Any) -> Any:
    from mabwiser.mab import LearningPolicy

    return getattr(LearningPolicy, policy)(**options)


def _normal(seed: int, beta: float = 4.0) -> Any:
    from bayesianbandits import NormalRegressor

    return NormalRegressor(alpha=1.0, beta=beta, random_state=seed)


def _inverse_gamma(seed: int) -> Any:
    from bayesianbandits import NormalInverseGammaRegressor

    return NormalInverseGammaRegressor(lam=1.0, random_state=seed)


def _river_bayes(smoothing: float | None = None) -> Any:
    from river.linear_model import BayesianLinearRegression

    return BayesianLinearRegression(alpha=1.0, beta=4.0, smoothing=smoothing)


def _river_sgd() -> Any:
    from river.linear_model import LinearRegression
    from river.optim import SGD

    return LinearRegression(optimizer=SGD(0.0005), intercept_lr=0.0)


def _sklearn(name: str, **options: Any) -> Any:
    from sklearn import linear_model

    return getattr(linear_model, name)(**options)


KINDS = (
    Kind("mabwiser", "linucb", lambda s, m, d: SharedMab(_mab("LinUCB", alpha=0.5, l2_lambda=1.0), s), start=50),
    Kind("mabwiser", "linucb wide", lambda s, m, d: SharedMab(_mab("LinUCB", alpha=2.0, l2_lambda=0.3), s), start=50),
    Kind("mabwiser", "lints", lambda s, m, d: SharedMab(_mab("LinTS", alpha=0.3, l2_lambda=1.0), s), start=50),
    Kind("mabwiser", "linucb arms", lambda s, m, d: ArmsMab(_mab("LinUCB", alpha=0.5), m, s), arms=True, start=100),
    Kind("mabwiser", "lints arms", lambda s, m, d: ArmsMab(_mab("LinTS", alpha=0.3), m, s), arms=True, start=100),
    Kind("mabwiser", "lingreedy arms", lambda s, m, d: ArmsMab(_mab("LinGreedy", epsilon=0.1), m, s), True, start=100),
    Kind("vowpalwabbit", "epsilon", lambda s, m, d: Vowpal("--epsilon 0.1", s)),
    Kind("vowpalwabbit", "softmax", lambda s, m, d: Vowpal("--softmax --lambda 10", s)),
    Kind("vowpalwabbit", "squarecb", lambda s, m, d: Vowpal("--squarecb --gamma_scale 10", s)),
    Kind("vowpalwabbit", "bag", lambda s, m, d: Vowpal("--bag 8 --epsilon 0.02", s)),
    Kind("bayesianbandits", "thompson step", lambda s, m, d: Bayesian(_normal(s), "step")),
    Kind("bayesianbandits", "thompson batch", lambda s, m, d: Bayesian(_normal(s), "batch")),
    Kind("bayesianbandits", "inverse gamma", lambda s, m, d: Bayesian(_inverse_gamma(s), "step")),
    Kind("bayesianbandits", "forgetting", lambda s, m, d: Bayesian(_normal(s), "step", 0.8)),
    Kind("river", "bayes ucb", lambda s, m, d: River(_river_bayes(), 3.0)),
    Kind("river", "linucb arms", lambda s, m, d: RiverArms(m, s), arms=True),
    Kind("river", "smoothing epsilon", lambda s, m, d: Epsilon(River(_river_bayes(0.9995)), 0.1)),
    Kind("river", "sgd softmax", lambda s, m, d: Softmax(River(_river_sgd()), 4.0)),
    Kind("scikit-learn", "ridge epsilon", lambda s, m, d: Epsilon(Scikit(_sklearn("Ridge")), 0.1), start=50),
    Kind("scikit-learn", "bayes thompson", lambda s, m, d: Scikit(_sklearn("BayesianRidge"), thompson=s), start=100),
    Kind(
        "scikit-learn",
        "sgd epsilon",
        lambda s, m, d: Epsilon(ScikitOnline(_sklearn("SGDRegressor", random_state=s)), 0.1),
        start=50,
    ),
    Kind(
        "scikit-learn",
        "logistic softmax",
        lambda s, m, d: Softmax(Scikit(_sklearn("LogisticRegression", C=1.0)), 3.0),
        start=200,
        binary=True,
    ),
    Kind(
        "scikit-learn",
        "ridge stationary",
        lambda s, m, d: Softmax(Scikit(_sklearn("Ridge"), once=True), 5.0),
        start=200,
    ),
)


# -- logs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A log of a decider, and what the decider would do next.

    Attributes
    ----------
    log : BehaviorLog
    test_log : BehaviorLog
        Fresh candidates with the greedy choices of the policy right after the log.
    previous : ndarray of shape (steps,)
        Greedy choices on the same candidates of the policy that made the last episode of the log.
    """

    kind: Kind
    seed: int
    log: ibcb.BehaviorLog
    test_log: ibcb.BehaviorLog
    previous: Picks

    @property
    def name(self) -> str:
        return f"{self.kind.library} {self.kind.name}/{self.seed}"

    @property
    def own(self) -> float:
        """How often the library's last policy agrees with its next one."""
        return float(np.mean(self.previous == self.test_log.chosen))


class Surroundings:
    """Candidates and rewards: features of fresh items, of a fixed catalogue, or one context for several arms."""

    def __init__(self, kind: Kind, rng: np.random.Generator) -> None:
        self.rng, self.kind = rng, kind
        self.episodes = int(rng.integers(8, 21))
        self.batch = int(rng.choice([200, 300, 500, 1000], p=[0.3, 0.3, 0.3, 0.1]))
        self.candidates = int(rng.integers(4, 9 if kind.arms else 13))
        self.features = self.candidates * int(rng.integers(2, 4)) if kind.arms else int(rng.integers(6, 31))
        # About a million numbers at most, so that all logs together are made in minutes.
        budget = 1_000_000 // (self.candidates * self.features)
        self.episodes = max(8, min(self.episodes, budget // self.batch))
        self.catalogue = rng.normal(size=(150, self.features)) if not kind.arms and rng.random() < 0.5 else None
        mixing = rng.normal(size=(self.features, self.features)) / np.sqrt(self.features)
        self.mixing = 0.7 * np.eye(self.features) + 0.5 * mixing
        self.theta = rng.normal(size=self.features) / np.sqrt(self.features)
        self.noise = float(rng.choice([0.3, 1.0, 2.0]))

    def contexts(self, steps: int) -> Array:
        M, d = self.candidates, self.features
        if self.kind.arms:
            k = d // M
            shared = self.rng.normal(size=(steps, k))
            shared[:, 0] = 1.0
            rows = np.zeros((steps, M, M, k))
            rows[:, np.arange(M), np.arange(M)] = shared[:, None]
            return rows.reshape(steps, M, d)
        if self.catalogue is not None:
            shown = np.argpartition(self.rng.random((steps, len(self.catalogue))), M, axis=1)[:, :M]
            rows = self.catalogue[shown] + 0.3 * self.rng.normal(size=(steps, M, d))
        else:
            rows = self.rng.normal(size=(steps, M, d))
        mixed: Array = rows @ self.mixing
        return mixed

    def rewards(self, contexts: Array, picks: Picks) -> Array:
        mean: Array = contexts[np.arange(len(picks)), picks] @ self.theta
        if self.kind.binary:
            return (self.rng.random(len(mean)) < 1 / (1 + np.exp(-2 * mean))).astype(np.float64)
        noisy: Array = mean + self.noise * self.rng.normal(size=len(mean))
        return noisy


def live(kind: Kind, seed: int) -> Case:
    """Let a decider learn, batch by batch, and log it."""
    label = zlib.crc32(f"{kind.library} {kind.name}".encode())
    where = Surroundings(kind, np.random.default_rng([label, seed]))
    luck = np.random.default_rng([label, seed, 1])
    decider = kind.make(seed, where.candidates, where.features)
    episodes = []
    if kind.start:
        contexts = where.contexts(kind.start)
        picks = luck.integers(where.candidates, size=kind.start)
        episodes.append((contexts, picks))
        decider.learn(contexts, picks, where.rewards(contexts, picks))
    test = where.contexts(TEST_STEPS)
    previous = np.empty(0, dtype=np.int64)
    for number in range(where.episodes):
        contexts = where.contexts(where.batch)
        picks = decider.act(contexts, luck)
        episodes.append((contexts, picks))
        if number == where.episodes - 1:
            previous = decider.greedy(test)
        decider.learn(contexts, picks, where.rewards(contexts, picks))
    log = ibcb.BehaviorLog.from_episodes(episodes, warmup=int(kind.start > 0))
    return Case(kind, seed, log, ibcb.BehaviorLog.from_episodes([(test, decider.greedy(test))]), previous)


def kept(kind: Kind, seed: int, folder: Path) -> Case:
    """The log from a folder, made and stored there if it is missing."""
    stem = f"{kind.library}-{kind.name}-{seed}".replace(" ", "-")
    log, test, previous = (folder / f"{stem}{end}" for end in (".npz", "-test.npz", "-previous.npy"))
    if not previous.exists():
        folder.mkdir(parents=True, exist_ok=True)
        case = live(kind, seed)
        ibcb.write_log(case.log, log)
        ibcb.write_log(case.test_log, test)
        np.save(previous, case.previous)
        return case
    return Case(kind, seed, ibcb.read_log(log), ibcb.read_log(test), np.load(previous))


def cases(seeds: range, folder: Path | None = None, only: str = "") -> Iterator[Case]:
    """Every kind with every seed; the same bits each time."""
    for kind in KINDS:
        for seed in seeds:
            if only in f"{kind.library} {kind.name}":
                yield live(kind, seed) if folder is None else kept(kind, seed, folder)


# -- the table -----------------------------------------------------------------------------------------------------

MODELS: dict[str, Callable[[], Any]] = {
    "choice1": lambda: ibcb.ChoiceModel(episodes=1),
    "choice3": lambda: ibcb.ChoiceModel(episodes=3),
    "ibcb": ibcb.IBCB,
    "auto": lambda: ibcb.IBCB(expert="auto"),
}


BESIDE = ("choice1", "choice3", "ibcb")


def fitted(name: str, case: Case) -> Any:
    with warnings.catch_warnings():
        # A foreign decider may not begin as ours do; the table is about its choices, not about that remark.
        warnings.simplefilter("ignore", UserWarning)
        return MODELS[name]().fit(case.log)


def row(case: Case, under_test: str) -> dict[str, Any]:
    """Agreement of the library and its imitators with its next policy, and (``last_``) with its last one."""
    models = {name: fitted(name, case) for name in dict.fromkeys([*BESIDE, under_test])}
    picks: dict[str, Picks] = {name: model.predict(case.test_log) for name, model in models.items()}
    found = {name: float(np.mean(each == case.test_log.chosen)) for name, each in picks.items()}
    found |= {f"last_{name}": float(np.mean(each == case.previous)) for name, each in picks.items()}
    gain = found[under_test] - max(found["choice1"], found["choice3"])
    place = {"library": case.kind.library, "kind": case.kind.name, "seed": case.seed}
    said = any(note.code in ("restless", "not-predicted") for note in getattr(models[under_test], "notes_", ()))
    return place | {"own": case.own, **found, "gain": gain, "said": said}


def summary(rows: list[dict[str, Any]], under_test: str) -> tuple[str, bool]:
    """Mean gain and logs left behind, of the steady learners; whether the bar is met."""
    gains = np.array([row["gain"] for row in rows if row["own"] >= STEADY])
    behind = int(np.count_nonzero(gains < -BEHIND))
    met = len(gains) > 0 and gains.mean() >= GAIN and behind * ONE_IN <= len(gains)
    mean = gains.mean() if len(gains) else np.nan
    return f"{under_test}: mean gain {mean:+.4f} over {len(gains)} logs, {behind} more than {BEHIND} behind", bool(met)


def said(rows: list[dict[str, Any]]) -> str:
    """How often the model under test says that no linear theta explains the log, rightly and wrongly."""
    apart, steady = ([row["said"] for row in rows if (row["own"] < STEADY) == restless] for restless in (True, False))
    return f"no linear theta: {sum(apart)} of {len(apart)} logs listed apart, {sum(steady)} of {len(steady)} others"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (default 3)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--folder", type=Path, help="keep the logs here, and read them from here")
    parser.add_argument("--only", default="", help="only kinds whose library and name contain this text")
    parser.add_argument("--model", default="auto", choices=list(MODELS), help="the model under test (default auto)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    names = list(dict.fromkeys([*BESIDE, options.model]))

    def show(one: dict[str, Any] | None, columns: list[str]) -> None:
        place = f"{one['library']:17}{one['kind']:20}{one['seed']:>4}" if one else f"{'library':17}{'kind':20}seed"
        mark = "  no linear theta" if one and one["said"] else ""
        print(place + "".join(f"{one[name]:14.3f}" if one else f"{name:>14}" for name in columns) + mark, flush=True)

    rows: list[dict[str, Any]] = []
    columns = ["own", *names, "gain"]
    if not options.json:
        show(None, columns)
    for case in cases(range(options.first_seed, options.first_seed + options.seeds), options.folder, options.only):
        rows.append(row(case, options.model))
        if options.json:
            print(json.dumps(rows[-1]), flush=True)
        elif rows[-1]["own"] >= STEADY:
            show(rows[-1], columns)
    line, met = summary(rows, options.model)
    if not options.json:
        print(f"\nlearners whose own last policy agrees with the next in less than {STEADY:.0%} of the steps")
        columns = ["own", *names, *(f"last_{name}" for name in names)]
        show(None, columns)
        for one in rows:
            if one["own"] < STEADY:
                show(one, columns)
        print(f"\n{said(rows)}\n{line}{'' if met else '  MISSED'}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
