"""Logs of arms: disjoint LinUCB and LinTS, two libraries' own, and items known by their names alone.

    python benchmarks/arms.py [--seeds 2] [--first-seed 0] [--only disjoint|libraries|items] [--json]

*disjoint*   10 x 10 and 20 x 10 arms x features, and 80 arms without features of which 20 are available at each step:
             agreement with the decider's next policy on fresh steps, beside a multinomial logit of the last three
             episodes (scikit-learn's, the better of ridge 1 and nearly none; without features a conditional logit among
             the arms available). Bars: .005 above the logit on average of each case, each fit below 20 s of processor
             time. Without features a policy is one ranking, and both miss the same few pairs of arms: there the bar is
             not to be behind by more than .002 (docs/decisions/0016).
*libraries*  MABWiser's LinUCB and LinTS and river's LinUCBDisjoint, contexts and decisions as they take them, read by
             `ibcb.BehaviorLog.from_arms`. Bar: better than the better logit on average.
*items*      2,000 one-hot items, 24,000 rows, l2 known: a process of its own for sparse contexts, and one for Algorithm
             2 alone with dense ones, which is what release 0.1 ran. Bars: 20 times faster, 500 MB at most.

Exit code 1 if a bar is missed. Needs ``pip install "ibcb[test]"``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import ibcb
from ibcb.numerics.contexts import dense

Array = NDArray[np.float64]
Picks = NDArray[np.int64]

ALPHA, NOISE, TEST_STEPS = 0.4, 0.3, 1000
GAIN, NEAR, SECONDS, TIMES_FASTER, MEGABYTES = 0.005, 0.002, 20.0, 20.0, 500.0
#: arms, features, episodes, steps, arms available at a step
CASES = ((10, 10, 12, 1000, 10), (20, 10, 8, 1000, 20), (80, 0, 10, 1000, 20))


class Logs(NamedTuple):
    """A log of arms, and what the next policy takes on fresh steps."""

    log: ibcb.BehaviorLog
    test: ibcb.BehaviorLog


def disjoint_log(case: tuple[int, int, int, int, int], expert: str, seed: int) -> Logs:
    """Of our own decider: contexts of different arms share no feature, so it is a regression per arm."""
    arms, features, episodes, steps, count = case
    sizes: dict[str, Any] = {
        "n_arms": arms,
        "n_features": max(features, 1),
        "n_available": count,
        "n_episodes": episodes,
    }
    run = ibcb.simulate("arms", expert=expert, seed=seed, warmup=steps, batch_size=steps, noise=NOISE, **sizes)
    return Logs(run.log, run.test_log)


# -- libraries' own --------------------------------------------------------------------------------------------------


class MabWiser:
    """MABWiser's contexts and decisions."""

    def __init__(self, policy: Any, arms: int, seed: int) -> None:
        from mabwiser.mab import MAB

        self.mab, self.arms, self.begun = MAB(list(range(arms)), policy, seed=seed), arms, False

    def act(self, X: Array) -> Picks:
        return np.array(self.mab.predict(X), dtype=np.int64)

    def expected(self, X: Array) -> Array:
        models = self.mab._imp.arm_to_model
        scores: Array = X @ np.column_stack([models[arm].beta for arm in range(self.arms)])
        return scores

    def learn(self, X: Array, picks: Picks, rewards: Array) -> None:
        (self.mab.partial_fit if self.begun else self.mab.fit)(picks, rewards, X)
        self.begun = True


class River:
    """river's LinUCBDisjoint."""

    def __init__(self, arms: int, seed: int) -> None:
        from river.bandit import LinUCBDisjoint

        self.policy: Any = LinUCBDisjoint(beta=4.0, seed=seed)
        self.arms = list(range(arms))

    def act(self, X: Array) -> Picks:
        return np.array([self.policy.pull(self.arms, dict(enumerate(row))) for row in X.tolist()], dtype=np.int64)

    def expected(self, X: Array) -> Array:
        models: Any = self.policy._bayes_lin_regs
        rows = [dict(enumerate(row)) for row in X.tolist()]
        return np.array([[models[arm].predict_one(row) for arm in self.arms] for row in rows])

    def learn(self, X: Array, picks: Picks, rewards: Array) -> None:
        for row, pick, reward in zip(X.tolist(), picks.tolist(), rewards.tolist(), strict=True):
            self.policy.update(pick, dict(enumerate(row)), reward)


def _library(name: str, arms: int, seed: int) -> Any:
    from mabwiser.mab import LearningPolicy

    if name == "river LinUCBDisjoint":
        return River(arms, seed)
    policy = LearningPolicy.LinUCB(alpha=0.5) if name == "mabwiser LinUCB" else LearningPolicy.LinTS(alpha=0.4)
    return MabWiser(policy, arms, seed)


LIBRARIES = {"mabwiser LinUCB": "sbucb", "mabwiser LinTS": "sbts", "river LinUCBDisjoint": "sbucb"}


def library_log(name: str, seed: int) -> Logs:
    """A log of a library's decider: 5 arms, 6 features."""
    arms, features, episodes, steps = 5, 6, 8, 300
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(arms, features)) / np.sqrt(features)

    def drawn(steps: int) -> Array:
        return np.column_stack([np.ones(steps), rng.normal(size=(steps, features - 1))])

    decider, done = _library(name, arms, seed), []
    for episode in range(episodes + 1):
        X = drawn(steps)
        picks = decider.act(X) if episode else rng.integers(arms, size=steps)
        decider.learn(X, picks, np.einsum("bi,bi->b", X, weights[picks]) + NOISE * rng.normal(size=steps))
        done.append((X, picks))
    X = drawn(TEST_STEPS)
    test = [(X, decider.expected(X).argmax(axis=1))]
    return Logs(ibcb.BehaviorLog.from_arms(done, n_arms=arms, warmup=1), ibcb.BehaviorLog.from_arms(test, n_arms=arms))


# -- judging ---------------------------------------------------------------------------------------------------------


def _read(log: ibcb.BehaviorLog, arms: int) -> tuple[Array, Picks, NDArray[np.bool_]]:
    """Features of the steps, the arms chosen, and those available."""
    ids = np.asarray(log.candidate_ids)
    X = dense(log.contexts[log.step_offsets[:-1]]).reshape(log.n_steps, arms, -1).sum(axis=1)
    could = np.zeros((log.n_steps, arms), dtype=bool)
    could[np.repeat(np.arange(log.n_steps), np.diff(log.step_offsets)), ids] = True
    return X, ids[log.chosen_rows], could


def logit(logs: Logs, arms: int, strength: float) -> float:
    """Agreement of a multinomial logit of the last three episodes, among the arms available."""
    if logs.log.n_features == arms:
        return float(ibcb.ChoiceModel(episodes=3).fit(logs.log).score(logs.test))
    X, picks, _ = _read(logs.log[-3:], arms)
    fresh, best, could = _read(logs.test, arms)
    scores = np.full(could.shape, -np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=strength, max_iter=2000).fit(X, picks)
    scores[:, model.classes_] = model.decision_function(fresh)
    return float(np.mean(np.where(could, scores, -np.inf).argmax(axis=1) == best))


def imitated(logs: Logs, expert: str) -> tuple[float, float, str]:
    """Agreement of IBCB, seconds of processor time, and the kind."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ibcb.IBCB(expert=expert).fit(logs.log)
    seconds = time.process_time() - start
    return model.score(logs.test), seconds, model.expert_


def judged(logs: Logs, arms: int, expert: str) -> dict[str, Any]:
    """Both, side by side."""
    logits = [logit(logs, arms, strength) for strength in (1.0, 100.0)]
    agreement, seconds, kind = imitated(logs, expert)
    return {"logit": max(logits), "ibcb": agreement, "gain": agreement - max(logits), "seconds": seconds, "kind": kind}


def disjoint(seeds: range) -> Iterator[dict[str, Any]]:
    """The bars of our own deciders."""
    for case in CASES:
        for name, expert in (("LinUCB", "sbucb"), ("LinTS", "sbts")):
            found = [judged(disjoint_log(case, expert, seed), case[0], expert) for seed in seeds]
            yield _summary(f"{case[0]} arms x {case[1]}, {name}", found, GAIN if case[1] else -NEAR)


def libraries(seeds: range) -> Iterator[dict[str, Any]]:
    """The bar of the libraries' own."""
    each = []
    for name, expert in LIBRARIES.items():
        found = [judged(library_log(name, seed), 5, expert) for seed in seeds]
        each += found
        yield _summary(name, found, -1.0)
    yield _summary(f"all {len(each)}", each, 0.0)


def _summary(name: str, found: list[dict[str, Any]], bar: float) -> dict[str, Any]:
    means = {key: float(np.mean([entry[key] for entry in found])) for key in ("logit", "ibcb", "gain")}
    seconds = max(entry["seconds"] for entry in found)
    return {"name": name, **means, "seconds": seconds, "ok": means["gain"] >= bar and seconds < SECONDS}


# -- items -----------------------------------------------------------------------------------------------------------


def item_log(seed: int, *, dense: bool, d: int = 2000, episodes: int = 20, steps: int = 114, shown: int = 10) -> Any:
    """An SBUCB over items known by their names: one weight each."""
    rng = np.random.default_rng(seed)
    worth, counts, sums, done = rng.normal(size=d), np.zeros(d), np.zeros(d), []
    for episode in range(episodes + 1):
        items = np.array([rng.choice(d, shown, replace=False) for _ in range(steps)])
        bounds = (sums / (counts + 1) + ALPHA / np.sqrt(counts + 1))[items]
        picks = bounds.argmax(axis=1) if episode else rng.integers(shown, size=steps)
        taken = items[np.arange(steps), picks]
        np.add.at(counts, taken, 1)
        np.add.at(sums, taken, worth[taken] + NOISE * rng.normal(size=steps))
        rows = sparse.csr_array((np.ones(items.size), items.ravel(), np.arange(items.size + 1)), shape=(items.size, d))
        done.append((rows.toarray().reshape(steps, shown, d) if dense else rows, picks))
    return ibcb.BehaviorLog.from_episodes(done, warmup=1)


def items(seed: int) -> Iterator[dict[str, Any]]:
    """Both runs, each in a process of its own."""
    runs = {}
    for how in ("sparse", "dense"):
        command = [sys.executable, __file__, "--item-run", how, "--first-seed", str(seed)]
        runs[how] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ratio = runs["dense"]["seconds"] / runs["sparse"]["seconds"]
    ok = ratio >= TIMES_FASTER and runs["sparse"]["megabytes"] <= MEGABYTES
    yield {"name": "2,000 items", "ratio": ratio, **runs["sparse"], "ok": ok}


def _item_run(how: str, seed: int) -> None:
    import resource

    log = item_log(seed, dense=how == "dense")
    model = ibcb.IBCB(l2=1.0, forecast=None if how == "dense" else "auto")
    start = time.process_time()
    model.fit(log)
    seconds = time.process_time() - start
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    print(json.dumps({"seconds": seconds, "megabytes": size}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", choices=("disjoint", "libraries", "items"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--item-run", choices=("sparse", "dense"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.item_run:
        _item_run(given.item_run, given.first_seed)
        return 0
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    of_libraries = range(given.first_seed, given.first_seed + max(4, given.seeds))
    runs = {"disjoint": disjoint(seeds), "libraries": libraries(of_libraries), "items": items(given.first_seed)}
    results = []
    for name, run in runs.items():
        if given.only in (None, name):
            for entry in run:
                results.append(entry)
                if not given.json:
                    _show(entry)
    if given.json:
        print(json.dumps(results, indent=1))
    return 0 if all(entry["ok"] for entry in results) else 1


def _show(entry: dict[str, Any]) -> None:
    mark = "ok" if entry["ok"] else "MISSED"
    if "ratio" in entry:
        figures = f"{entry['ratio']:6.1f} times faster, {entry['seconds']:.1f} s, {entry['megabytes']:.0f} MB"
    else:
        three = "  ".join(f"{key} {entry[key]:.4f}" for key in ("logit", "ibcb", "gain"))
        figures = f"{three}  {entry['seconds']:5.1f} s"
    print(f"{entry['name']:24} {figures}  {mark}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
