"""The policy of every episode by the whole log."""

import numpy as np
import pytest
from conftest import small_run
from replayed import tracks_before

import ibcb
from ibcb.tracking.smoothing import smoothed


@pytest.mark.parametrize("expert", ["sbucb", "sbts", "egreedy", "softmax", "other"])
def test_of_the_last_episode_nothing_more_is_known_than_was_tracked(expert):
    """Where several models are believed, by the same mixture of them."""
    log = small_run(expert).log
    track = ibcb.IBCB(expert=expert, l2=0.3).fit(log)._fit.track
    smooth = smoothed(track)
    assert len(smooth) == len(log)
    tracked = track.believed_of(track.seen, track.seen.last, track.believed_place)
    deviations = np.sqrt(np.diagonal(tracked.covariance[0]))
    assert (np.abs(smooth[-1].mean[0] - tracked.mean[0]) <= 0.05 * deviations).all()
    np.testing.assert_allclose(np.sqrt(np.diagonal(smooth[-1].covariance[0])), deviations, rtol=0.05)


@pytest.mark.parametrize("expert", ["sbts", "softmax"])
def test_what_came_later_makes_early_policies_surer(expert):
    log = small_run(expert).log
    track = ibcb.IBCB(expert=expert, l2=0.3).fit(log)._fit.track
    _, *before = tracks_before(log, track.kind)
    for later, sooner in zip(smoothed(track)[1:], before, strict=True):
        assert np.trace(later.covariance[0]) < np.trace(sooner.next_belief.covariance[0])
