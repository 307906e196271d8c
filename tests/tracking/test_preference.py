"""Which model is believed, and how far: what evidence and predicted choices make of it."""

from types import SimpleNamespace

import numpy as np
import pytest

from ibcb.deciders import KINDS
from ibcb.tracking.forecast import projects
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
