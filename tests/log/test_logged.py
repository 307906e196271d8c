"""What `validate` says of logged propensities: sums, even and certain draws, and choices that were not drawn so."""

import numpy as np
import pytest
from commands import ibcb_command

import ibcb
from ibcb import BehaviorLog
from ibcb.log.validation import LEAKS
from ibcb.log.validation.scan import LoggedScan

EPISODES, STEPS, CANDIDATES = 4, 100, 5
CODES = {f"{which}-propensities" for which in ("certain", "even", "missing")}
CODES |= {"propensity-sums", "propensities-not-drawn", "even-start"}


@pytest.fixture
def drawn(rng):
    """Contexts, probabilities of a softmax over one feature, and choices drawn with them."""
    X = rng.normal(size=(EPISODES, STEPS, CANDIDATES, 2))
    P = np.exp(1.5 * X[..., 0])
    P /= P.sum(axis=-1, keepdims=True)
    chosen = np.array([[rng.choice(CANDIDATES, p=p) for p in episode] for episode in P])
    return X, P, chosen


def found(X, chosen, logged, **options):
    log = BehaviorLog.from_episodes(list(zip(X, chosen, strict=True)), propensities=np.ravel(logged), **options)
    validation = ibcb.validate(log)
    return validation, {each.code: each for each in validation.findings if each.code in CODES}


def test_choices_drawn_with_what_was_logged_give_no_alarm(drawn):
    X, P, chosen = drawn
    validation, codes = found(X, chosen, P)
    assert codes == {}
    assert validation.summary.propensities == EPISODES * STEPS
    assert "logged    propensities of 400 choices" in validation.render()
    # Rounded, and of the chosen ones alone.
    assert found(X, chosen, P.round(4))[1] == {}
    assert found(X, chosen, np.take_along_axis(P, chosen[..., None], axis=-1))[1] == {}
    # A log without them is not asked about them.
    validation = ibcb.validate(BehaviorLog.from_episodes(list(zip(X, chosen, strict=True))))
    assert validation.summary.propensities == 0
    assert "logged " not in validation.render()


def test_sums_are_named_with_the_first_place_and_value(drawn):
    X, P, chosen = drawn
    P[1, 7] *= 0.7
    P[2] = np.minimum(P[2] * 1.5, 1)
    _, codes = found(X, chosen, P)
    finding = codes["propensity-sums"]
    assert (finding.severity, finding.place) == ("warning", "episode 1, step 7")
    assert f"In {np.sum(np.abs(P.sum(axis=-1) - 1) > 0.01)} of 400 steps" in finding.message
    assert "in the first to 0.7." in finding.message
    assert "--drop" in finding.remedy


def test_even_draws_tell_nothing_and_at_the_beginning_are_a_random_start(drawn, rng):
    X, P, _ = drawn
    chosen = rng.integers(CANDIDATES, size=(EPISODES, STEPS))
    even = np.full((EPISODES, STEPS), 1 / CANDIDATES)
    _, codes = found(X, chosen, even.round(3))
    assert codes["even-propensities"].severity == "warning"
    later = np.where(np.arange(EPISODES)[:, None] < 2, even, np.take_along_axis(P, chosen[..., None], axis=-1)[..., 0])
    _, codes = found(X, chosen, later)
    assert set(codes) == {"even-start"}
    assert "first 2 episodes" in codes["even-start"].message
    assert "warmup=2 (--warmup 2)" in codes["even-start"].remedy
    assert found(X, chosen, later, warmup=2)[1] == {}
    assert "warmup=2" in found(X, chosen, later, warmup=1)[1]["even-start"].remedy


def test_certain_choices_and_missing_ones_are_noted(drawn):
    X, P, chosen = drawn
    _, codes = found(X, chosen, np.ones((EPISODES, STEPS)))
    assert set(codes) == {"certain-propensities"}
    some = np.take_along_axis(P, chosen[..., None], axis=-1)[..., 0]
    some[0, :30] = np.nan
    _, codes = found(X, chosen, some)
    assert set(codes) == {"missing-propensities"}
    assert codes["missing-propensities"].message.startswith("30 choices of 400")


@pytest.mark.parametrize("how", ["other candidates", "sharper", "flatter"])
def test_propensities_that_are_not_those_of_the_decider_are_seen(drawn, how):
    X, P, chosen = drawn
    wrong = {"other candidates": np.roll(P, 1, axis=-1), "sharper": P**3, "flatter": P**0.3}[how]
    _, codes = found(X, chosen, wrong / wrong.sum(axis=-1, keepdims=True))
    finding = codes["propensities-not-drawn"]
    assert ("more likely" if how == "flatter" else "less likely") in finding.message


def test_the_deviations_of_draws_are_those_of_chance(rng):
    """Recomputed by drawing choices again and again."""
    P = rng.dirichlet(np.ones(4), size=50)
    P[0] = [1, 0, 0, 0]
    found = []
    for _ in range(300):
        chosen = [rng.choice(4, p=p) for p in P]
        log = BehaviorLog.from_episodes([(np.ones((50, 4, 1)), chosen)], propensities=P.ravel())
        scan = LoggedScan()
        scan.add(0, log, log.propensities, str)
        found.append(scan.deviations)
    assert np.mean(found) == pytest.approx(0, abs=3 / np.sqrt(300))
    assert np.std(found) == pytest.approx(1, abs=0.15)


def test_parts_add_up(drawn):
    X, P, chosen = drawn
    P[2, 3] *= 0.5
    log = BehaviorLog.from_episodes(list(zip(X, chosen, strict=True)), propensities=P.ravel())
    whole, parts = LoggedScan(), LoggedScan()
    for number, episode in enumerate(log):
        whole.add(number, episode, episode.propensities, str)
        for piece in episode.pieces(7 * CANDIDATES):
            parts.add(number, piece, piece.propensities, str)
    assert parts.episodes == whole.episodes
    assert parts.count == whole.count
    assert whole.count["off"] == 1
    assert parts.deviations == pytest.approx(whole.deviations)


@pytest.mark.parametrize("feature, leaks", [("the propensity", True), ("shares", False), ("a constant each", False)])
def test_a_feature_that_is_the_propensity_is_named(drawn, rng, feature, leaks):
    X, P, chosen = drawn
    shares = rng.dirichlet(np.ones(CANDIDATES), size=(EPISODES, STEPS))
    one = np.broadcast_to(np.eye(CANDIDATES)[0], P.shape)
    column = {"the propensity": P, "shares": shares, "a constant each": one}[feature]
    X = np.concatenate([X, column[..., None]], axis=-1)
    log = BehaviorLog.from_episodes(list(zip(X, chosen, strict=True)), feature_names=["a", "b", "p"])
    leaking = [note for note in ibcb.validate(log).notes if note.code in LEAKS]
    assert [(note.code, note.severity, note.figures["features"]) for note in leaking] == [
        ("propensity-feature", "warning", ("p",))
    ] * leaks
    assert all("--column propensity=p" in note.text for note in leaking)


def test_the_command_names_what_is_wrong(drawn, tmp_path):
    X, P, chosen = drawn
    P[3, 9] = np.minimum(1.4 * P[3, 9], 1)
    log = BehaviorLog.from_episodes(list(zip(X, chosen, strict=True)), propensities=P.ravel())
    ibcb.write_log(log, tmp_path / "log.csv")
    result = ibcb_command("validate", tmp_path / "log.csv", "--strict")
    assert result.exit_code == 1
    assert "warning: propensity-sums, episode 3, step 9" in result.stdout
    assert f"{P[3, 9].sum():.4g}" in result.stdout
    assert "propensity-sums" not in ibcb_command("validate", tmp_path / "log.csv", "--drop", "propensity").stdout
