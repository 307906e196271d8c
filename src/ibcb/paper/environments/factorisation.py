"""Logistic matrix factorisation: how probable it is that a user likes an item, learned from likes and dislikes.

The logit of user u liking item i is ``offset + a_u + b_i + <p_u, q_i>``. The offset is the logit of the share of likes
and stays fixed; biases and factors minimise the summed log-loss plus half their squared norms. Those of a user or an
item that was never rated are driven to zero by that penalty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit, logit

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Index = NDArray[np.int64]

#: not tuned: small beside what the factors become, and not 0, from where they could not move
_INITIAL_SD = 0.1
#: of L-BFGS, at most; not tuned
_MAX_ITERATIONS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """Who liked what.

    Attributes
    ----------
    users, items : ndarray of shape (rows,)
        Indices from 0.
    liked : ndarray of bool, shape (rows,)
    n_users, n_items : int
        All there are, rated or not.
    """

    users: Index
    items: Index
    liked: NDArray[np.bool_]
    n_users: int
    n_items: int

    @property
    def offset(self) -> float:
        """Logit of the share of likes."""
        return float(logit(np.mean(self.liked)))


@dataclass(frozen=True, slots=True, eq=False)
class Factorisation:
    """Parameters of the model.

    Attributes
    ----------
    offset : float
    user_bias : ndarray of shape (n_users,)
    item_bias : ndarray of shape (n_items,)
    user_factors : ndarray of shape (n_users, rank)
    item_factors : ndarray of shape (n_items, rank)
    """

    offset: float
    user_bias: Vector
    item_bias: Vector
    user_factors: Matrix
    item_factors: Matrix

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
    liked = np.count_nonzero(feedback.liked)
    if liked in (0, len(feedback.liked)):
        raise ValueError(
            f"{liked} of {len(feedback.liked)} ratings are likes; a factorisation needs both likes and dislikes."
        )
    biases = feedback.n_users + feedback.n_items
    start = np.zeros(biases * (1 + rank))
    start[biases:] = rng.normal(0.0, _INITIAL_SD, biases * rank)
    minimum = minimize(loss, start, (feedback,), "L-BFGS-B", jac=True, options={"maxiter": _MAX_ITERATIONS})
    return unpack(minimum.x, feedback)


def unpack(parameters: Vector, feedback: Feedback) -> Factorisation:
    """Parameters out of one flat vector: user biases, item biases, user factors, item factors."""
    users, biases = feedback.n_users, feedback.n_users + feedback.n_items
    factors = parameters[biases:].reshape(biases, -1)
    return Factorisation(
        offset=feedback.offset,
        user_bias=parameters[:users],
        item_bias=parameters[users:biases],
        user_factors=factors[:users],
        item_factors=factors[users:],
    )


def loss(parameters: Vector, feedback: Feedback) -> tuple[float, Vector]:
    """Summed log-loss plus half the squared norm of the parameters, and its gradient."""
    model = unpack(parameters, feedback)
    z = model.logits(feedback.users, feedback.items)
    value = np.sum(np.logaddexp(0.0, z)) - np.sum(z[feedback.liked]) + 0.5 * (parameters @ parameters)
    # Residuals as a sparse users x items matrix: the gradients of both sides' factors are products with it.
    shape = (feedback.n_users, feedback.n_items)
    residual: Any = csr_array((expit(z) - feedback.liked, (feedback.users, feedback.items)), shape=shape)
    slopes = (
        residual.sum(axis=1),
        residual.sum(axis=0),
        (residual @ model.item_factors).ravel(),
        (residual.T @ model.user_factors).ravel(),
    )
    return float(value), np.concatenate(slopes) + parameters
