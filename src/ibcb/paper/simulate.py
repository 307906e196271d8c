"""An expert let loose in an environment: a log without rewards, and the truth it hides.

`Run` keeps the two apart. Estimators are given ``run.log``, which has no rewards; metrics are given the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import DRAWS, KINDS, SBTS, SBUCB, TopK
from ibcb.log import BehaviorLog
from ibcb.numerics.checks import finite, one_of
from ibcb.paper.environments import MovieLens, Phase, Streams, Synthetic, World

__all__ = ["ExpertSettings", "Run", "simulate"]

Expert = SBUCB | SBTS | TopK

Environment = Synthetic | MovieLens

_ENVIRONMENTS: dict[str, type[Environment]] = {"synthetic": Synthetic, "movielens": MovieLens}

#: What the paper says of its experts, and where it is silent (l2, the random start), what makes the experts' own
#: figures the paper's.
_USUAL: dict[tuple[str, str], dict[str, Any]] = {
    ("synthetic", "sbucb"): {"alpha": 0.4, "l2": 0.3, "draws": "step", "warmup": 900},
    ("synthetic", "sbts"): {"alpha": 0.4, "l2": 0.3, "draws": "step", "warmup": 400},
    ("movielens", "sbucb"): {"alpha": 0.4, "l2": 1.0, "draws": "step"},
    ("movielens", "sbts"): {"alpha": 0.05, "l2": 1.0, "draws": "episode"},
}


@dataclass(frozen=True, slots=True)
class ExpertSettings:
    """Which expert acts, and how."""

    kind: str = "sbucb"
    alpha: float = 0.4
    l2: float = 0.3
    draws: str = "step"
    top_k: int | None = None

    def make(self, n_features: int, streams: Streams) -> Expert:
        nothing = np.zeros((n_features, n_features)), np.zeros(n_features)
        luck: dict[str, Any] = {"draws": self.draws, "random_state": streams["expert exploration"]}
        expert: SBUCB | SBTS = KINDS[self.kind](l2=self.l2).live(*nothing, self.alpha, **luck)
        if self.top_k is None:
            return expert
        return TopK(expert, self.top_k, random_state=streams["expert fairness"])


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
    expert : SBUCB, SBTS or TopK
        The expert as the log left it.
    expert_settings : ExpertSettings
    environment : Synthetic or MovieLens
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

    def replay(self, reward_coef: NDArray[np.float64], intercept: float = 0.0) -> NDArray[np.int64]:
        """Choices of the same expert, with the same luck, where candidates earn <reward_coef, s> + intercept.

        The warm-up keeps its real rewards: they were seen before any policy acted. Shape (N B,), warm-up left out.
        """
        phase = self.world.learning
        imagined = Phase(phase.contexts, phase.contexts @ reward_coef + intercept, np.zeros(len(phase.noise)))
        life = _live(self.world, imagined, self.expert_settings, Streams(self.seed))
        return life.chosen


def simulate(
    environment: str = "synthetic",
    *,
    expert: str = "sbucb",
    seed: int = 0,
    alpha: float | None = None,
    l2: float | None = None,
    draws: Literal["step", "episode"] | None = None,
    top_k: int | None = None,
    **settings: Any,
) -> Run:
    """Let an expert learn in an environment and log it.

    Parameters
    ----------
    environment : {"synthetic", "movielens"}
    expert : {"sbucb", "sbts"}
    seed : int
        The same seed gives the same bits; log, test and out-of-distribution streams are independent.
    alpha, l2 : float, optional
        The expert's exploration weight (0.4; 0.05 for SBTS on MovieLens) and ridge parameter (0.3; 1 on MovieLens).
    draws : {"step", "episode"}, optional
        How often an SBTS expert draws its parameters: at every step, on MovieLens once per episode.
    top_k : int, optional
        Fairness: draw from the softmax over the k best candidates instead of taking the best.
    **settings
        Of the environment, see `ibcb.paper.environments.Synthetic` (noise, ood_mean, dup, warmup, n_episodes,
        batch_size, n_candidates, n_features; warmup is 900 random steps for SBUCB and 400 for SBTS unless given) and
        `ibcb.paper.environments.MovieLens` (n_episodes, batch_size, n_candidates, rank, folder).

    Examples
    --------
    >>> run = simulate("synthetic", expert="sbts", noise=0.03, n_episodes=3, batch_size=100, seed=1)
    >>> run.log
    BehaviorLog(3 episodes after 1 of warm-up, 700 steps, 10 candidates each, 10 features, float64)
    """
    kind = _ENVIRONMENTS[one_of("environment", environment, tuple(_ENVIRONMENTS))]
    usual = dict(_USUAL[environment, one_of("expert", expert, ("sbucb", "sbts"))])
    unknown = sorted(set(settings) - set(kind.__dataclass_fields__))
    if unknown:
        known = ", ".join(kind.__dataclass_fields__)
        raise TypeError(f"simulate got an unknown setting {unknown[0]!r}; the {environment} environment has {known}.")
    given = {name: value for name, value in (("alpha", alpha), ("l2", l2), ("draws", draws)) if value is not None}
    chosen = {name: given.get(name, usual.pop(name)) for name in ("alpha", "l2", "draws")}
    where = kind(**(usual | settings))
    who = ExpertSettings(
        expert,
        finite("alpha", chosen["alpha"]),
        finite("l2", chosen["l2"]),
        one_of("draws", chosen["draws"], DRAWS),
        top_k,
    )
    streams = Streams(seed)
    world = where.build(streams)
    life = _live(world, world.learning, who, streams)
    return Run(
        log=_log(world, life),
        test_log=_test_log(world, world.test, life.expert, streams),
        ood_log=None if world.ood is None else _test_log(world, world.ood, life.expert, streams),
        rewards=life.rewards,
        policy_coefs=np.array(life.policies),
        expert=life.expert,
        expert_settings=who,
        environment=where,
        world=world,
        seed=streams.seed,
    )


@dataclass(frozen=True, slots=True)
class _Life:
    expert: Expert
    start: NDArray[np.int64]
    chosen: NDArray[np.int64]
    rewards: NDArray[np.float64]
    policies: list[NDArray[np.float64]]


def _live(world: World, learning: Phase, who: ExpertSettings, streams: Streams) -> _Life:
    """Algorithm 1: a random start with real rewards, then act on a batch, update, and so on."""
    steps, candidates, d = learning.contexts.shape
    expert = who.make(d, streams)
    rewards, start = [], np.empty(0, dtype=np.int64)
    if world.warmup is not None:
        begin = world.warmup
        start = streams["warm-up choices"].integers(candidates, size=len(begin.noise))
        rewards.append(begin.rewards(start))
        expert.update(begin.contexts[np.arange(len(start)), start], rewards[-1])
    chosen = np.empty(steps, dtype=np.int64)
    policies = [expert.coef_]
    for first in range(0, steps, world.batch_size):
        batch = slice(first, first + world.batch_size)
        contexts = learning.contexts[batch]
        picks = chosen[batch] = expert.act(contexts)
        rewards.append(learning.rewards(picks, batch))
        expert.update(contexts[np.arange(len(picks)), picks], rewards[-1])
        policies.append(expert.coef_)
    return _Life(expert, start, chosen, np.concatenate(rewards), policies)


def _log(world: World, life: _Life) -> BehaviorLog:
    contexts, chosen = world.learning.contexts, life.chosen
    edges = _edges(len(chosen), world.batch_size)
    warmup = 0
    if world.warmup is not None:
        contexts = np.concatenate([world.warmup.contexts, contexts])
        chosen = np.concatenate([life.start, chosen])
        edges = np.concatenate([[0], edges + len(life.start)])
        warmup = 1
    return _uniform_log(world, contexts, chosen, edges, warmup)


def _test_log(world: World, phase: Phase, expert: Expert, streams: Streams) -> BehaviorLog:
    if isinstance(expert, TopK):
        expert = TopK(expert.expert, expert.k, random_state=streams["expert test draws"])
    chosen = expert.act(phase.contexts, explore=False)
    return _uniform_log(world, phase.contexts, chosen, _edges(len(chosen), world.batch_size), 0)


def _edges(steps: int, batch_size: int) -> NDArray[np.int64]:
    """Where batches begin, and the end; the last batch may be short."""
    return np.append(np.arange(0, steps, batch_size), steps)


def _uniform_log(
    world: World, contexts: NDArray[np.float64], chosen: NDArray[np.int64], edges: NDArray[np.int64], warmup: int
) -> BehaviorLog:
    steps, candidates, d = contexts.shape
    offsets = np.arange(0, steps * candidates + 1, candidates)
    return BehaviorLog(
        contexts.reshape(-1, d), offsets, chosen, edges, warmup=warmup, feature_names=world.feature_names
    )
