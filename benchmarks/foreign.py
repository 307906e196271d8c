"""What expert="auto" says of deciders that no kind describes: other libraries' learners, and learners that changed.

    python benchmarks/foreign.py [--seeds 1] [--first-seed 0] [--only TEXT]

Candidates have independent normal features; 10 days of 300 choices among 5, after one day at random. Prints for every
decider what it was called, what would be right ("-": no kind's name is), how plausible each choice rule and each motion
is, and the mean divergence of the propensities from the decider's own on the next day. Exits with 1 where more than one
decider is named falsely. Needs the packages of the extra `test`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ibcb

DAYS, STEPS, M, D = 10, 300, 5, 6
Array = NDArray[np.float64]


class Softened:
    """A policy that takes the best by scores, and any candidate at random in a share of steps."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def scores(self, X: Array) -> Array:
        raise NotImplementedError

    def probabilities(self, X: Array) -> Array:
        best = np.eye(X.shape[1])[self.scores(X).argmax(axis=1)]
        p: Array = (1 - self.epsilon) * best + self.epsilon / X.shape[1]
        return p

    def learn(self, X: Array, chosen: NDArray[np.int64], rewards: Array, p: Array) -> None:
        raise NotImplementedError


class Regressed(Softened):
    """Greedy on scikit-learn's prediction of rewards, from all of the past or its last days."""

    def __init__(self, make: Callable[[], Any], epsilon: float = 0.1, window: int = 0, restart: int = -1) -> None:
        super().__init__(epsilon)
        self.make, self.window, self.restart, self.past, self.model = make, window, restart, list[Any](), None

    def scores(self, X: Array) -> Array:
        if self.model is None:
            return np.zeros(X.shape[:2])
        found: Array = self.model.predict(X.reshape(-1, D)).reshape(X.shape[:2])
        return found

    def learn(self, X: Array, chosen: NDArray[np.int64], rewards: Array, p: Array) -> None:
        self.past.append((X[np.arange(len(X)), chosen], rewards))
        if len(self.past) == self.restart:
            # Back to what it knew on its first day.
            self.past = self.past[:1]
        days = self.past[-self.window :] if self.window else self.past
        self.model = self.make().fit(np.concatenate([x for x, _ in days]), np.concatenate([r for _, r in days]))


class Bootstrapped(Softened):
    """The best of upper quantiles of ridge regressions on resampled pasts."""

    def __init__(self, seed: int) -> None:
        super().__init__(0.0)
        self.rng, self.X, self.r, self.thetas = (
            np.random.default_rng(seed),
            np.empty((0, D)),
            np.empty(0),
            np.zeros((20, D)),
        )

    def scores(self, X: Array) -> Array:
        return np.asarray(np.quantile(X @ self.thetas.T, 0.9, axis=-1))

    def learn(self, X: Array, chosen: NDArray[np.int64], rewards: Array, p: Array) -> None:
        self.X = np.concatenate([self.X, X[np.arange(len(X)), chosen]])
        self.r = np.concatenate([self.r, rewards])
        for row in range(len(self.thetas)):
            some = self.rng.integers(len(self.r), size=len(self.r))
            Z = self.X[some]
            self.thetas[row] = np.linalg.solve(Z.T @ Z + np.eye(D), Z.T @ self.r[some])


class VowpalWabbit(Softened):
    """``--cb_explore_adf`` with some options, which learns once a day."""

    def __init__(self, options: str, seed: int) -> None:
        from vowpalwabbit import Workspace

        super().__init__(0.0)
        self.vw = Workspace(f"--cb_explore_adf {options} --quiet --random_seed {seed + 1}")

    @staticmethod
    def lines(candidates: Array, labels: dict[int, str]) -> list[str]:
        rows = [
            " ".join(f"{name}:{value:.6f}" for name, value in zip("abcdef", row, strict=True)) for row in candidates
        ]
        return [f"{labels.get(place, '')} |x {row}" for place, row in enumerate(rows)]

    def probabilities(self, X: Array) -> Array:
        found = np.array([self.vw.predict(self.lines(each, {})) for each in X])
        p: Array = found / found.sum(axis=1, keepdims=True)
        return p

    def learn(self, X: Array, chosen: NDArray[np.int64], rewards: Array, p: Array) -> None:
        for each, choice, reward, probability in zip(X, chosen, rewards, p, strict=True):
            self.vw.learn(self.lines(each, {int(choice): f"{choice}:{-reward:.5f}:{probability:.5f}"}))


class Mixed(Softened):
    """Every step by one of two deciders, by a coin."""

    def __init__(self, one: Softened, other: Softened) -> None:
        super().__init__(0.0)
        self.both = one, other

    def probabilities(self, X: Array) -> Array:
        first, second = (each.probabilities(X) for each in self.both)
        return (first + second) / 2

    def learn(self, X: Array, chosen: NDArray[np.int64], rewards: Array, p: Array) -> None:
        for each in self.both:
            each.learn(X, chosen, rewards, p)


def ridge() -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=1.0, fit_intercept=False)


def trees() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(n_estimators=30, min_samples_leaf=5, random_state=0)


def network() -> Any:
    from sklearn.neural_network import MLPRegressor

    return MLPRegressor(hidden_layer_sizes=(32,), max_iter=300, random_state=0)


#: what makes each, and which name is right; an epsilon-greedy of ridge regression is one whatever it has learned from
DECIDERS: dict[str, tuple[Callable[[int], Softened], str]] = {
    "vw epsilon": (lambda seed: VowpalWabbit("--epsilon 0.1", seed), "egreedy"),
    "vw softmax": (lambda seed: VowpalWabbit("--softmax --lambda 10", seed), "softmax"),
    "vw squarecb": (lambda seed: VowpalWabbit("--squarecb --gamma_scale 100", seed), "-"),
    "vw bag": (lambda seed: VowpalWabbit("--bag 5", seed), "-"),
    "vw cover": (lambda seed: VowpalWabbit("--cover 5", seed), "-"),
    "vw rnd": (lambda seed: VowpalWabbit("--rnd 3", seed), "-"),
    "vw regcb": (lambda seed: VowpalWabbit("--regcb", seed), "-"),
    "trees": (lambda seed: Regressed(trees), "-"),
    "network": (lambda seed: Regressed(network), "-"),
    "ridge": (lambda seed: Regressed(ridge), "egreedy"),
    "bootstrapped UCB": (Bootstrapped, "-"),
    "window of 2": (lambda seed: Regressed(ridge, window=2), "egreedy"),
    "restart": (lambda seed: Regressed(ridge, restart=6), "egreedy"),
    "A/B": (lambda seed: Mixed(Regressed(ridge), Fixed(seed)), "-"),
}


class Fixed(Softened):
    """Always the same weights."""

    def __init__(self, seed: int) -> None:
        super().__init__(0.1)
        self.theta = np.random.default_rng([seed, 7]).normal(size=D)

    def scores(self, X: Array) -> Array:
        return X @ self.theta

    def learn(self, X: Array, chosen: NDArray[np.int64], rewards: Array, p: Array) -> None:
        """Nothing."""


def simulated(make: Callable[[int], Softened], seed: int) -> tuple[Any, Array, Array]:
    """A log, the next day's candidates, and the decider's own propensities on them."""
    rng = np.random.default_rng([seed, 3])
    theta, decider, pairs = rng.normal(size=D) / np.sqrt(D), make(seed), []
    for day in range(DAYS + 2):
        X = rng.normal(size=(STEPS, M, D))
        p = decider.probabilities(X) if day else np.full((STEPS, M), 1 / M)
        if day > DAYS:
            break
        chosen = (rng.random((STEPS, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
        own = X[np.arange(STEPS), chosen]
        decider.learn(X, chosen, own @ theta + 0.3 * rng.normal(size=STEPS), p[np.arange(STEPS), chosen])
        pairs.append((X, chosen))
    return ibcb.BehaviorLog.from_episodes(pairs, warmup=1), X, p


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="logs of each decider (default 1)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--only", default="", help="only deciders whose name contains this text")
    options = parser.parse_args()
    right, false, divergences = 0, 0, []
    print(f"{'decider':18}{'called':14}{'right':9}{'KL':>6}  plausible")
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name, (make, truth) in DECIDERS.items():
            if options.only not in name:
                continue
            log, X, p = simulated(make, seed)
            model = ibcb.IBCB(expert="auto").fit(log)
            q = np.clip(model.propensities(X), 1e-4, None)
            divergences.append(float(np.mean(np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-12) / q), 0), axis=1))))
            right += model.expert_ == truth
            false += model.expert_ not in (truth, "other", "undetermined")
            plausible = [
                f"{each.name} {each.weight:.2f}" for each in (*model.rules_, *model.motions_) if each.weight > 0.02
            ]
            print(f"{name:18}{model.expert_:14}{truth:9}{divergences[-1]:6.3f}  {', '.join(plausible)}", flush=True)
    print(f"{right} named rightly, {false} falsely; mean divergence {np.mean(divergences):.3f}")
    return int(false > options.seeds)


if __name__ == "__main__":
    sys.exit(main())
