"""The unit of policies: what a state has to be divided by, and how sure that is."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from ibcb.deciders import Kind
from ibcb.numerics.gaussians import Beliefs
from ibcb.tracking.families import Families
from ibcb.tracking.look import Tracked

__all__ = ["LEAST_UNIT", "unit_column", "unit_doubt", "unit_of"]

#: a weight that policies are divided by is not believed to be less, with a prior deviation of 2: a decider whose
#: choices deny that it explores would have weights beyond all bounds; not tuned
LEAST_UNIT = 0.01
_LOG_ROOT = 0.5 * np.log(2 * np.pi)


def unit_column(kind: Kind, d: int) -> int | None:
    """The entry of a state per unit of which policies are; None where that is not part of it."""
    return None if kind.per_unit is None else d + kind.per_unit


def unit_of(kind: Kind, models: Families, believed: Beliefs, place: int, d: int) -> float:
    """The unit of a state's policy, as the belief of the model at a place has it.

    Of a weight it is what is expected of it, which is above 0 however little is known.
    """
    column = unit_column(kind, d)
    if column is None:
        family, member = models.model_at(place)
        return float(models.motions[family].units[member])
    mean, deviation = float(believed.mean[0, column]), float(np.sqrt(believed.covariance[0, column, column]))
    if deviation > 0:
        z = mean / deviation
        mean += deviation * float(np.exp(-0.5 * z * z - _LOG_ROOT - log_ndtr(z)))
    return max(mean, LEAST_UNIT)


def unit_doubt(kind: Kind, models: Families, now: Tracked, believed: Beliefs) -> float:
    """Share by which the last policy may be too long or too short: by which its unit may be mistaken."""
    d = len(now.within)
    C, p, column = believed.covariance[0], believed.mean[0, :d], unit_column(kind, d)
    if column is not None:
        return float(np.sqrt(C[column, column])) / unit_of(kind, models, believed, now.best, d)
    along = now.within @ p
    size = float(p @ along)
    return float(np.sqrt(max(along @ C[:d, :d] @ along, 0.0))) / size if size > 0 else 0.0
