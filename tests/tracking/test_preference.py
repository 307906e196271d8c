"""Which model is believed, and how far: what evidence and predicted choices make of it."""

from types import SimpleNamespace

import numpy as np
import pytest

from ibcb.deciders import KINDS
from ibcb.numerics.ridge import ridge
from ibcb.tracking.forecast import expected_choices, projects
from ibcb.tracking.preference import preferred


@pytest.mark.parametrize(
    ("behind", "lead", "believed"),
    [
        (20.0, 400, 1),
        # However many choices it predicted: it is far less likely.
        (40.0, 400, 0),
        # No more choices than luck explains.
        (20.0, 30, 0),
    ],
)
def test_a_less_likely_model_that_predicts_more_is_believed(behind, lead, believed):
    models = SimpleNamespace(kind=KINDS["sbucb"], by_family=lambda values: [values])
    hits = np.array([500, 500 + lead])
    now = SimpleNamespace(compared=1000, evidence=np.array([0.0, -behind]), hits=hits, apart=np.diag([400, 0])[::-1])
    assert preferred(models, now, 5) == believed


@pytest.mark.parametrize(("missed", "projected"), [(70, True), (80, False)])
def test_a_learner_is_projected_where_it_is_spared_a_quarter_of_the_errors_of_a_walk(missed, projected):
    families = [SimpleNamespace(learns=False), SimpleNamespace(learns=True)]
    models = SimpleNamespace(
        motions=families,
        by_family=lambda values: [values[:1], values[1:]],
        model_at=lambda place: SimpleNamespace(family=place),
    )
    now = SimpleNamespace(compared=1000, hits=np.array([900, 1000 - missed]), best=1)
    assert projects(SimpleNamespace(seen=now, kind=KINDS["sbucb"], models=models)) == projected


def test_what_a_sampler_is_expected_to_choose_is_averaged_over_its_draws(rng):
    """Against draws of its own, step by step: a choice in twenty apart at most."""
    X, before, p = rng.normal(size=(50, 4, 3)), ridge(10.0 * np.eye(3), 0.3), np.array([0.3, -0.2, 0.1])
    sample = SimpleNamespace(contexts=X.reshape(-1, 3), counts=np.full(50, 4))
    drawn = rng.multivariate_normal(p, np.linalg.inv(before.psi), size=4000)
    best = (X @ drawn.T).argmax(axis=1)
    often = np.stack([np.mean(best == place, axis=1) for place in range(4)], axis=1)
    expected = expected_choices(KINDS["sbts"], sample, before, p, np.zeros(0)).reshape(50, 4)
    assert np.abs(expected - often).sum(axis=1).mean() / 2 < 0.05
