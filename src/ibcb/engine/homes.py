"""The episodes of a log, each with its rows where they live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ibcb.engine.episode_rows import MemoryRows, Rows
from ibcb.engine.stream import StreamedRows
from ibcb.engine.threads import Workers
from ibcb.log import Log


class StoredEpisode(NamedTuple):
    """One stored episode: its number in the log, negative in the warm-up, and its rows."""

    number: int
    rows: Rows


def stored_episodes(
    log: Log, *, keep: int | None = None, client: Any = None, team: Workers | None = None
) -> Iterator[StoredEpisode]:
    """Every stored episode in order, the warm-up first.

    ``keep``: bytes of each episode of a log on disk that may stay in memory between passes. ``client``: of a Dask
    cluster, whose workers then hold the rows. ``team``: threads that share the blocks of an episode.
    """
    if client is not None:
        from ibcb.engine.cluster import distributed_rows

        for number, rows in distributed_rows(log, client):
            yield StoredEpisode(number, rows)
        return
    for _, episode in log.episodes():
        if episode.in_memory:
            yield StoredEpisode(episode.number, MemoryRows(episode.read(), team))
        else:
            yield StoredEpisode(episode.number, StreamedRows(episode, keep=keep, team=team))
