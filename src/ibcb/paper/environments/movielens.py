"""The paper's real data set: MovieLens 100K, with the ratings nobody gave filled in by matrix factorisation.

The ratings are put in order of time and halved. An expert learns on the first rows of the first half and is tested on
the whole second half. At each step it sees the user of one row, the item that user rated, and other items drawn
uniformly. What a candidate earns is decided by a logistic matrix factorisation of the same half (MF-OL, MF-BT): 1 for
the candidate that the user most probably likes, if that probability is above one half, and 0 for all others. Tastes
and users differ between the halves, so the test is out of distribution as it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ibcb.paper.environments.factorisation import Factorisation, Feedback, factorise
from ibcb.paper.environments.movielens_files import N_OCCUPATIONS, Ratings, find_files
from ibcb.paper.environments.world import Phase, Streams, World, check_room, check_sizes

#: stars, of five, from which a rating is a like: the paper's
_LIKED = 4
#: the age groups of MovieLens-1M
_AGE_EDGES = (18, 25, 35, 45, 50, 56)
_AGE_NAMES = ("under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56 and over")


@dataclass(frozen=True, kw_only=True)
class MovieLens:
    """Settings of the MovieLens data, with the paper's values as defaults.

    Attributes
    ----------
    n_episodes, batch_size : int
        N and B; the log is the first N B rows of the first half. The paper also has 10 x 2000 and 40 x 500.
    n_candidates : int
        M: the rated item and M - 1 others.
    rank : int
        Of the matrix factorisations.
    folder : path, optional
        The publisher's folder or zip. By default what the environment variable IBCB_ML100K names, and without it a
        download from the publisher, kept in the cache of this machine.
    """

    n_episodes: int = 20
    batch_size: int = 1000
    n_candidates: int = 10
    rank: int = 8
    folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_sizes(self, "n_episodes", "batch_size", "n_candidates", "rank")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the 50 features of a context, read from the files."""
        files = find_files(self.folder)
        return (
            *(f"age {name}" for name in _AGE_NAMES),
            "gender F",
            "gender M",
            *(f"occupation {name}" for name in files.occupation_names()),
            "release year",
            *(f"genre {name}" for name in files.genre_names()),
        )

    def build(self, streams: Streams) -> World:
        """Draw the world of a seed: its factorisations and candidates. The rows are the same for every seed."""
        ratings = find_files(self.folder).ratings()
        half = len(ratings.stars) // 2
        steps = self.n_episodes * self.batch_size
        if steps > half:
            raise ValueError(
                f"n_episodes={self.n_episodes} times batch_size={self.batch_size} is {steps} steps, but the first half "
                f"of the ratings has {half}; choose fewer or smaller episodes."
            )
        if self.n_candidates > ratings.n_items:
            raise ValueError(f"n_candidates={self.n_candidates} is more than the {ratings.n_items} items there are.")
        check_room(len(ratings.stars), self.n_candidates, self.rank)
        # Stable: rows of one second keep the order of the file, also across the middle.
        order = np.argsort(ratings.timestamps, kind="stable")
        return World(
            warmup=None,
            learning=self._phase(ratings, order[:half], streams, "log", steps),
            batch_size=self.batch_size,
            test=self._phase(ratings, order[half:], streams, "test", len(order) - half),
            ood=None,
            feature_names=self.feature_names,
        )

    def _phase(self, ratings: Ratings, rows: NDArray[np.int64], streams: Streams, name: str, steps: int) -> Phase:
        """The first steps of a half; its factorisation and candidates are those of all of it, however few are used."""
        users, items = ratings.users[rows], ratings.items[rows]
        feedback = Feedback(users, items, ratings.stars[rows] >= _LIKED, ratings.n_users, ratings.n_items)
        model = factorise(feedback, rank=self.rank, rng=streams[f"{name} matrix factorisation"])
        candidates = with_others(items, ratings.n_items, self.n_candidates, streams[f"{name} candidates"])
        users, candidates = users[:steps], candidates[:steps]
        return Phase(contexts(ratings, users, candidates), best(model, users, candidates), np.zeros(steps))


def with_others(
    items: NDArray[np.int64], n_items: int, n_candidates: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Each item among distinct others drawn uniformly, in random order: shape (steps,) to (steps, M).

    The order matters: items can have equal contexts, and a tie goes to the earlier candidate.
    """
    steps, wanted, pool = len(items), n_candidates - 1, n_items - 1
    chosen = np.empty((steps, n_candidates), dtype=np.int64)
    # Floyd's sampling without replacement, for all steps at once: a number drawn before gives way to the newest one,
    # which could not have been.
    for k, newest in enumerate(range(pool - wanted, pool)):
        drawn = rng.integers(newest + 1, size=steps)
        taken = (chosen[:, :k] == drawn[:, None]).any(axis=1)
        chosen[:, k] = np.where(taken, newest, drawn)
    # Numbers of the others leave out the item itself.
    chosen[:, :wanted] += chosen[:, :wanted] >= items[:, None]
    chosen[:, wanted] = items
    return rng.permuted(chosen, axis=1)


def contexts(ratings: Ratings, users: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.float64]:
    """User features, then item features, of every candidate: (steps,) and (steps, M) to (steps, M, 50)."""
    of_users, of_items = user_features(ratings), item_features(ratings)
    split = of_users.shape[1]
    together = np.empty((*candidates.shape, split + of_items.shape[1]))
    together[..., :split] = of_users[users][:, None]
    together[..., split:] = of_items[candidates]
    return together


def user_features(ratings: Ratings) -> NDArray[np.float64]:
    """Age in 7 bins, gender in 2, occupation in 21, one of each being 1. Shape (n_users, 30)."""
    ages = np.digitize(ratings.ages, _AGE_EDGES)
    parts = ((ages, len(_AGE_NAMES)), (ratings.genders, 2), (ratings.occupations, N_OCCUPATIONS))
    return np.hstack([np.eye(count)[values] for values, count in parts])


def item_features(ratings: Ratings) -> NDArray[np.float64]:
    """Centuries since 1950 and the 19 genres. Shape (n_items, 20).

    An item without a date gets the mean of the others, so that a missing date is not taken for an extreme one.
    """
    years = np.where(np.isnan(ratings.years), np.nanmean(ratings.years), ratings.years)
    return np.column_stack([(years - 1950) / 100, ratings.genres])


def best(model: Factorisation, users: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.float64]:
    """Reward of every candidate: 1 for the most probable like, if above one half. Shapes as for `contexts`."""
    logits = model.logits(users[:, None], candidates)
    # As in the paper, a candidate loses only to one with more; equals would both earn.
    first = logits == logits.max(axis=1, keepdims=True)
    return np.asarray(first & (logits > 0), dtype=np.float64)
