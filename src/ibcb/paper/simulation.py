"""An expert let loose in an environment: a log without rewards, and the truth it hides.

`Run` keeps the two apart. Estimators are given ``run.log``, which has no rewards; metrics are given the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.deciders import DRAWS, SBTS, SBUCB, EGreedy, FixedPolicy, Learning, Policy, Softmax, TopK
from ibcb.log import BehaviorLog
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.checks import one_of, positive
from ibcb.numerics.printable import WrongTypeError
from ibcb.paper.environments import Arms, MovieLens, Phase, Streams, Synthetic, World

Environment = Synthetic | MovieLens | Arms
Expert = Policy | TopK

_ENVIRONMENTS: dict[str, type[Environment]] = {"synthetic": Synthetic, "movielens": MovieLens, "arms": Arms}

#: every expert with its parameters, and what is usual for each
EXPERTS: dict[str, dict[str, Any]] = {
    "sbucb": {"alpha": 0.4, "l2": 1.0, "draws": "step", "top_k": None},
    "sbts": {"alpha": 0.4, "l2": 1.0, "draws": "step", "top_k": None},
    "egreedy": {"l2": 1.0, "epsilon": 0.2, "decay": 0.0},
    "softmax": {"l2": 1.0, "temperature": 0.3},
    "topk": {"alpha": 0.4, "l2": 1.0, "draws": "step", "top_k": 2},
    "stationary": {"l2": 1.0, "epsilon": 0.0, "temperature": 0.3},
    "other": {"l2": 1.0, "epsilon": 0.0, "temperature": 0.3},
}
#: What the paper says of its experts, and where it is silent (l2, the random start), what makes the experts' own
#: figures the paper's. Temperatures are such that the best candidate is drawn about every other time.
_USUAL: dict[str, dict[str, Any]] = {
    "synthetic": {"l2": 0.3, "temperature": 0.08, "warmup": 400},
    "synthetic sbucb": {"warmup": 900},
    "synthetic topk": {"warmup": 900},
    "movielens": {"temperature": 0.06},
    "movielens sbts": {"alpha": 0.05, "draws": "episode"},
}


class Walker(FixedPolicy):
    """A policy that no reward moves: its weights walk at random, a step at every update, and settle nowhere.

    Parameters
    ----------
    coef, temperature, epsilon, random_state
        As of `FixedPolicy`; ``coef`` is where it begins.
    steps : Generator
        Of the walk. Its steps are half as long as the first weights.
    """

    def __init__(self, coef: ArrayLike, *, steps: np.random.Generator, **choice: Any) -> None:
        super().__init__(coef, **choice)
        self._steps = steps
        self._stride = 0.5 * np.linalg.norm(self.coef_) / np.sqrt(self.n_features)

    def update(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Take a step, whatever the batch."""
        self.coef_ = self.coef_ + self._stride * self._steps.standard_normal(self.n_features)


_POLICIES: dict[str, Any] = {
    "sbucb": SBUCB,
    "sbts": SBTS,
    "egreedy": EGreedy,
    "softmax": Softmax,
    "topk": SBUCB,
    "stationary": FixedPolicy,
    "other": Walker,
}


@dataclass(frozen=True, slots=True)
class ExpertSettings:
    """Which expert acts, and how; parameters that it does not have are None."""

    kind: str
    l2: float
    #: a float where there is one, which is what those who ask for it know
    alpha: Any = None
    draws: str | None = None
    top_k: int | None = None
    epsilon: float | None = None
    decay: float | None = None
    temperature: float | None = None

    @property
    def learns(self) -> bool:
        """Whether rewards change what it does."""
        return not issubclass(_POLICIES[self.kind], FixedPolicy)

    def make(self, n_features: int, streams: Streams, lesson: tuple[Matrix, Vector] | None = None) -> Expert:
        """The expert, after a first lesson of contexts (B, d) and rewards (B,) if there is one."""
        policy, own = _POLICIES[self.kind], {name: getattr(self, name) for name in EXPERTS[self.kind]}
        draws, top_k = own.pop("draws", None), own.pop("top_k", None)
        if policy is not SBUCB:
            own["random_state"] = streams["expert exploration"]
        if policy is SBTS:
            own["draws"] = draws
        if policy is Walker:
            own["steps"] = streams["expert walk"]
        if not self.learns:
            l2 = positive("l2", own.pop("l2"), "it is a ridge parameter")
            fixed: FixedPolicy = policy(np.zeros(n_features) if lesson is None else _ridge(*lesson, l2=l2), **own)
            return fixed
        expert = policy(n_features, **own)
        made: Expert = expert if top_k is None else TopK(expert, top_k, random_state=streams["expert fairness"])
        if lesson is not None:
            made.update(*lesson)
        return made


def _ridge(contexts: Matrix, rewards: Vector, *, l2: float) -> Vector:
    """The weights of ridge regression with an intercept, which decides no choice."""
    nothing = np.zeros((contexts.shape[1], contexts.shape[1]))
    return Learning.begin(l2, nothing).learn(contexts - contexts.mean(axis=0), rewards).coef


@dataclass(frozen=True)
class Run:
    """One simulated life of an expert.

    Attributes
    ----------
    log : BehaviorLog
        What an observer sees of it; the random start, if any, is its warm-up.
    test_log, ood_log : BehaviorLog
        Choices of the final policy, frozen and without exploration, on fresh candidates of the same kind and, where
        the environment has them, out of distribution.
    rewards : ndarray of shape (steps,)
        Observed rewards of ``log.chosen``. An estimator never gets them.
    policy_coefs : ndarray of shape (N + 1, d)
        The expert's own policy parameters: row n made the choices of episode n, the last came after the log.
    expert : SBUCB, SBTS, TopK, EGreedy, Softmax or FixedPolicy
        The expert as the log left it.
    expert_settings : ExpertSettings
    environment : Synthetic, MovieLens or Arms
    world : World
    seed : int
    """

    log: BehaviorLog
    test_log: BehaviorLog
    ood_log: BehaviorLog | None
    rewards: NDArray[np.float64]
    policy_coefs: NDArray[np.float64]
    expert: Expert
    expert_settings: ExpertSettings
    environment: Environment
    world: World
    seed: int

    @property
    def top_k(self) -> int:
        """How many candidates the expert draws from; 1 for one that always takes the best."""
        return self.expert_settings.top_k or 1

    @property
    def learns(self) -> bool:
        """Whether rewards changed what the expert did."""
        return self.expert_settings.learns

    def propensities(self) -> NDArray[np.float64]:
        """The true probability of every row of ``log.contexts`` when its step was decided; uniform in the warm-up.

        The expert lives its life again and is asked before each episode, see `SBTS` for how exactly it knows.
        """
        asked = list[Vector]()
        if self.world.warmup is not None:
            steps, candidates, _ = self.world.warmup.contexts.shape
            asked.append(np.full((steps, candidates), 1 / candidates))
        _live(self.world, self.world.learning, self.expert_settings, Streams(self.seed), asked=asked)
        return np.concatenate(asked).ravel()

    def replay(self, reward_coef: NDArray[np.float64], intercept: float = 0.0) -> NDArray[np.int64]:
        """Choices of the same expert, with the same luck, where candidates earn <reward_coef, s> + intercept.

        The warm-up keeps its real rewards: they were seen before any policy acted. Shape (N B,), warm-up left out.
        """
        phase = self.world.learning
        imagined = Phase(phase.contexts, phase.contexts @ reward_coef + intercept, np.zeros(len(phase.noise)))
        return _live(self.world, imagined, self.expert_settings, Streams(self.seed)).chosen


def simulate(
    environment: str = "synthetic",
    *,
    expert: str = "sbucb",
    seed: int = 0,
    alpha: float | None = None,
    l2: float | None = None,
    draws: Literal["step", "episode"] | None = None,
    top_k: int | None = None,
    epsilon: float | None = None,
    decay: float | None = None,
    temperature: float | None = None,
    **settings: Any,
) -> Run:
    """Let an expert learn in an environment, and log its choices.

    Parameters
    ----------
    environment : {"synthetic", "movielens", "arms"}
        The paper's two, or a fixed set of arms with weights of their own.
    expert : {"sbucb", "sbts", "egreedy", "softmax", "topk", "stationary", "other"}
        `SBUCB`, `SBTS`, `EGreedy`, `Softmax`, or `TopK` around SBUCB. "stationary" is a `FixedPolicy` whose weights
        ridge regression learned from the random start; without one, from random choices among the first episode's
        candidates, which are not logged. "other" begins like that, and then its weights walk at random, a step after
        every episode.
    seed : int
        The same seed gives the same result, to the bit; log, test and out-of-distribution data are drawn independently.
    alpha, l2 : float, optional
        The expert's exploration weight (0.4; 0.05 for SBTS on MovieLens) and ridge parameter (0.3; 1 on MovieLens and
        arms).
    draws : {"step", "episode"}, optional
        How often an SBTS expert draws its parameters: at every step, on MovieLens once per episode.
    top_k : int, optional
        Fairness: draw from the softmax over the k best candidates instead of taking the best. For "sbucb" and "sbts",
        and 2 for "topk".
    epsilon, decay : float, optional
        Share of random choices of "egreedy" (0.2), and how fast it falls (0); the random start is an update too.
        "stationary" and "other" can have such a share as well (0).
    temperature : float, optional
        Of "softmax", "stationary" and "other" (0.08; 0.06 on MovieLens, 0.3 on arms).
    **settings
        Of the environment, see `ibcb.paper.environments.Synthetic` (noise, ood_mean, dup, warmup, n_episodes,
        batch_size, n_candidates, n_features; warmup is 900 random steps for SBUCB and 400 for others unless given),
        `ibcb.paper.environments.MovieLens` (n_episodes, batch_size, n_candidates, rank, folder) and
        `ibcb.paper.environments.Arms` (noise, warmup, n_episodes, batch_size, n_arms, n_available, n_features).

    Examples
    --------
    >>> run = simulate("synthetic", expert="sbts", noise=0.03, n_episodes=3, batch_size=100, seed=1)
    >>> run.log
    BehaviorLog(3 episodes after 1 of warm-up, 700 steps, 10 candidates each, 10 features, float64)
    """
    kind = _ENVIRONMENTS[one_of("environment", environment, tuple(_ENVIRONMENTS))]
    own = EXPERTS[one_of("expert", expert, tuple(EXPERTS))]
    usual = own | _USUAL.get(environment, {}) | _USUAL.get(f"{environment} {expert}", {})
    unknown = sorted(set(settings) - set(kind.__dataclass_fields__))
    if unknown:
        known = f"the {environment} environment has {', '.join(kind.__dataclass_fields__)}"
        raise WrongTypeError(f"simulate got an unknown setting {unknown[0]!r}; {known}.")
    how = {"alpha": alpha, "l2": l2, "draws": draws, "top_k": top_k}
    how |= {"epsilon": epsilon, "decay": decay, "temperature": temperature}
    given = {name: value for name, value in how.items() if value is not None}
    for name in given:
        if name not in own:
            raise WrongTypeError(f"{name}={given[name]!r}: expert={expert!r} has no {name}; it has {', '.join(own)}.")
    if draws is not None:
        one_of("draws", draws, DRAWS)
    who = ExpertSettings(expert, **{name: given.get(name, usual[name]) for name in own})
    where = kind(**({"warmup": usual["warmup"]} if "warmup" in usual else {}) | settings)
    streams = Streams(seed)
    # Parameters that make no sense are refused before a world is built.
    who.make(1, streams)
    world = where.build(streams)
    life = _live(world, world.learning, who, streams)
    phases = [world.learning] if world.warmup is None else [world.warmup, world.learning]
    log = _written(world, phases, np.concatenate([life.start, life.chosen]), warmup=len(life.start))
    test_log = _test_log(world, world.test, life.expert, streams)
    ood_log = None if world.ood is None else _test_log(world, world.ood, life.expert, streams)
    lived = life.rewards, np.array(life.policies), life.expert
    return Run(log, test_log, ood_log, *lived, who, where, world, streams.seed)


class _Lived(NamedTuple):
    expert: Expert
    start: NDArray[np.int64]
    chosen: NDArray[np.int64]
    rewards: NDArray[np.float64]
    policies: list[NDArray[np.float64]]


def _live(
    world: World, learning: Phase, who: ExpertSettings, streams: Streams, asked: list[Vector] | None = None
) -> _Lived:
    """Algorithm 1: a random start with real rewards, then act on a batch, update, and so on.

    Propensities of every batch are added to ``asked``.
    """
    steps, candidates, d = learning.contexts.shape
    rewards, start, lesson = [], np.empty(0, dtype=np.int64), None
    if world.warmup is not None or not who.learns:
        begin = world.learning.first(world.batch_size) if world.warmup is None else world.warmup
        picks = streams["warm-up choices"].integers(candidates, size=len(begin.noise))
        earned = begin.rewards(picks)
        lesson = begin.contexts[np.arange(len(picks)), picks], earned
        if world.warmup is not None:
            start, rewards = picks, [earned]
    expert = who.make(d, streams, lesson)
    chosen = np.empty(steps, dtype=np.int64)
    policies = [expert.coef_]
    for first in range(0, steps, world.batch_size):
        batch = slice(first, first + world.batch_size)
        contexts = learning.contexts[batch]
        if asked is not None:
            asked.append(expert.propensities(contexts))
        picks = chosen[batch] = expert.act(contexts)
        rewards.append(learning.rewards(picks, batch))
        expert.update(contexts[np.arange(len(picks)), picks], rewards[-1])
        policies.append(expert.coef_)
    return _Lived(expert, start, chosen, np.concatenate(rewards), policies)


def _test_log(world: World, phase: Phase, expert: Expert, streams: Streams) -> BehaviorLog:
    if isinstance(expert, TopK):
        expert = TopK(expert.expert, expert.k, random_state=streams["expert test draws"])
    return _written(world, [phase], expert.act(phase.contexts, explore=False))


def _written(world: World, phases: list[Phase], chosen: NDArray[np.int64], *, warmup: int = 0) -> BehaviorLog:
    """Consecutive phases as a log that begins with so many steps of warm-up; the last batch may be short."""
    steps, started = len(chosen), int(warmup > 0)
    edges = np.unique([0, *range(warmup, steps, world.batch_size), steps])
    offers = [phase.offers for phase in phases if phase.offers is not None]
    if not offers:
        contexts = phases[0].contexts if len(phases) == 1 else np.concatenate([phase.contexts for phase in phases])
        candidates, d = contexts.shape[1:]
        offsets = np.arange(0, steps * candidates + 1, candidates)
        names = world.feature_names
        return BehaviorLog(contexts.reshape(-1, d), offsets, chosen, edges, warmup=started, feature_names=names)
    features, available = map(np.concatenate, zip(*offers, strict=True))
    arms = np.nonzero(available)[1].reshape(steps, -1)[np.arange(steps), chosen]
    parts = [slice(*ends) for ends in pairwise(edges.tolist())]
    return BehaviorLog.from_arms(
        [(features[part], arms[part]) for part in parts],
        n_arms=available.shape[1],
        available=[available[part] for part in parts],
        warmup=started,
        feature_names=["", *(f"x{place}" for place in range(1, features.shape[1]))],
    )
