"""The unit of policies: what a state has to be divided by, and how sure that is."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from ibcb.deciders import Kind
from ibcb.numerics.gaussians import Beliefs
from ibcb.tracking.families import Families
from ibcb.tracking.look import Tracked

#: a weight that policies are divided by is not believed to be less, with a prior deviation of 2: a decider whose
#: choices deny that it explores would have weights beyond all bounds; not tuned
LEAST_UNIT = 0.01
_LOG_ROOT = 0.5 * np.log(2 * np.pi)


def unit_column(kind: Kind, believed: Beliefs) -> int | None:
    """The entry of a policy with its added weights per unit of which policies are; None where that is not part of it.

    ``believed``: of the policy and the weights of the added columns.
    """
    return None if kind.per_unit is None else believed.mean.shape[1] - len(kind.added) + kind.per_unit


def unit_of(models: Families, believed: Beliefs, place: int) -> float:
    """The unit of a policy, as the belief of the model at a place has it.

    Of a weight it is what is expected of it, which is above 0 however little is known.
    """
    column = unit_column(models.kind, believed)
    if column is None:
        return float(models.units[place])
    mean, deviation = float(believed.mean[0, column]), float(np.sqrt(believed.covariance[0, column, column]))
    if deviation > 0:
        z = mean / deviation
        mean += deviation * float(np.exp(-0.5 * z * z - _LOG_ROOT - log_ndtr(z)))
    return max(mean, LEAST_UNIT)


def unit_doubt(models: Families, now: Tracked, believed: Beliefs) -> float:
    """Share by which the last policy may be too long or too short: by which its unit may be mistaken."""
    d = len(now.within)
    C, p, column = believed.covariance[0], believed.mean[0, :d], unit_column(models.kind, believed)
    if column is not None:
        return float(np.sqrt(C[column, column])) / unit_of(models, believed, now.best)
    along = now.within @ p
    size = float(p @ along)
    return float(np.sqrt(max(along @ C[:d, :d] @ along, 0.0))) / size if size > 0 else 0.0
