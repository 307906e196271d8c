"""Logs and models that the tests of the report share."""

from __future__ import annotations

import functools
import warnings

import numpy as np
from conftest import small_run

import ibcb

HOSTILE = (
    "<script>alert(1)</script>",
    "he said \"hi\" & 'bye'",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "x" * 500,
    "</script><img src=x onerror=alert(2)>",
    "\u2028line\nbreak\tand \x00",
    "{{ 7 * 7 }} ${1} <!--",
    "日本語の特徴量",
)


def hostile_log(*, episodes: int = 6, steps: int = 60, changed: bool = False) -> ibcb.BehaviorLog:
    """An SBUCB decider's log whose names and ids try to be more than text; ``changed``: not all choices are its own."""
    rng, d = np.random.default_rng(5), len(HOSTILE)
    theta, expert = rng.normal(size=d), ibcb.SBUCB(d, alpha=0.5, l2=1.0)
    pairs, ids = [], []
    for number in range(episodes):
        sets = [rng.normal(size=(rng.integers(2, 7), d)) for _ in range(steps)]
        chosen = [expert.act(candidates) for candidates in sets]
        S = np.array([candidates[pick] for candidates, pick in zip(sets, chosen, strict=True)])
        expert.update(S, S @ theta + 0.1 * rng.normal(size=steps))
        if changed and number == 3:
            chosen[5:12] = [int(np.argmin(candidates @ theta)) for candidates in sets[5:12]]
        pairs.append((sets, chosen))
        ids += [f"<b>id {number}:{step}</b>\"'\u202e" + "y" * 500 * (step % 7 == 0) for step in range(steps)]
    return ibcb.BehaviorLog.from_episodes(pairs, feature_names=HOSTILE, step_ids=ids)


@functools.cache
def hostile(changed: bool = False) -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    log = hostile_log(changed=changed)
    return ibcb.IBCB(expert="sbucb", l2=1.0).fit(log), log


@functools.cache
def fitted(expert: str = "sbucb") -> tuple[ibcb.IBCB, ibcb.Run]:
    """A small run of either expert, fitted."""
    return ibcb.IBCB(expert=expert, l2=0.3).fit(small_run(expert).log), small_run(expert)


@functools.cache
def compared() -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    """An epsilon-greedy decider's log, and a model that was told nothing of its kind."""
    sizes = {"n_episodes": 8, "batch_size": 300, "n_candidates": 6, "n_features": 6, "noise": 0.1}
    run = ibcb.simulate("synthetic", expert="egreedy", seed=11, **sizes)
    return ibcb.IBCB(expert="auto").fit(run.log), run.log


@functools.cache
def logged(*, every: bool = True) -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    """With logged propensities, the true ones; ``every``: of all candidates, not of the chosen ones alone."""
    model, run = fitted("sbts")
    true = run.propensities()
    return model, run.log.with_propensities(true if every else true[run.log.chosen_rows])


@functools.cache
def wide() -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    """Many candidates and features."""
    run = ibcb.simulate(n_episodes=4, batch_size=40, n_candidates=30, n_features=20, seed=0)
    return ibcb.IBCB(l2=0.3).fit(run.log), run.log


@functools.cache
def plain() -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    """Without a forecast: no intervals, and a forecast of one update."""
    _, run = fitted()
    return ibcb.IBCB(expert="sbucb", l2=0.3, alpha=2.0, forecast=None).fit(run.log), run.log


@functools.cache
def shared() -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    """With two features whose weights no choice tells: one is the same for all candidates of a step."""
    _, run = fitted()
    rng, pairs = np.random.default_rng(0), []
    for _, episode in run.log.episodes():
        X = episode.contexts.reshape(episode.n_steps, 7, 4)
        user = np.broadcast_to(rng.normal(size=(len(X), 1, 1)), (*X.shape[:2], 1))
        pairs.append((np.concatenate([X, user, 0 * user], axis=2), episode.chosen))
    names = ["price", "stars", "near", "new", "<b>age</b> of the user", "always 0"]
    log = ibcb.BehaviorLog.from_episodes(pairs, warmup=1, feature_names=names)
    return ibcb.IBCB(expert="sbucb", l2=0.3).fit(log), log


@functools.cache
def shop() -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    """Mixed units, a one-hot feature with a long name, and a step every few minutes for a week."""
    rng, size = np.random.default_rng(3), (120, 8)
    names = [
        "price_cents",
        "rating",
        "distance_km",
        "genre=drama",
        "genre=comedy",
        f"genre={HOSTILE[-1] * 4}",
        "is_new",
    ]
    worth, unit = np.array([-0.6, 0.8, -0.4, 0.3, -0.2, 0.1, 0.4]), np.array([1500.0, 1, 8, 1, 1, 1, 1])
    decider, pairs = ibcb.SBUCB(7, alpha=0.4, l2=1.0), []
    for _ in range(7):
        genre = np.eye(3)[rng.integers(3, size=size)]
        own = [rng.integers(500, 5000, size), rng.uniform(1, 5, size), rng.gamma(2, 4, size)]
        X = np.concatenate([np.stack(own, axis=2), genre, (rng.random(size) < 0.3)[..., None]], axis=2)
        chosen = decider.act(X / unit)
        S = X[np.arange(len(X)), chosen] / unit
        decider.update(S, S @ worth + 0.1 * rng.normal(size=len(X)))
        pairs.append((X, chosen))
    days = np.repeat(np.datetime64("2024-02-27", "m") + np.arange(7) * np.timedelta64(1440, "m"), size[0])
    times = days + np.tile(np.arange(size[0]) * np.timedelta64(7, "m"), 7)
    log = ibcb.BehaviorLog.from_episodes(pairs, feature_names=names, timestamps=times)
    with warnings.catch_warnings():
        # Of its own units, which the decider did not have.
        warnings.simplefilter("ignore")
        return ibcb.IBCB(expert="sbucb", l2=0.3).fit(log), log


@functools.cache
def dirty() -> tuple[ibcb.IBCB, ibcb.BehaviorLog, ibcb.BehaviorLog]:
    """An SBUCB decider's log in which 1 in 20 choices was replaced by one at random, and the log as it was."""
    clean = ibcb.simulate("synthetic", n_episodes=10, batch_size=300, seed=1).log
    rng, chosen = np.random.default_rng(0), clean.chosen.copy()
    changed = (rng.random(len(chosen)) < 0.05) & (np.arange(len(chosen)) >= clean.episode_offsets[clean.warmup])
    chosen[changed] = rng.integers(np.diff(clean.step_offsets)[changed])
    log = ibcb.BehaviorLog(clean.contexts, clean.step_offsets, chosen, clean.episode_offsets, warmup=clean.warmup)
    return ibcb.IBCB(expert="sbucb", l2=0.3).fit(log), log, clean


@functools.cache
def arms() -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    run = ibcb.simulate("arms", n_episodes=5, batch_size=150, seed=0)
    return ibcb.IBCB(expert="sbucb", l2=0.3).fit(run.log), run.log


@functools.cache
def settled() -> tuple[ibcb.IBCB, ibcb.BehaviorLog]:
    """A decider that does not learn."""
    rng = np.random.default_rng(0)
    worth, sets = rng.normal(size=5), rng.normal(size=(6, 100, 6, 5))
    log = ibcb.BehaviorLog.from_episodes([(X, (X @ worth).argmax(axis=1)) for X in sets])
    return ibcb.IBCB(expert="stationary").fit(log), log
