"""What is refused, and how the refusal helps; what is degenerate but legal, and stays finite."""

import re
from itertools import cycle, product

import numpy as np
import pytest
from conftest import slow

import ibcb
from ibcb import (
    IBCB,
    SBTS,
    SBUCB,
    BaseSVC,
    BehaviorLog,
    EGreedy,
    FixedPolicy,
    InfeasibleError,
    Softmax,
    TopK,
)

SOLVERS = ("auto", "hard", "soft", "robust", "paper")
EXPERTS = ("sbucb", "sbts")

# Most logs here are made up of random choices, which no novice would have made; IBCB says so.
random_start = pytest.mark.filterwarnings("ignore:the (log seems to start|choices of the first episode):UserWarning")


def pairs(n=3, steps=5, candidates=3, d=2, seed=0):
    """Good episodes, as lists that a test can spoil."""
    rng = np.random.default_rng(seed)
    return [[rng.normal(size=(steps, candidates, d)), rng.integers(candidates, size=steps)] for _ in range(n)]


def good_log(n=3, **sizes):
    return BehaviorLog.from_episodes(pairs(n, **sizes))


def assert_refused(call, error, *words):
    """``call`` raises ``error``, and its message holds every one of ``words`` (regular expressions)."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    missing = [word for word in words if not re.search(word, message)]
    assert not missing, f"{missing} not in: {message}"


def named(*cases):
    """Parametrise over (id, *values)."""
    return [pytest.param(*values, id=name) for name, *values in cases]


def in_turn(cases, *entries):
    """Every case once, each with the next of the entries: all of these meet some case, and no product is made."""
    cases = [case if hasattr(case, "values") else pytest.param(*case) for case in cases]
    turns = cycle(product(*entries))
    assert len(cases) >= len(list(product(*entries)))
    return [pytest.param(*next(turns), *case.values, id=case.id, marks=case.marks) for case in cases]


# -- IBCB: parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, name, value, error",
    in_turn(
        [("alpha", value, ValueError) for value in (0, -1.0, np.nan, np.inf)]
        + [("alpha", value, TypeError) for value in ("1", None, True, [1.0])]
        + [("l2", 0, ValueError), ("margin", np.nan, ValueError), ("penalty", -1.0, ValueError)]
        + [("bend", np.inf, ValueError), ("l2", "1", TypeError), ("l2", 10**400, ValueError)],
        ["fit", "partial_fit"],
    ),
)
def test_numbers_that_make_no_sense_are_refused(method, name, value, error):
    model, log = IBCB(**{name: value}), good_log()[0 if method == "partial_fit" else slice(None)]
    remedy = "above 0" if error is ValueError else "must be a number"
    assert_refused(lambda: getattr(model, method)(log), error, re.escape(f"{name}={value!r}"[:50]), remedy)


@pytest.mark.parametrize("name", ["alpha", "l2", "top_k", "n_jobs"])
def test_numbers_longer_than_python_writes_are_refused_by_their_length(name):
    model = IBCB(expert="topk", **{"top_k": 2, name: 10**5000})
    assert_refused(lambda: model.fit(good_log()), ValueError, f"{name}=a number of 5001 digits must be")


@pytest.mark.parametrize(
    "method, name, known, value",
    in_turn(
        [("expert", EXPERTS, value) for value in ("linucb", "SBUCB", "", None, 3)]
        + [("solver", SOLVERS, value) for value in ("osqp", None)],
        ["fit", "partial_fit"],
    ),
)
def test_unknown_experts_and_solvers_are_refused_with_the_known_ones(method, name, known, value):
    model = IBCB(**{name: value})
    assert_refused(lambda: getattr(model, method)(good_log()[0]), ValueError, f"{name}={value!r}", *map(repr, known))


@pytest.mark.parametrize(
    "prior, words",
    named(
        ("other d", np.eye(3), [r"\(3, 3\)", r"\(2, 2\)"]),
        ("a vector", np.ones(2), [r"\(2,\)", r"\(2, 2\)"]),
        ("nan", np.diag([1, np.nan]), ["finite"]),
        ("asymmetric", np.array([[1.0, 2.0], [0.0, 1.0]]), ["symmetric", "S'S"]),
        ("negative", -np.eye(2), ["negative eigenvalue", "S'S"]),
        ("text", "identity", ["identity"]),
    ),
)
def test_bad_prior_grams_are_refused(prior, words):
    assert_refused(lambda: IBCB(prior_gram=prior).fit(good_log()), (ValueError, TypeError), "prior_gram", *words)


# -- IBCB: logs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator, thing",
    in_turn(
        named(
            ("None", None),
            ("path", "log.parquet"),
            ("pairs", pairs()),
            ("array", np.zeros((2, 5, 3, 2))),
            ("class", BehaviorLog),
        ),
        [IBCB(), BaseSVC()],
    ),
)
def test_what_is_not_a_log_is_refused(estimator, thing):
    remedy = [re.escape(type(thing).__name__), "from_episodes", "read_log"]
    assert_refused(lambda: estimator.fit(thing), TypeError, "BehaviorLog", *remedy)
    assert_refused(lambda: estimator.score(thing), TypeError, "BehaviorLog", *remedy)


def test_partial_fit_refuses_what_is_not_a_log():
    assert_refused(lambda: IBCB().partial_fit(pairs()[0]), TypeError, "BehaviorLog", "list", "from_episodes")


@random_start
@pytest.mark.parametrize("solver", SOLVERS)
def test_fit_on_one_episode_says_that_there_is_nothing_to_learn_from_but_partial_fit_takes_it(solver):
    log = good_log(n=1)
    remedies = ["one episode", "two episodes", "warm-up", "prior_gram", "partial_fit"]
    assert_refused(lambda: IBCB(solver=solver).fit(log), ValueError, *remedies)
    model = IBCB(solver=solver).partial_fit(log)
    np.testing.assert_array_equal(model.coef_, 0)
    np.testing.assert_array_equal(model.policy_coefs_, np.zeros((1, 2)))


def test_one_episode_is_enough_after_a_warmup_or_a_prior_gram():
    log = BehaviorLog.from_episodes(pairs(n=2), warmup=1)
    assert np.isfinite(IBCB().fit(log).coef_).all()
    assert np.isfinite(IBCB(prior_gram=np.eye(2)).fit(good_log(n=1)).coef_).all()


@random_start
def test_partial_fit_refuses_what_it_cannot_continue_with():
    log = good_log()
    model = IBCB(solver="robust")
    assert_refused(lambda: model.partial_fit(log), ValueError, "exactly one episode", "3", "for episode in log")
    model.partial_fit(log[0])
    warm = BehaviorLog.from_episodes(pairs(n=2), warmup=1)
    assert_refused(lambda: model.partial_fit(warm), ValueError, "warm-up", "before")
    assert_refused(lambda: model.partial_fit(good_log(n=1, d=4)), ValueError, "4 features", "fitted on 2")
    full = IBCB(incremental=False)
    assert_refused(lambda: full.partial_fit(log[0]), ValueError, "incremental=True", "use fit")


@random_start
def test_partial_fit_refuses_features_in_another_order():
    one, other = (BehaviorLog.from_episodes(pairs(n=1), feature_names=names) for names in (["a", "b"], ["b", "a"]))
    model = IBCB(solver="robust").partial_fit(one)
    assert_refused(lambda: model.partial_fit(other), ValueError, "feature 0 is 'b'", "'a'", "order")


@random_start
@pytest.mark.parametrize("bad", [good_log(n=1, d=4), good_log(n=2), None], ids=["d", "two episodes", "no log"])
def test_a_refused_episode_leaves_the_model_as_it_was(bad):
    log = good_log()
    model, other = (IBCB(solver="robust").partial_fit(log[0]) for _ in range(2))
    with pytest.raises((ValueError, TypeError)):
        model.partial_fit(bad)
    np.testing.assert_array_equal(model.partial_fit(log[1]).coef_, other.partial_fit(log[1]).coef_)


def test_an_unsolvable_episode_leaves_the_model_as_it_was():
    log = decided_log(ordinary_sets(), "sbucb")
    rng = np.random.default_rng(1)
    nonsense = BehaviorLog.from_episodes([(rng.normal(size=(40, 4, 3)), rng.integers(4, size=40))])
    model, other = (IBCB(solver="hard").fit(log[:3]) for _ in range(2))
    with pytest.raises(InfeasibleError, match='solver="robust"'):
        model.partial_fit(nonsense)
    assert len(model.policy_coefs_) == 3
    np.testing.assert_array_equal(model.partial_fit(log[3]).coef_, other.partial_fit(log[3]).coef_)


@random_start
def test_a_refused_log_leaves_an_earlier_fit_as_it_was():
    model = IBCB().fit(good_log())
    before = model.coef_
    with pytest.raises(ValueError, match="one episode"):
        model.fit(good_log(n=1, d=5))
    np.testing.assert_array_equal(model.coef_, before)
    assert model.predict(np.zeros((3, 2))) == 0


# -- predict -------------------------------------------------------------------------------------------------------


def fit_named(estimator):
    log = BehaviorLog.from_episodes(pairs(n=4), warmup=1, feature_names=["a", "b"])
    return estimator().fit(log)


@pytest.mark.parametrize("estimator", [IBCB, BaseSVC])
@pytest.mark.parametrize("method", ["predict", "decision_function", "score"])
def test_nothing_is_predicted_before_fit(estimator, method):
    name = estimator.__name__
    assert_refused(lambda: getattr(estimator(), method)(good_log()), ValueError, name, "not fitted yet", "'fit'")


BAD_CANDIDATES = named(
    ("log of other d", good_log(d=4), ValueError, ["4 features", "fitted on 2", "features of the log"]),
    ("set of other d", np.zeros((3, 4)), ValueError, ["4 features", "fitted on 2", "features of the log"]),
    ("nan", [[0.0, 1.0], [np.nan, 2.0]], ValueError, [r"\[1, 0\] is nan", "finite"]),
    ("inf", np.full((2, 3, 2), np.inf), ValueError, [r"\[0, 0, 0\] is inf", "finite"]),
    ("one candidate in 1-D", np.zeros(2), TypeError, [r"\(2,\)", r"\(candidates, features\)"]),
    ("no candidates", np.zeros((0, 2)), TypeError, [r"\(0, 2\)", r"\(candidates, features\)"]),
    ("text", [["a", "b"]], TypeError, ["<U1", "numbers"]),
    ("None", None, TypeError, ["NoneType", "BehaviorLog"]),
    ("a path", "log.parquet", TypeError, ["str", "BehaviorLog"]),
)


@pytest.mark.parametrize(
    "estimator, method, candidates, error, words",
    in_turn(BAD_CANDIDATES, [IBCB, BaseSVC], ["predict", "decision_function"]),
)
def test_bad_candidates_are_refused(estimator, method, candidates, error, words):
    model = fit_named(estimator)
    assert_refused(lambda: getattr(model, method)(candidates), error, *words)


@pytest.mark.parametrize("estimator", [IBCB, BaseSVC])
def test_features_in_another_order_are_refused(estimator):
    fitted = fit_named(estimator)
    log = BehaviorLog.from_episodes(pairs(), feature_names=["b", "a"])
    assert_refused(lambda: fitted.predict(log), ValueError, "feature 0 is 'b'", "fitted with 'a'", "order")


@pytest.mark.parametrize("estimator", [IBCB, BaseSVC])
def test_one_set_gives_an_int_and_several_an_array(estimator):
    fitted = fit_named(estimator)
    sets = np.random.default_rng(5).normal(size=(6, 3, 2))
    chosen = fitted.predict(sets)
    assert chosen.shape == (6,)
    for candidates, pick in zip(sets, chosen, strict=True):
        assert fitted.predict(candidates) == fitted.predict(candidates.tolist()) == pick
        assert isinstance(fitted.predict(candidates), int)


def test_behaviour_cloning_refuses_a_log_without_alternatives():
    log = good_log(candidates=1)
    assert_refused(lambda: BaseSVC().fit(log), ValueError, "every step", "one candidate")


# -- experts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, words",
    named(
        ("alpha negative", lambda: SBUCB(3, alpha=-0.1), ["alpha=-0.1", "at least 0"]),
        ("alpha nan", lambda: SBTS(3, alpha=np.nan), ["alpha=nan", "at least 0|finite"]),
        ("alpha text", lambda: SBUCB(3, alpha="1"), ["alpha='1'", "number"]),
        ("l2 zero", lambda: SBTS(3, l2=0), ["l2=0", "above 0"]),
        ("l2 infinite", lambda: SBUCB(3, l2=np.inf), ["l2=inf", "finite"]),
        ("l2 None", lambda: SBTS(3, l2=None), ["l2=None", "number"]),
        ("no features", lambda: SBUCB(0), ["n_features=0", "at least 1"]),
        ("fractional d", lambda: SBTS(2.5), ["n_features=2.5", "whole"]),
        ("draws", lambda: SBTS(3, draws="batch"), ["draws='batch'", "'step'", "'episode'"]),
        ("k zero", lambda: TopK(SBUCB(3), 0), ["k=0", "at least 1"]),
        ("k fractional", lambda: TopK(SBUCB(3), 1.5), ["k=1.5", "whole"]),
        ("k text", lambda: TopK(SBUCB(3), "two"), ["k='two'", "whole|number"]),
        ("temperature zero", lambda: TopK(SBUCB(3), 2, temperature=0), ["temperature=0", "divided"]),
        ("around a name", lambda: TopK("sbucb", 2), ["sbucb", "SBUCB"]),
        ("epsilon above 1", lambda: EGreedy(3, epsilon=1.5), ["epsilon=1.5", "at most 1"]),
        ("epsilon below 0", lambda: EGreedy(3, epsilon=-0.1), ["epsilon=-0.1", "at least 0"]),
        ("epsilon text", lambda: FixedPolicy([1.0], epsilon="few"), ["epsilon='few'", "number"]),
        ("decay below 0", lambda: EGreedy(3, decay=-1), ["decay=-1", "at least 0"]),
        ("updates fractional", lambda: EGreedy(3, n_updates=0.5), ["n_updates=0.5", "whole"]),
        ("temperature 0", lambda: Softmax(3, temperature=0), ["temperature=0", "above 0"]),
        ("temperature nan", lambda: FixedPolicy([1.0], temperature=np.nan), ["temperature=nan", "finite"]),
        ("weights nan", lambda: FixedPolicy([1.0, np.nan]), ["coef", "nan", "finite"]),
        ("weights in 2-D", lambda: FixedPolicy(np.eye(2)), ["coef", r"\(2, 2\)"]),
        ("no weights", lambda: FixedPolicy([]), ["coef", r"\(0,\)"]),
    ),
)
def test_policies_refuse_bad_parameters(make, words):
    assert_refused(make, (ValueError, TypeError), *words)


def experts(d=3):
    return {
        "SBUCB": SBUCB(d),
        "SBTS": SBTS(d, random_state=0),
        "TopK": TopK(SBUCB(d), 2, random_state=0),
        "EGreedy": EGreedy(d, random_state=0),
        "Softmax": Softmax(d, random_state=0),
    }


@pytest.mark.parametrize(
    "name, candidates, words",
    in_turn(
        named(
            ("other d", np.zeros((4, 6)), ["6", "3 features|features.*3|, 3"]),
            ("batch of other d", np.zeros((5, 4, 2)), ["2", "3 features|features.*3|, 3"]),
            ("none", np.zeros((0, 3)), ["no candidate|at least one|empty|0"]),
            ("nan", np.full((4, 3), np.nan), ["nan", "finite"]),
            ("text", [["a", "b", "c"]], ["<U1|str|text", "numbers|float"]),
        ),
        experts(),
    ),
)
def test_experts_refuse_bad_candidates(name, candidates, words):
    expert = experts()[name]
    for ask in (expert.act, lambda given: expert.act(given, explore=False), expert.propensities):
        assert_refused(lambda ask=ask: ask(candidates), (ValueError, TypeError), *words)


@pytest.mark.parametrize(
    "name, contexts, rewards, words",
    in_turn(
        named(
            ("other d", np.zeros((5, 2)), np.zeros(5), [r"\(5, 2\)", r"\(B, 3\)"]),
            ("too few rewards", np.zeros((5, 3)), np.zeros(4), [r"\(4,\)", r"\(B,\)"]),
            ("a column of rewards", np.zeros((5, 3)), np.zeros((5, 1)), [r"\(5, 1\)", r"\(B,\)"]),
            ("nan context", np.full((5, 3), np.nan), np.zeros(5), ["contexts", "nan", "finite"]),
            ("nan reward", np.ones((5, 3)), [0, 1, np.nan, 0, 1], ["reward", "nan", "finite"]),
        ),
        experts(),
    ),
)
def test_experts_refuse_bad_batches_and_stay_usable(name, contexts, rewards, words):
    expert = experts()[name]
    expert.update(np.eye(3), [1.0, 0.0, 0.0])
    before = expert.coef_.copy()
    assert_refused(lambda: expert.update(contexts, rewards), (ValueError, TypeError), *words)
    np.testing.assert_array_equal(expert.coef_, before)
    expert.update(np.eye(3), [1.0, 0.0, 0.0])
    assert np.isfinite(expert.coef_).all()


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e5])
def test_an_expert_that_saw_one_context_has_the_closed_form(scale):
    for seed in range(20):
        s = scale * np.random.default_rng(seed).normal(size=3)
        expert = SBUCB(3, l2=1.0)
        expert.update(s[None], [1.0])
        expected = s / (1 + s @ s)
        assert np.linalg.norm(expert.coef_ - expected) <= 0.05 * np.linalg.norm(expected)


# -- simulate ------------------------------------------------------------------------------------------------------

TINY = {"n_episodes": 2, "batch_size": 5, "warmup": 5, "n_features": 3, "n_candidates": 3}


@pytest.mark.parametrize(
    "settings, words",
    named(
        ("environment", {"environment": "movies"}, ["environment='movies'", "'synthetic'"]),
        ("expert", {"expert": "linucb"}, ["expert='linucb'", "'sbucb'", "'sbts'"]),
        ("typo", {"n_episode": 3}, ["'n_episode'", "n_episodes"]),
        ("no episodes", {"n_episodes": 0}, ["n_episodes=0", "at least 1"]),
        ("no features", {"n_features": -1}, ["n_features=-1", "at least 1"]),
        ("warm-up negative", {"warmup": -1}, ["warmup=-1", "0 steps or more"]),
        ("noise negative", {"noise": -0.1}, ["noise=-0.1", "at least 0"]),
        ("noise infinite", {"noise": np.inf}, ["noise=inf", "finite"]),
        ("ood nan", {"ood_mean": np.nan}, ["ood_mean=nan", "finite"]),
        ("dup", {"dup": 2}, ["dup=2", "between 0 and 1"]),
        ("seed negative", {"seed": -1}, ["seed=-1", "0 or above"]),
        ("seed None", {"seed": None}, ["seed=None", "whole number"]),
        ("top_k", {"top_k": 0}, ["k=0", "at least 1"]),
        ("alpha", {"alpha": -1.0}, [r"alpha=-1\.0", "at least 0"]),
        ("l2", {"l2": 0.0}, [r"l2=0\.0", "above 0"]),
        ("draws", {"expert": "sbts", "draws": "batch"}, ["draws='batch'", "'step'", "'episode'"]),
        ("draws of sbucb", {"expert": "sbucb", "draws": "batch"}, ["draws='batch'", "'step'", "'episode'"]),
    ),
)
def test_simulate_refuses_bad_settings(settings, words):
    assert_refused(lambda: ibcb.simulate(**{**TINY, **settings}), (ValueError, TypeError), *words)


# -- degenerate but legal ------------------------------------------------------------------------------------------


def ordinary_sets(n=4, steps=12, candidates=4, d=3, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return [[scale * rng.normal(size=(candidates, d)) for _ in range(steps)] for _ in range(n)]


def degenerate_sets():
    ordinary = ordinary_sets()
    rng = np.random.default_rng(7)
    return {
        "ordinary": ordinary,
        "all contexts equal": [[np.ones((4, 3)) for _ in steps] for steps in ordinary],
        "all contexts equal 1e12": [[np.full((4, 3), 1e12) for _ in steps] for steps in ordinary],
        "all contexts zero": [[np.zeros((4, 3)) for _ in steps] for steps in ordinary],
        "size 1e12": ordinary_sets(scale=1e12),
        "size 1e-12": ordinary_sets(scale=1e-12),
        "sizes 1e12 and 1e-12 mixed": [[rows * [1e12, 1.0, 1e-12] for rows in steps] for steps in ordinary],
        "some steps single": [[rows[: 1 + i % 3] for i, rows in enumerate(steps)] for steps in ordinary],
        "one episode single": [[rows[:1] if n == 2 else rows for rows in ordinary[n]] for n in range(4)],
        "all steps single": [[rows[:1] for rows in steps] for steps in ordinary],
        "candidates twice": [[np.repeat(rows[:2], 2, axis=0) for rows in steps] for steps in ordinary],
        "chosen twice by rounding": [[np.vstack([rows, rows * (1 + 1e-15)]) for rows in steps] for steps in ordinary],
        "constant feature": [[np.c_[np.ones(4), rows[:, 1:]] for rows in steps] for steps in ordinary],
        "zero feature": [[rows * [1, 0, 1] for rows in steps] for steps in ordinary],
        "collinear": [[np.outer(rows[:, 0], [1, 2, 3]) for rows in steps] for steps in ordinary],
        "one feature": [[rows[:, :1] for rows in steps] for steps in ordinary],
        "constant within steps": [[np.tile(rng.normal(size=3), (4, 1)) for _ in steps] for steps in ordinary],
        "two episodes of one step": [steps[:1] for steps in ordinary[:2]],
        "more features than steps": ordinary_sets(n=3, steps=2, d=8),
    }


def decided_log(sets, expert, dtype=np.float64):
    """The log of a real decider with l2 = 1, alpha = 1 and noise-free linear rewards, so SBUCB rows are feasible."""
    d = sets[0][0].shape[1]
    decider = SBUCB(d, alpha=1.0, l2=1.0) if expert == "sbucb" else SBTS(d, alpha=1.0, l2=1.0, random_state=0)
    weights = np.linspace(1, -1, d) / (max(np.abs(rows).max() for rows in sets[0]) or 1)
    episodes = []
    for steps in sets:
        steps = [rows.astype(dtype).astype(np.float64) for rows in steps]
        try:
            picks = [decider.act(rows) for rows in steps]
            chosen = np.array([rows[pick] for rows, pick in zip(steps, picks, strict=True)])
            decider.update(chosen, chosen @ weights)
        except ValueError:
            picks = [0] * len(steps)
        episodes.append(([rows.astype(dtype) for rows in steps], picks))
    return BehaviorLog.from_episodes(episodes)


#: beside which l2 vanishes
SINGULAR = "all contexts equal 1e12"
#: that leave nothing to contradict
AGREEABLE = (
    "all contexts equal",
    "all contexts zero",
    "all steps single",
    "constant within steps",
    "two episodes of one step",
)


def assert_finite_or_refused(model, case, log):
    """Refused for a singular Psi, or for draws that contradict each other where every row must hold; else fitted."""
    if case == SINGULAR and model.l2 != "auto":
        # In units of the features l2 vanishes beside nothing.
        assert_refused(lambda: model.fit(log), ValueError, "singular", "Rescale the contexts", "raise l2")
        return
    if (model.expert, model.solver) == ("sbts", "hard") and case not in AGREEABLE:
        assert_refused(lambda: model.fit(log), InfeasibleError, "no theta explains", 'solver="robust"')
        return
    model.fit(log)
    for name in ("coef_", "intercept_", "policy_coefs_", "next_policy_coef_"):
        assert np.isfinite(getattr(model, name)).all(), name
    assert np.isfinite(model.policy_interval().estimate).all()
    assert np.isfinite(model.reward_interval().estimate).all()
    assert model.policy_coefs_.shape == (len(log), log.n_features)
    for entry in model.diagnostics_:
        assert np.isfinite([entry.gap, entry.max_violation]).all()
    assert np.isfinite(model.decision_function(log)).all()
    chosen = model.predict(log)
    assert ((chosen >= 0) & (chosen < np.diff(log.step_offsets))).all()
    assert 0 <= model.score(log) <= 1


@random_start
@pytest.mark.parametrize(
    "solver, incremental, expert, case, l2",
    [
        # Every log with either l2 once, in turns that meet every solver with both.
        (slow if number // 2 % 2 != place else pytest.param)(*given.values, l2)
        for number, given in enumerate(in_turn(product(EXPERTS, degenerate_sets()), SOLVERS, [True, False]))
        for place, l2 in enumerate([1.0, "auto"])
    ],
)
def test_degenerate_logs_give_finite_results_or_a_clear_refusal(solver, incremental, expert, case, l2):
    log = decided_log(degenerate_sets()[case], expert)
    assert_finite_or_refused(IBCB(expert=expert, solver=solver, incremental=incremental, l2=l2), case, log)


@pytest.mark.parametrize(
    "incremental, seed", in_turn([(slow if seed > 3 else pytest.param)(seed) for seed in range(8)], [True, False])
)
def test_the_exact_solver_solves_every_log_that_has_a_solution(seed, incremental):
    log = decided_log(ordinary_sets(seed=seed), "sbucb")
    model = IBCB(solver="hard", incremental=incremental).fit(log)
    assert all(entry.violated == 0 for entry in model.diagnostics_)


@random_start
@pytest.mark.parametrize("expert", EXPERTS)
@pytest.mark.parametrize("solver", ["auto", "soft", "robust"])
def test_single_candidate_steps_feed_the_gram_matrix_and_give_no_row(solver, expert):
    sets = ordinary_sets()
    singles = [np.random.default_rng(3).normal(size=(1, 3)) for _ in range(9)]
    plain, mixed = ([(steps, [0] * len(steps)) for steps in part] for part in (sets, [sets[0] + singles, *sets[1:]]))
    gram = sum(np.outer(row[0], row[0]) for row in singles)
    given = {"expert": expert, "solver": solver, "l2": 1.0, "forecast": None}
    informed = IBCB(**given).fit(BehaviorLog.from_episodes(mixed, warmup=1))
    # The same log with the singles' Gram matrix known before episode 1, the first that gives rows.
    rest = BehaviorLog.from_episodes(plain)[1:]
    first = sum(np.outer(rows[0], rows[0]) for rows in sets[0])
    told = IBCB(**given, prior_gram=gram + first).fit(rest)
    np.testing.assert_allclose(informed.coef_, told.coef_, rtol=1e-6, atol=1e-9)
