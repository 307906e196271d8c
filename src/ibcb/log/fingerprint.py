"""A short name for a log: whoever fits the same log finds the same name, one episode at a time or all at once.

The name is a chain: that of n episodes and episode n + 1 give that of n + 1 episodes. An episode enters with the count
of candidates and the choice of every step, and with the Gram matrix of its chosen contexts, which fitting computes
anyway; of very many features with its diagonal. Contexts that were not chosen do not enter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ibcb.log.protocol import Log
from ibcb.numerics.contexts import Contexts
from ibcb.numerics.ridge import gram

if TYPE_CHECKING:
    from ibcb.log.behavior_log import BehaviorLog

#: the name of a log without episodes, with which every chain begins
NO_LOG = ""
_BYTES = 16
#: with more, the Gram matrix alone would be larger than the log
_MANY_FEATURES = 1024
_BITS = 20
#: rounding happens at this fraction of a unit, where the sums of round numbers do not lie
_EDGE = (math.sqrt(5) - 1) / 2


def log_fingerprint(*logs: Log, before: str = NO_LOG) -> str:
    """The name of a log, 32 hexadecimal digits: ``log_fingerprint_`` of an estimator that was fitted to it.

    Several logs are named as the one that they are together, in order; ``before`` is the name of what came before them.

    >>> import ibcb
    >>> log = ibcb.simulate(n_episodes=3, batch_size=50, seed=0).log
    >>> ibcb.IBCB(l2=0.3).fit(log).log_fingerprint_ == log_fingerprint(log)
    True
    >>> log_fingerprint(log) == log_fingerprint(log[:2])
    False
    """
    naming = Naming(before)
    for log in logs:
        for _ in naming.parts(log):
            pass
    return naming.name


class Naming:
    """Names logs while their parts go by, to somebody who needs them anyway; ``name``: of all that went by."""

    def __init__(self, before: str = NO_LOG) -> None:
        self.name = before

    def parts(self, log: Log) -> Iterator[tuple[int, BehaviorLog]]:
        """The parts of a log, as `Log.parts` gives them."""
        for number, parts in log.parts_by_episode():
            phi, counts, chosen = np.zeros(1), [], []
            for part in parts:
                S = part.contexts[part.chosen_rows]
                phi = phi + (gram(S) if part.n_features <= _MANY_FEATURES else _squares(S))
                counts.append(np.diff(part.step_offsets))
                chosen.append(part.chosen)
                yield number, part
            self.name = with_episode(
                self.name, np.concatenate(counts), np.concatenate(chosen), phi, by_policy=number >= 0
            )


def with_episode(
    name: str, counts: NDArray[np.int64] | int, chosen: NDArray[np.int64], phi: NDArray[np.float64], *, by_policy: bool
) -> str:
    """The name of a log that goes on with an episode.

    Parameters
    ----------
    name : str
        Of the log before; `NO_LOG` if there is none.
    counts : ndarray of shape (steps,), or int
        How many candidates each step had; an int where all had as many.
    chosen : ndarray of shape (steps,)
    phi : ndarray of shape (d, d), or (d,)
        Gram matrix of the episode's chosen contexts, or its diagonal where features are very many.
    by_policy : bool
        False for a warm-up.
    """
    if len(phi) > _MANY_FEATURES and phi.ndim == 2:
        phi = phi.diagonal()
    least, most = (counts, counts) if isinstance(counts, int) else (int(counts.min()), int(counts.max()))
    whole = "<u2" if most < 1 << 16 else "<u4"
    size = b"%d %d %d %d %d " % (by_policy, len(phi), len(chosen), least, most)
    of_steps = b"" if least == most else np.asarray(counts).astype(whole).tobytes()
    content = (bytes.fromhex(name), size, of_steps, chosen.astype(whole).tobytes(), _rounded(phi).tobytes())
    return blake2b(b"".join(content), digest_size=_BYTES).hexdigest()


@np.errstate(over="ignore", invalid="ignore")
def _squares(S: Contexts) -> NDArray[np.float64]:
    """Sum of the squares of each feature. Shape (d,)."""
    return np.asarray((S.astype(np.float64) ** 2).sum(axis=0))


def is_fingerprint(name: object) -> bool:
    """Whether this can be the name of a log."""
    return isinstance(name, str) and len(name) == 2 * _BYTES and set(name) <= set("0123456789abcdef")


def _rounded(phi: NDArray[np.float64]) -> NDArray[np.int32]:
    """Entries in units of 2^-20 of the largest: libraries and processors differ in the last bits of a sum."""
    largest = phi.max() if phi.ndim == 1 else phi.diagonal().max()
    if not math.isfinite(largest):
        return np.full(phi.shape, -1, dtype="<i4")
    # A power of 2 that is itself finite, for the tiniest contexts too.
    units = phi * math.ldexp(1.0, min(_BITS - math.frexp(largest)[1], 1000))
    units += _EDGE
    return units.astype("<i4")
