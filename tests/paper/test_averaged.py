"""Averaging: one model per episode, the mean of their parameters."""

import numpy as np
import pytest
from conftest import small_run
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from ibcb import IBCB, BaseSVC, metrics
from ibcb.estimators.choice_model import ChoiceModel
from ibcb.paper.rivals import BICB, BIRL, Averaged

MODELS = [
    BaseSVC(),
    ChoiceModel(),
    BIRL(burn_in=20, n_samples=5, random_state=3),
    BICB(sample=0.1, n_iterations=2, n_sweeps=10, n_dropped=5, random_state=3),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_parameters_are_the_mean_over_episodes_alone(model):
    log = small_run().log
    averaged = Averaged(model).fit(log)
    alone = [clone(model).fit(log[number]) for number in range(len(log))]
    np.testing.assert_array_equal(averaged.coef_, np.mean([each.coef_ for each in alone], axis=0))
    np.testing.assert_array_equal(averaged.next_policy_coef_, averaged.coef_)
    assert len(averaged.estimators_) == 6
    with pytest.raises(NotFittedError):
        model.predict(log)
    np.testing.assert_array_equal(averaged.predict(log), (log.contexts @ averaged.coef_).reshape(-1, 7).argmax(axis=1))


def test_it_is_a_scikit_learn_estimator():
    model = clone(Averaged(ChoiceModel(ridge=0.1)))
    assert model.get_params()["estimator__ridge"] == 0.1
    assert model.set_params(estimator__ridge=0.2).estimator.ridge == 0.2


def test_whether_it_learns_rewards_is_the_estimators_matter():
    run = small_run()
    with pytest.raises(ValueError, match="OL-Fitness is undefined for Averaged"):
        metrics.ol_fitness(Averaged(BaseSVC()).fit(run.log), run)
    assert 0 < metrics.ol_fitness(Averaged(ChoiceModel()).fit(run.log), run) <= 1


def test_errors_name_the_episode():
    log = small_run().log
    with pytest.raises(ValueError, match=r"episode 0 alone: sample=0.01 of 120 steps leaves 1"):
        Averaged(BICB(sample=0.01)).fit(log)
    # The first episode comes with the warm-up; the next has nothing before it.
    with pytest.raises(ValueError, match="episode 1 alone: the log has one episode and nothing before it"):
        Averaged(IBCB(solver="soft")).fit(log)


@pytest.mark.parametrize("wrong, says", [(None, "a NoneType"), (ChoiceModel, "the class ChoiceModel")])
def test_only_imitators_can_be_averaged(wrong, says):
    with pytest.raises(TypeError, match=f"estimator is {says}; give an unfitted imitator such as BaseSVC"):
        Averaged(wrong).fit(small_run().log)
