"""The episodes of a log, each with its rows where they live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ibcb.engine.block import blocks
from ibcb.engine.rows import MemoryRows, Rows
from ibcb.engine.stream import StreamedRows
from ibcb.engine.threads import Workers
from ibcb.log.behavior_log import BehaviorLog, dense_pieces
from ibcb.log.disk import DiskLog

__all__ = ["Episode", "episodes", "first_steps"]


class Episode(NamedTuple):
    """One stored episode: whether the policy chose it, and its rows."""

    by_policy: bool
    rows: Rows


def episodes(
    log: BehaviorLog | DiskLog, *, keep: int | None = None, client: Any = None, team: Workers | None = None
) -> Iterator[Episode]:
    """Every stored episode in order, the warm-up first.

    ``keep``: bytes of each episode of a log on disk that may stay in memory between passes. ``client``: of a Dask
    cluster, whose workers then hold the rows. ``team``: threads that share the blocks of an episode.
    """
    if client is not None:
        from ibcb.engine.cluster import distributed_rows

        for number, rows in distributed_rows(log, client):
            yield Episode(number >= 0, rows)
        return
    if isinstance(log, BehaviorLog):
        for by_policy, episode in log.episodes():
            yield Episode(by_policy, MemoryRows(blocks(episode), team))
        return
    for number, parts in log.episodes():
        yield Episode(number >= 0, StreamedRows(parts, keep=keep, team=team))


def first_steps(log: BehaviorLog | DiskLog) -> BehaviorLog:
    """The first episode that the policy chose, with dense contexts, or as much of it as is read at a time."""
    if isinstance(log, BehaviorLog):
        return next(dense_pieces(log[0]))
    return next(dense_pieces(next(part for number, part in log.parts() if number >= 0)))
