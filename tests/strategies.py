"""Logs to test with, and when two of them are the same."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from ibcb import BehaviorLog
from ibcb.log.steps import ReadOptions, numbered

NAMES = st.text(max_size=5)
reproducible = settings(derandomize=True, deadline=None, max_examples=25)


def assert_same_log(one, other):
    for name in ("contexts", "step_offsets", "chosen", "episode_offsets"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
    for name in ("timestamps", "step_ids", "propensities"):
        assert (getattr(one, name) is None) == (getattr(other, name) is None)
        if getattr(one, name) is not None:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("warmup", "feature_names", "candidates_per_step"):
        assert getattr(one, name) == getattr(other, name)


@st.composite
def logs(draw, *, names=NAMES):
    """Small ragged logs of any kind; ``names`` draws one feature's name."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    width = 32 if dtype is np.float32 else 64
    d = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4))
    rows = sum(map(sum, sizes))
    floats = st.floats(width=width, allow_nan=False, allow_infinity=False)
    values = draw(st.lists(floats, min_size=rows * d, max_size=rows * d))
    steps = sum(map(len, sizes))
    counts = [m for episode in sizes for m in episode]
    chosen = [draw(st.integers(0, m - 1)) for m in counts]
    whole = st.integers(-(2**63), 2**63 - 1)
    return BehaviorLog(
        np.array(values, dtype=dtype).reshape(rows, d),
        np.cumsum([0, *counts]),
        chosen,
        np.cumsum([0, *map(len, sizes)]),
        warmup=draw(st.integers(0, len(sizes) - 1)),
        feature_names=draw(st.none() | st.lists(names, min_size=d, max_size=d, unique=True)),
        timestamps=draw(st.none() | st.lists(floats, min_size=steps, max_size=steps)),
        step_ids=draw(st.none() | st.lists(whole, min_size=steps, max_size=steps).map(lambda v: np.array(v, np.int64))),
        propensities=draw(st.none() | propensities(counts, chosen)),
    )


@st.composite
def propensities(draw, counts, chosen):
    """One per row: known of all candidates of a step, of the chosen one alone, or of none."""
    rows = []
    for count, pick in zip(counts, chosen, strict=True):
        known = draw(st.sampled_from(["all", "chosen", "none"]))
        numbers = np.array(draw(st.lists(st.floats(1e-9, 1), min_size=count, max_size=count)))
        kept = np.full(count, known == "all") | ((np.arange(count) == pick) & (known == "chosen"))
        rows.append(np.where(kept, numbers / max(numbers.sum(), 1), np.nan))
    return np.concatenate(rows)


def in_parts(log, most=2):
    """A log as writers take it: (episode number, part), with parts of a few steps."""
    for number, (_, episode) in enumerate(log.episodes(), start=-log.warmup):
        for first in range(0, episode.n_steps, most):
            yield number, episode._steps(first, min(first + most, episode.n_steps))


def assembled(source, options=None):
    """The log that a source holds."""
    numbers, batches = zip(*numbered(source.batches(), options or ReadOptions()), strict=True)
    episode = np.concatenate(numbers)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(episode)) + 1, [len(episode)]])
    columns = {name: [getattr(batch, name) for batch in batches] for name in batches[0]._fields}
    flat = {name: None if values[0] is None else np.concatenate(values) for name, values in columns.items()}
    return BehaviorLog(
        flat["contexts"],
        np.concatenate([[0], np.cumsum(flat["counts"])]),
        flat["chosen"],
        edges,
        warmup=int(np.count_nonzero(episode[edges[:-1]] < 0)),
        feature_names=source.feature_names,
        timestamps=flat["timestamps"],
        step_ids=flat["step_ids"],
        propensities=flat["propensities"],
    )
