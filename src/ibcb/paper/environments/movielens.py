"""The paper's real data set: MovieLens 100K, with the ratings nobody gave filled in by matrix factorisation.

The ratings are put in order of time and halved. An expert learns on the first rows of the first half and is tested on
the whole second half. At each step it sees the user of one row, the item that user rated, and other items drawn
uniformly. What a candidate earns is decided by a logistic matrix factorisation of the same half (MF-OL, MF-BT): 1 for
the candidate that the user most probably likes, if that probability is above one half, and 0 for all others. Tastes
and users differ between the halves, so the test is out of distribution as it is.

The logit of user u liking item i is ``offset + a_u + b_i + <p_u, q_i>``. The offset is the logit of the share of likes
and stays fixed; biases and factors minimise the summed log-loss plus half their squared norms. Those of a user or an
item that was never rated are driven to zero by that penalty.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit, logit

from ibcb.numerics.arrays import Matrix, Vector
from ibcb.paper.environments.movielens_files import N_OCCUPATIONS, Ratings, find_files
from ibcb.paper.environments.worlds import Phase, Streams, World, check_room, check_sizes

Index = NDArray[np.int64]

#: stars, of five, from which a rating is a like: the paper's
_LIKED = 4
#: the age groups of MovieLens-1M
_AGE_EDGES = (18, 25, 35, 45, 50, 56)
_AGE_NAMES = ("under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56 and over")
#: of factors at first, not tuned: small beside what they become, and not 0, from where they could not move
_INITIAL_SD = 0.1
#: of L-BFGS, at most; not tuned
_MAX_ITERATIONS = 100


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
        ages, occupations = (f"age {name}" for name in _AGE_NAMES), files.occupation_names()
        of_users = *ages, "gender F", "gender M", *(f"occupation {name}" for name in occupations)
        return *of_users, "release year", *(f"genre {name}" for name in files.genre_names())

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
        n_items = len(ratings.years)
        if self.n_candidates > n_items:
            raise ValueError(f"n_candidates={self.n_candidates} is more than the {n_items} items there are.")
        check_room(len(ratings.stars), self.n_candidates, self.rank)
        # Stable: rows of one second keep the order of the file, also across the middle.
        order = np.argsort(ratings.timestamps, kind="stable")
        learning = self._phase(ratings, order[:half], streams, "log", steps)
        test = self._phase(ratings, order[half:], streams, "test", len(order) - half)
        return World(None, learning, self.batch_size, test, feature_names=self.feature_names)

    def _phase(self, ratings: Ratings, rows: Index, streams: Streams, name: str, steps: int) -> Phase:
        """The first steps of a half; its factorisation and candidates are those of all of it, however few are used."""
        users, items, n_items = ratings.users[rows], ratings.items[rows], len(ratings.years)
        feedback = Feedback(users, items, ratings.stars[rows] >= _LIKED, len(ratings.ages), n_items)
        model = factorise(feedback, rank=self.rank, rng=streams[f"{name} matrix factorisation"])
        candidates = with_others(items, n_items, self.n_candidates, streams[f"{name} candidates"])
        users, candidates = users[:steps], candidates[:steps]
        logits = model.logits(users[:, None], candidates)
        # As in the paper, a candidate loses only to one with more; equals would both earn.
        first = logits == logits.max(axis=1, keepdims=True)
        earned = np.asarray(first & (logits > 0), dtype=np.float64)
        return Phase(_contexts(ratings, users, candidates), earned, np.zeros(steps))


def with_others(items: Index, n_items: int, n_candidates: int, rng: np.random.Generator) -> Index:
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


def _contexts(ratings: Ratings, users: Index, candidates: Index) -> NDArray[np.float64]:
    """Features of the user, then of the item, of every candidate: (steps,) and (steps, M) to (steps, M, 50).

    Of users age in 7 bins, gender in 2, occupation in 21, one of each being 1. Of items centuries since 1950 and the 19
    genres; one without a date gets the mean of the others, so that a missing date is not taken for an extreme one.
    """
    parts = (np.digitize(ratings.ages, _AGE_EDGES), ratings.genders, ratings.occupations)
    sizes = (len(_AGE_NAMES), 2, N_OCCUPATIONS)
    of_users = np.hstack([np.eye(count)[values] for values, count in zip(parts, sizes, strict=True)])
    years = np.where(np.isnan(ratings.years), np.nanmean(ratings.years), ratings.years)
    of_items = np.column_stack([(years - 1950) / 100, ratings.genres])[candidates]
    split = of_users.shape[1]
    together = np.empty((*candidates.shape, split + of_items.shape[2]))
    together[..., :split] = of_users[users][:, None]
    together[..., split:] = of_items
    return together


class Feedback(NamedTuple):
    """Who liked what: indices of users and items from 0, and how many of them there are, rated or not.

    Attributes
    ----------
    users, items : ndarray of shape (rows,)
    liked : ndarray of bool, shape (rows,)
    n_users, n_items : int
    """

    users: Index
    items: Index
    liked: NDArray[np.bool_]
    n_users: int
    n_items: int


class Factorisation(NamedTuple):
    """Parameters of the model: biases of users and items, and their factors, of shape (n_users or n_items, rank)."""

    offset: float
    user_bias: Vector
    item_bias: Vector
    user_factors: Matrix
    item_factors: Matrix

    @classmethod
    def of(cls, parameters: Vector, feedback: Feedback) -> Factorisation:
        """Out of one flat vector: user biases, item biases, user factors, item factors."""
        users, biases = feedback.n_users, feedback.n_users + feedback.n_items
        factors = parameters[biases:].reshape(biases, -1)
        offset = float(logit(np.mean(feedback.liked)))
        return cls(offset, parameters[:users], parameters[users:biases], factors[:users], factors[users:])

    def logits(self, users: Index, items: Index) -> NDArray[np.float64]:
        """Logit of the probability that each user likes each item; the two broadcast against each other."""
        p, q = self.user_factors[users], self.item_factors[items]
        z: NDArray[np.float64] = np.einsum("...k,...k->...", p, q)
        z += self.offset
        z += self.user_bias[users]
        z += self.item_bias[items]
        return z


def factorise(feedback: Feedback, *, rank: int, rng: np.random.Generator) -> Factorisation:
    """Fit the model by at most 100 iterations of L-BFGS from small random factors and zero biases.

    The problem is not convex: the draw decides which minimum is approached, so that every seed has a world of its own.
    """
    liked, rated = np.count_nonzero(feedback.liked), len(feedback.liked)
    if liked in (0, rated):
        raise ValueError(f"{liked} of {rated} ratings are likes; a factorisation needs both likes and dislikes.")
    biases = feedback.n_users + feedback.n_items
    start = np.zeros(biases * (1 + rank))
    start[biases:] = rng.normal(0.0, _INITIAL_SD, biases * rank)
    minimum = minimize(loss, start, (feedback,), "L-BFGS-B", jac=True, options={"maxiter": _MAX_ITERATIONS})
    return Factorisation.of(minimum.x, feedback)


def loss(parameters: Vector, feedback: Feedback) -> tuple[float, Vector]:
    """Summed log-loss plus half the squared norm of the parameters, and its gradient."""
    model = Factorisation.of(parameters, feedback)
    users, items, liked, *shape = feedback
    z = model.logits(users, items)
    value = np.sum(np.logaddexp(0.0, z)) - np.sum(z[liked]) + 0.5 * (parameters @ parameters)
    # Residuals as a sparse users x items matrix: the gradients of both sides' factors are products with it.
    residual: Any = csr_array((expit(z) - liked, (users, items)), shape=shape)
    of_factors = (residual @ model.item_factors).ravel(), (residual.T @ model.user_factors).ravel()
    return float(value), np.concatenate([residual.sum(axis=1), residual.sum(axis=0), *of_factors]) + parameters
