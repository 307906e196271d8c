"""Learning as a value: ridge regression of rewards, batch after batch (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ibcb.numerics.arrays import Matrix, Vector
from ibcb.numerics.lazy import lazy
from ibcb.numerics.ridge import Ridge, gram, ridge


@dataclass(frozen=True)
class Learning:
    """What has been learned so far; it is never changed, `learn` gives the next one.

    Attributes
    ----------
    ridge : Ridge
        Of the contexts chosen so far, measured from its origin.
    moment : ndarray of shape (d,)
        b = S'R.
    """

    ridge: Ridge
    moment: Vector

    @classmethod
    def begin(
        cls, l2: float | Vector, gram: Matrix, moment: Vector | None = None, origin: Vector | None = None
    ) -> Learning:
        """From S'S and S'R: zeros where nothing has been learned."""
        return cls(ridge(gram, l2, origin), np.zeros(len(gram)) if moment is None else moment)

    @property
    def gram(self) -> Matrix:
        """Phi = S'S, shape (d, d)."""
        return self.ridge.phi

    @lazy
    def coef(self) -> Vector:
        """The policy: theta = Psi^-1 b, shape (d,)."""
        return self.ridge.solve(self.moment)

    def learn(self, rows: Matrix, rewards: Vector, weights: Vector | None = None) -> Learning:
        """After a batch of chosen contexts, shape (B, d), and their rewards; each counts ``weights`` times, or once."""
        S = rows if self.ridge.origin is None else rows - self.ridge.origin
        if weights is None:
            phi, moment = gram(S), S.T @ rewards
        else:
            phi, moment = (S.T * weights) @ S, S.T @ (weights * rewards)
        after = ridge(self.ridge.phi + phi, self.ridge.penalty, self.ridge.origin)
        return Learning(after, self.moment + moment)
