"""The policy of every episode by the whole log."""

import numpy as np
import pytest
from conftest import small_run

import ibcb
from ibcb.tracking import propensities


@pytest.mark.parametrize("expert", ["sbucb", "sbts", "egreedy", "softmax", "other"])
def test_of_the_last_episode_nothing_more_is_known_than_was_tracked(expert):
    """Where several models are believed, by the same mixture of them."""
    log = small_run(expert).log
    track = ibcb.IBCB(expert=expert, l2=0.3).fit(log)._fit.track
    smooth = propensities._retraced(log, track, np.zeros((4, 4)), ahead=False)
    assert len(smooth) == len(log)
    tracked = track.believed_of(track.seen, track.seen.last, track.believed_place)
    deviations = np.sqrt(np.diagonal(tracked.covariance[0]))
    assert (np.abs(smooth[-1].belief.mean[0] - tracked.mean[0]) <= 0.05 * deviations).all()
    np.testing.assert_allclose(np.sqrt(np.diagonal(smooth[-1].belief.covariance[0])), deviations, rtol=0.05)


@pytest.mark.parametrize("expert", ["sbts", "softmax"])
def test_what_came_later_makes_early_policies_surer(expert):
    run = small_run(expert)
    track = ibcb.IBCB(expert=expert, l2=0.3).fit(run.log)._fit.track
    smooth = propensities._retraced(run.log, track, np.zeros((4, 4)), ahead=False)
    before = propensities._retraced(run.log, track, np.zeros((4, 4)), ahead=True)
    for later, sooner in zip(smooth[1:], before[1:], strict=True):
        assert np.trace(later.belief.covariance[0]) < np.trace(sooner.belief.covariance[0])
