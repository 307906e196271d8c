"""The conditional of B-ICB's latent rewards: a linear-Gaussian chain, filtered backwards and drawn forwards.

Observation i is a context x_i with a reward r_i; x_0 stands for the prior and its reward is known. The belief draw of
step t looks at u_t = sum_(i<=t) r_i x_i with precision N_t^-1 / sigma^2, and every latent r_i has prior variance
sigma^2. Given the draws, the latent rewards are jointly normal with precision Q / sigma^2,

    Q = I + sum_t X_t N_t^-1 X_t',      (X_t has the rows x_i with 1 <= i <= t, and zeros below)

which is dense. But all that the past tells the future is u, a vector of d numbers, so the future's message about it
has a d x d precision P_t, and eliminating rewards from the last to the first gives

    P_t = N_t^-1 + P_(t+1) - k_(t+1) w_(t+1) w_(t+1)',   k_t = 1 + x_t' P_t x_t,   w_t = P_t x_t / k_t,
    Q = (I + F)' diag(k) (I + F),                         F_ti = <w_t, x_i> for i < t, else 0.

This is the backward filter: (I + F)' a = v runs from the end (the messages' means), (I + F) r = a / k from the start
(the draws, given u). Both go by stretches: dense and inverted once inside a stretch, one vector of d numbers between.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Array = NDArray[np.float64]

#: observations; not tuned finely: dense products of this size cost little, and steps between them are few
_STRETCH = 256


class RewardChain:
    """Q of the module's docstring, by its factors. Vectors have an entry, always 0 in results, for the known reward.

    Parameters
    ----------
    x : ndarray of shape (T, d)
        The observations' contexts, the prior's first.
    inverse : ndarray of shape (T, d, d)
        N_t^-1 of the beliefs that have seen observations 0 to t.

    Building costs O(T (d^2 + 256)), every product after that O(T (d + 256)).
    """

    def __init__(self, x: Array, inverse: Array) -> None:
        T, d = x.shape
        # An infinite k and no w: however much evidence arrives, what is known does not move.
        self.x, self.w, self.k = x, np.zeros((T, d)), np.full(T, np.inf)
        P = np.zeros((d, d))
        for t in range(T - 1, 0, -1):
            P += inverse[t]
            Px = P @ x[t]
            k = 1 + float(x[t] @ Px)
            w = Px / k
            P -= np.outer(w, Px)
            self.w[t], self.k[t] = w, k
        self._stretches: list[tuple[slice, Array]] = []
        for first in range(0, T, _STRETCH):
            part = slice(first, min(first + _STRETCH, T))
            unit = np.tril(self.w[part] @ x[part].T, -1)
            unit.flat[:: len(unit) + 1] = 1
            inverted = lapack.dtrtri(unit, lower=1, unitdiag=1)[0]
            self._stretches.append((part, np.ascontiguousarray(inverted)))
        # One stretch: Q^-1 itself saves half the work.
        self._dense: Array | None = None if T > _STRETCH else (inverted / self.k) @ inverted.T

    def solve(self, v: Array) -> Array:
        """Q^-1 v, for v of shape (T,)."""
        if self._dense is not None:
            product: Array = self._dense @ v
            return product
        a = np.empty_like(v)
        message = np.zeros(self.x.shape[1])
        for part, inverse in reversed(self._stretches):
            a[part] = (v[part] - self.x[part] @ message) @ inverse
            message += a[part] @ self.w[part]
        a /= self.k
        return self._forward(a)

    def colour(self, white: Array) -> Array:
        """The Cholesky factor of Q^-1 times white noise, shape (T, draws)."""
        return self._forward(white / np.sqrt(self.k)[:, None])

    def _forward(self, b: Array) -> Array:
        """(I + F)^-1 b, for b of shape (T,) or (T, draws)."""
        r = np.empty_like(b)
        u = np.zeros((self.x.shape[1], *b.shape[1:]))
        for part, inverse in self._stretches:
            r[part] = inverse @ (b[part] - self.w[part] @ u)
            u += self.x[part].T @ r[part]
        return r
