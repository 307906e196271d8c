"""A soak: random legal logs against what must hold of every one, for as long as it is told.

    python benchmarks/soak.py [--minutes 1] [--first-seed 0] [--seeds N] [--no-dask]

Each seed makes a log (sizes, float types, ragged or even, dense or of arms, six kinds of deciders) and settings, and
fits it. To the bit: a log in memory, at another address, streamed from Parquet, npz or CSV, on two threads and on Dask;
episode by episode and whole; saved and loaded. Up to rounding: candidates and features in another order, features in
other units. Whatever a model answers is finite, and propensities sum to 1. A log that is refused is refused alike, in
words. Prints each violation with its seed, and in the end how often each was looked at. Exits with 1 if there was any.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ibcb
from ibcb.deciders import KINDS
from ibcb.estimators.models import content_digest

#: scores by policies in other units, or with candidates or features in another order, differ by at most this share of
#: their size: rounding, mostly below 1e-9; passes over rows that contradict each other, ended unfinished, enlarge it
NEARLY = 1e-3
#: attributes that a fit decides on
DECIDED = ("expert_", "l2_", "units_", "top_k_", "solver_", "forecast_model_")
#: what a legal log may be refused with
REFUSALS = (ValueError, ibcb.SolverError)
DECIDERS = ("sbucb", "sbts", "softmax", "egreedy", "best", "random")


class Case:
    """A random log and the settings of its fit, by a seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.decider = str(rng.choice(DECIDERS))
        self.sparse = bool(rng.random() < 0.2)
        self.single = not self.sparse and bool(rng.random() < 0.3)
        self.log = self._arms() if self.sparse else self._dense()
        kind = str(rng.choice([*KINDS, "auto"]))
        if self.decider in KINDS and not self.sparse and rng.random() < 0.5:
            kind = self.decider
        self.settings: dict[str, Any] = {"expert": kind, "l2": float(rng.choice([0.1, 1.0, 3.0]))}
        if rng.random() < 0.4:
            self.settings["l2"] = "auto"
        if kind in ("topk", "auto"):
            self.settings["top_k"] = 2
        if kind in ("sbucb", "sbts") and rng.random() < 0.2:
            self.settings["forecast"] = None

    def _dense(self) -> ibcb.BehaviorLog:
        rng = self.rng
        d, episodes, steps = int(rng.integers(1, 9)), int(rng.integers(2, 7)), int(rng.integers(5, 90))
        most, warmup, ragged = int(rng.integers(2, 9)), int(rng.integers(0, 2)), rng.random() < 0.5
        truth, units = rng.normal(size=d), 10.0 ** rng.uniform(-1, 1, size=d)
        phi, moment, pairs = np.eye(d), np.zeros(d), []
        for number in range(episodes + warmup):
            counts = rng.integers(1, most + 1, size=steps) if ragged else np.full(steps, most)
            sets = [rng.normal(size=(count, d)) for count in counts]
            chosen = [
                int(rng.integers(len(s))) if number < warmup else self._choice(s, phi, moment, truth) for s in sets
            ]
            S = np.array([s[pick] for s, pick in zip(sets, chosen, strict=True)])
            phi, moment = phi + S.T @ S, moment + S.T @ (S @ truth + 0.1 * rng.normal(size=steps))
            dtype = np.float32 if self.single else np.float64
            pairs.append(([(s * units).astype(dtype) for s in sets], chosen))
        names = [f"f{column}" for column in range(d)] if rng.random() < 0.5 else None
        return ibcb.BehaviorLog.from_episodes(pairs, warmup=warmup, feature_names=names)

    def _choice(
        self, s: NDArray[np.float64], phi: NDArray[np.float64], moment: NDArray[np.float64], truth: NDArray[np.float64]
    ) -> int:
        rng = self.rng
        if self.decider == "random":
            return int(rng.integers(len(s)))
        policy = truth if self.decider == "best" else np.linalg.solve(phi, moment)
        scores = s @ policy
        if self.decider == "sbucb":
            scores = scores + 0.4 * np.sqrt(np.einsum("ij,ij->i", s @ np.linalg.inv(phi), s))
        elif self.decider == "sbts":
            scores = s @ rng.multivariate_normal(policy, 0.05 * np.linalg.inv(phi))
        elif self.decider == "softmax":
            scores = scores + 0.3 * rng.gumbel(size=len(s))
        elif self.decider == "egreedy" and rng.random() < 0.1:
            return int(rng.integers(len(s)))
        return int(scores.argmax())

    def _arms(self) -> ibcb.BehaviorLog:
        """Arms with weights of their own: sparse contexts."""
        rng = self.rng
        arms, width, episodes = int(rng.integers(2, 7)), int(rng.integers(1, 4)), int(rng.integers(2, 6))
        weights, pairs = rng.normal(size=(arms, width)), []
        for _ in range(episodes):
            features = rng.normal(size=(int(rng.integers(10, 60)), width))
            pairs.append(
                (features, (features @ weights.T + 0.3 * rng.gumbel(size=(len(features), arms))).argmax(axis=1))
            )
        return ibcb.BehaviorLog.from_arms(pairs, n_arms=arms)


# -- the same log in other words -------------------------------------------------------------------------------------


def rebuilt(log: ibcb.BehaviorLog, contexts: Any, chosen: Any) -> ibcb.BehaviorLog:
    parts = (contexts, log.step_offsets, chosen, log.episode_offsets)
    return ibcb.BehaviorLog(*parts, warmup=log.warmup)


def other_candidates(log: ibcb.BehaviorLog, rng: np.random.Generator) -> ibcb.BehaviorLog:
    """Candidates of every step in another order."""
    offsets = log.step_offsets
    order = np.concatenate([a + rng.permutation(b - a) for a, b in pairwise(offsets)])
    now = np.empty(len(order), dtype=np.int64)
    now[order] = np.arange(len(order))
    return rebuilt(log, log.contexts[order], now[log.chosen_rows] - offsets[:-1])


def elsewhere(log: ibcb.BehaviorLog, rng: np.random.Generator) -> ibcb.BehaviorLog:
    """The same log at another address; what is freed meanwhile leaves odd numbers in the memory of arrays to come."""
    odd = [np.full(int(rng.integers(1, 400)), rng.choice([np.nan, 1e300, -1.0])) for _ in range(200)]
    contexts = log.contexts
    if isinstance(contexts, np.ndarray):
        room = np.empty(contexts.nbytes + 128, dtype=np.uint8)
        start = int(-room.ctypes.data % 64 + 8 * rng.integers(8))
        contexts = room[start : start + contexts.nbytes].view(contexts.dtype).reshape(contexts.shape)
        contexts[...] = log.contexts
    del odd[::2]
    parts = (contexts, log.step_offsets, log.chosen, log.episode_offsets)
    return ibcb.BehaviorLog(*parts, warmup=log.warmup, feature_names=log.feature_names)


def fitted(settings: dict[str, Any], log: Any, **how: Any) -> Any:
    """A model, or the error with which the log is refused."""
    try:
        return ibcb.IBCB(**settings, **{name: how.pop(name) for name in ("n_jobs",) if name in how}).fit(log, **how)
    except REFUSALS as error:
        return error


def digest(model: Any) -> str:
    """Of all that was found; of a refusal its kind."""
    if isinstance(model, Exception):
        return type(model).__name__
    arrays, state = model.get_state()
    return content_digest(arrays, json.dumps(state))


def policies(model: Any) -> NDArray[np.float64]:
    return np.vstack([model.policy_coefs_, model.next_policy_coef_])


def scored(log: ibcb.BehaviorLog, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """What policies make of the log's candidates, less the mean of the step: all that choices can tell."""
    scores = np.asarray(log.contexts @ weights.T, dtype=np.float64)
    counts = np.diff(log.step_offsets)
    means = np.add.reduceat(scores, log.step_offsets[:-1], axis=0) / counts[:, None]
    return np.asarray(scores - np.repeat(means, counts, axis=0))


def apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The distance of two arrays of scores, as a share of their size."""
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(one - other)) / size if size else 0.0


# -- what must hold --------------------------------------------------------------------------------------------------

Finding = tuple[str, str | None]


def checked(case: Case, folder: Path, client: Any) -> Iterator[Finding]:
    """Every invariant that was looked at, with what is wrong, or None."""
    log, settings, rng = case.log, case.settings, case.rng
    model = fitted(settings, log)
    whole = digest(model)

    def same(name: str, make: Callable[[], Any]) -> Finding:
        found = digest(make())
        return name, None if found == whole else f"{found} instead of {whole}"

    suffixes = (".parquet", ".npz") if case.sparse or case.single else (".parquet", ".npz", ".csv")
    path = folder / f"log{rng.choice(suffixes)}"
    ibcb.write_log(log, path)
    # Of a CSV names and layout are the file's; what counts is that reading whole and streaming agree.
    memory = model if path.suffix != ".csv" else fitted(settings, ibcb.read_log(path))
    streamed = digest(fitted(settings, ibcb.open_log(path)))
    yield f"stream {path.suffix}", None if streamed == digest(memory) else f"{streamed} instead of {digest(memory)}"
    yield same("elsewhere in memory", lambda: fitted(settings, elsewhere(log, rng)))
    yield same("two threads", lambda: fitted(settings, log, n_jobs=2))
    if client is not None and not any(note.code == "looks-sampled" for note in getattr(model, "notes_", ())):
        # What looks like a sample of a longer log is not looked for on a cluster.
        yield same("dask", lambda: fitted(settings, log, client=client))
    if isinstance(model, Exception):
        # Words of ours end in a full stop; those of NumPy, which are nobody's to mend, do not.
        plain = len(str(model).splitlines()) == 1 and str(model).endswith(".")
        yield "refused in words", None if plain else repr(str(model))
        return
    yield from sound(model, log)
    ibcb.save_model(model, folder / "model.safetensors")
    yield same("saved", lambda: ibcb.load_model(folder / "model.safetensors"))
    named = settings["expert"] in ("sbucb", "sbts") and settings["l2"] != "auto"
    if named and model.solver_ == "hard" and not any(note.code == "units" for note in model.notes_):
        yield same("episode by episode", lambda: by_episodes(settings, log))
    yield from reworded(case, model)


def by_episodes(settings: dict[str, Any], log: ibcb.BehaviorLog) -> Any:
    model = ibcb.IBCB(**settings)
    for number in range(len(log)):
        model.partial_fit(log[: number + 1] if number == 0 else log[number])
    return model


def sound(model: Any, log: ibcb.BehaviorLog) -> Iterator[Finding]:
    """All that is told is finite, and probabilities are some."""
    told = [model.coef_, model.policy_coefs_, model.next_policy_coef_, np.asarray(model.decision_function(log))]
    yield "finite", None if all(np.isfinite(each).all() for each in told) else "weights or scores are not"
    if model.forecast_model_ is None:
        return
    p = model.propensities(log)
    sums = np.add.reduceat(p, log.step_offsets[:-1])
    good = (p >= 0).all() and np.allclose(sums, 1, atol=1e-6)
    yield "propensities", None if good else f"they sum to {sums.min()} to {sums.max()}"
    certain = model.certainty(log)
    good = ((certain >= 0) & (certain <= 1)).all() or not model.next_policy_coef_.any()
    yield "certainty", None if good else f"{certain.min()} to {certain.max()}"


def reworded(case: Case, model: Any) -> Iterator[Finding]:
    """Another order of candidates or of features, and other units where l2 is found: the same policies."""
    log, settings, rng = case.log, case.settings, case.rng

    def alike(name: str, found: Any, back: Callable[[Any], Any]) -> Finding:
        """``back`` takes weights to the features of the log."""
        if isinstance(found, Exception):
            return name, f"refused: {found}"
        for each in DECIDED:
            one, other = getattr(model, each), getattr(found, each)
            if one != other and not (isinstance(one, float) and np.isclose(one, other)):
                return name, f"{each} is {other} instead of {one}"
        far = apart(scored(log, policies(model)), scored(log, back(policies(found))))
        return name, None if far <= NEARLY else f"scores differ by {far:.2g} of their size"

    yield alike("candidates", fitted(settings, other_candidates(log, rng)), lambda weights: weights)
    columns = rng.permutation(log.n_features)
    places = np.argsort(columns)
    moved = rebuilt(log, log.contexts[:, columns], log.chosen)
    yield alike("features", fitted(settings, moved), lambda weights: weights[..., places])
    if settings["l2"] == "auto" and not case.sparse:
        units = (2.0 ** rng.integers(-10, 11, size=log.n_features)).astype(log.contexts.dtype)
        scaled = rebuilt(log, log.contexts * units, log.chosen)
        yield alike("units", fitted(settings, scaled), lambda weights: weights * units)


@contextlib.contextmanager
def cluster(wanted: bool) -> Iterator[Any]:
    """A Dask client of this process; None where there is no Dask."""
    try:
        from distributed import Client
    except ImportError:
        wanted = False
    if not wanted:
        yield None
        return
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:  # type: ignore[no-untyped-call]
        yield client


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="at most so many logs")
    parser.add_argument("--no-dask", action="store_true", help="leave the cluster out")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    end, seed, looked, wrong = time.monotonic() + 60 * options.minutes, options.first_seed, Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder, cluster(not options.no_dask) as client:
        while time.monotonic() < end and (options.seeds is None or seed < options.first_seed + options.seeds):
            case = Case(seed)
            try:
                findings = list(checked(case, Path(folder), client))
            except Exception as error:
                findings = [("no other error", repr(error))]
            for name, found in findings:
                looked[name] += 1
                if found is not None:
                    wrong += 1
                    print(f"seed {seed}, {case.decider}, {case.settings}: {name}: {found}", flush=True)
            seed += 1
    print(f"{seed - options.first_seed} logs, {sum(looked.values())} invariants looked at, {wrong} violated")
    print(", ".join(f"{name} {count}" for name, count in sorted(looked.items())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
