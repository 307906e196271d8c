"""Altered model files, with a digest that fits: refused by name when they are loaded, or models that work."""

import numpy as np
import pytest
from altered_models import GOOD, NAMES, outcome, stored, write

import ibcb
from ibcb.estimators.models import ModelFileError, read_model_file
from ibcb.estimators.reduction import Reduction
from ibcb.tracking import Interval

# What it warns of is not looked at here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("altered")


def assert_refused_or_sound(name, folder, seeds):
    found = [outcome(name, folder, seed) for seed in seeds]
    assert [each for each in found if each not in GOOD] == []
    return found


@pytest.mark.parametrize("name", NAMES)
def test_altered_files_are_refused_or_work(name, folder):
    found = assert_refused_or_sound(name, folder, range(8 if name in ("wide", "choosing", "fitting") else 25))
    assert "refused" in found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_altered_files_are_refused_or_work(name, folder):
    assert_refused_or_sound(name, folder, range(100_000, 100_000 + (300 if name == "wide" else 2000)))


def rewritten(path, change):
    arrays, meta = read_model_file(path)
    change(meta)
    write(path, arrays, meta)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        # 10^30 products of three features: nothing waits for them
        (lambda made: made.update(crosses=[[[0, 1, 2] * 10] * 20]), "products"),
        (lambda made: made["columns"][0].update(name=None), "not a name"),
        (lambda made: made["columns"][0].update(name="another"), "not those that its recipe makes"),
        (lambda made: made["columns"][1].update(categories="ab"), "not a list"),
        (lambda made: made["columns"][0].update(fill=float("nan")), "not finite"),
    ],
)
def test_an_altered_recipe_is_refused(folder, change, words):
    stored("prepared", folder)
    path = folder / "recipe.safetensors"
    path.write_bytes((folder / "prepared.safetensors").read_bytes())
    rewritten(path, lambda meta: change(meta["state"]["preparation"]))
    with pytest.raises(ModelFileError, match=words):
        ibcb.load_model(path)


def test_bounds_that_are_not_known_of_all_other_features_leave_the_kept_ones_theirs():
    """Of very many features, those tracked one by one have their own bounds."""
    reduction = Reduction(np.array([1]), np.array([2.0, 0.0, -1.0]))
    bounds = Interval(np.array([3.0, 0.5]), np.array([2.0, -np.inf]), np.array([4.0, np.inf]))
    estimate, lower, upper = reduction.expanded_interval(bounds)
    np.testing.assert_array_equal(estimate, [1.0, 3.0, -0.5])
    np.testing.assert_array_equal(lower, [-np.inf, 2.0, -np.inf])
    np.testing.assert_array_equal(upper, [np.inf, 4.0, np.inf])


@pytest.mark.parametrize("name", ["unit", "within"])
def test_moments_whose_sums_overflow_are_refused(folder, name):
    stored("sbts", folder)
    arrays, meta = read_model_file(folder / "sbts.safetensors")
    arrays = {key: array.copy() for key, array in arrays.items()}
    arrays[f"fit.track.now.{name}"][1, 1] = 1.7e308
    path = folder / "moments.safetensors"
    write(path, arrays, meta)
    with pytest.raises(ModelFileError, match=rf"{name} has numbers beyond 1e\+300"):
        ibcb.load_model(path)


@pytest.mark.parametrize("mistake", [IndexError, AttributeError, KeyError, TypeError])
@pytest.mark.parametrize(
    "place", ["ibcb.estimators.state._array", "ibcb.tracking.Track.check", "ibcb.estimators.ibcb.IBCB._adopt"]
)
def test_a_mistake_of_our_own_is_not_reported_as_damage(folder, monkeypatch, place, mistake):
    def wrong(*args, **kwargs):
        raise mistake("planted")

    stored("sbucb", folder)
    monkeypatch.setattr(place, wrong)
    with pytest.raises(mistake, match="planted"):
        ibcb.load_model(folder / "sbucb.safetensors")
