"""What cannot be a log is refused, with value, place and remedy, on one line."""

import re

import numpy as np
import pytest
from scipy import sparse

from ibcb import BehaviorLog, LogFormatError

RNG = np.random.default_rng(0)
CONTEXTS, CHOSEN = RNG.normal(size=(5, 3, 2)), RNG.integers(3, size=5)
GOOD = (CONTEXTS, CHOSEN)
EYE = sparse.csr_array(np.eye(4))
FLAT = {"contexts": np.zeros((6, 1)), "step_offsets": [0, 2, 4, 6], "chosen": [0, 1, 0], "episode_offsets": [0, 2, 3]}


def with_value(array, place, value):
    changed = np.array(array, dtype=np.result_type(array, type(value)))
    changed[place] = value
    return changed


def second(contexts=CONTEXTS, chosen=CHOSEN):
    """Three episodes, good but for episode 1."""
    return lambda: BehaviorLog.from_episodes([GOOD, (contexts, chosen), GOOD])


def chosen(place_2):
    return second(chosen=with_value(CHOSEN, 2, place_2))


def step(candidates):
    """Good but for the candidates of step 2 of episode 1."""
    return second([*CONTEXTS[:2], candidates, *CONTEXTS[3:]])


def episodes(given, **extras):
    return lambda: BehaviorLog.from_episodes(given, **extras)


def extra(**extras):
    return episodes([GOOD] * 3, **extras)


def flat(**change):
    return lambda: BehaviorLog(**(FLAT | change))


def arms(arm, **options):
    return lambda: BehaviorLog.from_arms([(np.ones((2, 2)), arm)], **options)


#: how a log is made, and words of the message; where it is TypeError, that
CASES = {
    "choice too large": (chosen(3), "episode 1, step 2: chosen is 3 but .* 3 candidates; indices start at 0"),
    "choice below 0": (chosen(-1), "episode 1, step 2: chosen is -1 .* start at 0"),
    "half a choice": (chosen(0.5), "episode 1: chosen of step 2 is 0.5; it must be a whole number"),
    "no choice": (chosen(np.nan), "episode 1: chosen of step 2 is nan; it must be a whole number"),
    "text for choices": (second(chosen=list("abcde")), TypeError, "episode 1: chosen .*<U1.* whole numbers"),
    "one-hot choices": (second(chosen=np.eye(3)[CHOSEN]), r"episode 1: .*\(5, 3\).*one whole number per step"),
    "one choice for all": (second(chosen=0), "episode 1: chosen .*one whole number per step"),
    "a mask": (second(chosen=np.ones(5, bool)), TypeError, "episode 1: .*bool.* whole numbers"),
    "ragged choices": (second(chosen=[[0], [1, 2]]), "episode 1: chosen .*whole numbers"),
    "too few choices": (second(chosen=CHOSEN[:4]), "episode 1: contexts has 5 steps but chosen has 4 entries"),
    "nan": (second(with_value(CONTEXTS, (2, 1, 0), np.nan)), "step 2, candidate 1: feature 0 is nan.*Impute"),
    "-inf": (second(with_value(CONTEXTS, (2, 1, 0), -np.inf)), "episode 1, step 2.* is -inf.*finite.*drop the step"),
    "no candidates": (step(np.empty((0, 2))), "episode 1, step 2: the step has no candidates; leave it out"),
    "a step in 1-D": (step(np.zeros(2)), r"episode 1, step 2: .*\(2,\).*\(candidates, features\)"),
    "d changes": (step(np.zeros((3, 4))), "episode 1, step 2: features is 4 but .* has 2; .*same features"),
    "dtype changes": (step(np.zeros((3, 2), "f4")), "episode 1, step 2: dtype is float32 .*astype"),
    "text": (step([["a", "b"]]), TypeError, "episode 1, step 2: contexts .*<U1.*float32 or float64"),
    "half precision": (step(np.zeros((3, 2), "f2")), TypeError, "episode 1, step 2.*float16.*float32 or float64"),
    "not rectangular": (step([[1.0, 2.0], [3.0]]), "episode 1, step 2: .*rectangular.*same features"),
    "no steps": (second(np.empty((0, 3, 2)), []), "episode 1 has no steps; leave it out"),
    "no steps, ragged": (second([], []), "episode 1 has no steps; leave it out"),
    "nowhere candidates": (second(np.empty((5, 0, 2))), "episode 1, step 0: .*no candidates; leave it out"),
    "no features": (second(np.empty((5, 3, 0))), r"episode 1: .*\(5, 3, 0\).*features"),
    "a matrix": (second(np.zeros((5, 2))), r"episode 1: .*\(5, 2\).*\(steps, candidates, features\)"),
    "other d": (second(np.zeros((5, 3, 4))), "episode 1: features is 4 but the first episode has 2; .*same features"),
    "other dtype": (second(np.zeros((5, 3, 2), "f4")), "episode 1: .*float32.*has float64; .*astype"),
    "a number": (second(3.0), TypeError, r"episode 1: .*float.*\(steps, candidates, features\)"),
    "fewer steps": (second(CONTEXTS[:4]), "episode 1: contexts has 4 steps but chosen has 5 entries"),
    "dense and sparse": (episodes([(EYE, [0, 1]), (np.ones((2, 2, 4)), [0, 0])]), "episode 1: .*dense but .* sparse"),
    "sparse and dense steps": (episodes([([EYE, np.ones((2, 4))], [0, 0])]), "step 1: contexts is dense"),
    "sparse, uneven": (episodes([(EYE, [0, 1, 0])]), r"sparse matrix of shape \(4, 4\), for 3 steps"),
    "sparse nan": (episodes([(EYE * np.nan, [0, 1])]), "step 0, candidate 0: feature 0 is nan"),
    "sparse complex": (episodes([(EYE.astype(complex), [0, 1])]), TypeError, "complex128"),
    "empty": (episodes([]), "empty.*at least one"),
    "empty generator": (episodes(iter(())), "empty.*at least one"),
    "None": (episodes(None), TypeError, r"None.*\(contexts, chosen\)"),
    "a log": (episodes(episodes([GOOD])()), TypeError, "BehaviorLog.*use it as it is"),
    "a path": (episodes("log.parquet"), TypeError, r"\(contexts, chosen\), got str"),
    "contexts alone": (episodes(np.zeros((2, 5, 3, 2))), TypeError, r"episode 0: .*\(contexts, chosen\), got ndarray"),
    "one pair": (episodes(GOOD), TypeError, "episode 0: .*pair"),
    "with rewards": (
        episodes([(*GOOD, CHOSEN)]),
        TypeError,
        r"episode 0: .*\(contexts, chosen\).*Rewards do not belong",
    ),
    "warm-up below 0": (extra(warmup=-1), "warmup is -1 .* 3 episodes"),
    "all warm-up": (extra(warmup=3), "warmup is 3 .* 3 episodes; at least one"),
    "half a warm-up": (extra(warmup=1.5), TypeError, "warmup is 1.5; .*whole number"),
    "too few names": (extra(feature_names=["a"]), "feature_names has 1 name.* 2 features"),
    "a name twice": (extra(feature_names=["a", "a"]), "feature_names has 'a' twice; names must differ"),
    "one text of names": (extra(feature_names="ab"), TypeError, "feature_names is 'ab'"),
    "a number of names": (extra(feature_names=2), TypeError, "feature_names"),
    "too few times": (extra(timestamps=np.zeros(14)), r"timestamps .*\(14,\).*\(15,\)"),
    "times by episode": (extra(timestamps=np.zeros((3, 5))), r"timestamps .*\(3, 5\).*\(15,\)"),
    "one id": (extra(step_ids=7), r"step_ids .*\(\).*\(15,\)"),
    "flat, 1-D": (flat(contexts=np.zeros(6)), r"\(6,\).*\(rows, features\)"),
    "flat, no features": (flat(contexts=np.zeros((6, 0))), r"\(6, 0\).*at least one feature"),
    "steps fall": (flat(step_offsets=[0, 4, 2, 6]), r"step_offsets must rise from 0 .*\[2\] is 2, below 4"),
    "steps end early": (flat(step_offsets=[0, 2, 4, 5]), "step_offsets must rise .*6; it runs from 0 to 5"),
    "steps start late": (flat(step_offsets=[1, 2, 4, 6]), "step_offsets must rise from 0 .* from 1 to 6"),
    "a fraction of a row": (
        flat(step_offsets=[0, 2.5, 4, 6]),
        "step_offsets of step 1 is 2.5.*a position among the rows",
    ),
    "steps missing": (flat(step_offsets=[0, 6]), "step_offsets marks 1 step.*3 entries"),
    "flat, empty": (flat(step_offsets=[], chosen=[], episode_offsets=[0]), "empty"),
    "empty step": (flat(step_offsets=[0, 2, 2, 6]), "episode 0, step 1: .*no candidates; leave it out"),
    "empty episode": (flat(episode_offsets=[0, 1, 1, 3]), "episode 1 has no steps; leave it out"),
    "episodes end late": (flat(episode_offsets=[0, 4]), "episode_offsets must rise .*3; it runs from 0 to 4"),
    "flat, choice too large": (flat(chosen=[0, 0, 2]), "episode 1, step 0: chosen is 2 but .* 2 candidates"),
    "unknown arm": (arms([0, 2], n_arms=2), "arm is 2, which is unknown"),
    "arm below 0": (arms([0, -1], n_arms=2), "arm is -1, which is unknown"),
    "not available": (arms([0, 1], available=[[[0], [0]]]), "step 1: arm 1 was chosen but is not among the available"),
    "no such arm": (arms([0, 1], available=[[[0], [7]]]), "available names arm 7"),
    "shape of arms": (arms([0, 1], available=[np.ones(3, bool)]), r"available has shape \(3,\)"),
    "arms of 2 episodes": (arms([0, 1], available=[None, None]), "available has 2 entries"),
    "counts of arms": (arms([0, 1], n_arms=3, arm_names=["a", "b"]), "n_arms says 3, arm_names says 2"),
    "half an arm": (arms([0, 0.5]), "must be a whole number"),
    "too few arms": (arms([0]), "X has 2 steps but arm has 1"),
    "an arm's name twice": (arms([0, 1], feature_names=["a", "a"]), "'a' twice"),
    "no episode of arms": (lambda: BehaviorLog.from_arms([]), "empty"),
    "arms, 1-D": (lambda: BehaviorLog.from_arms([(np.ones(2), [0, 1])]), r"X has shape \(2,\)"),
    "arms, other d": (
        lambda: BehaviorLog.from_arms([(np.ones((2, 2)), [0, 1]), (np.ones((2, 3)), [0, 1])]),
        "episode 1: X has 3 features but the first episode has 2",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_a_log_is_refused_with_value_place_and_remedy(case):
    make, *error, words = CASES[case]
    with pytest.raises(error[0] if error else LogFormatError) as caught:
        make()
    message = str(caught.value)
    assert re.search(words, message), message
    assert "\n" not in message
    # Offsets are no candidates that were chosen.
    assert "chosen" not in message or case != "a fraction of a row"


def test_bad_values_are_found_far_into_a_long_log_and_named_by_feature():
    contexts = np.zeros((40_000, 2, 2))
    contexts[39_000, 1, 1] = np.nan
    with pytest.raises(LogFormatError, match=r"episode 1, step 39000, candidate 1: feature 'age' is nan"):
        BehaviorLog.from_episodes([(contexts[:10], [0] * 10), (contexts, [0] * 40_000)], feature_names=["price", "age"])


def test_sums_that_overflow_are_no_reason_to_refuse_finite_contexts():
    contexts = np.full((5, 3, 2), np.finfo(np.float32).max, dtype=np.float32)
    assert BehaviorLog.from_episodes([(contexts, [0] * 5)]).n_steps == 5


def test_steps_beyond_the_log_have_no_candidates_and_minus_one_is_the_last():
    log = BehaviorLog(**FLAT | {"contexts": np.arange(6.0)[:, None]})
    np.testing.assert_array_equal(log.candidates(-1), log.candidates(2))
    for step in (3, -4, 100):
        with pytest.raises(IndexError, match="the log has steps 0 to 2"):
            log.candidates(step)
