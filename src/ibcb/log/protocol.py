"""What every log can do, wherever its rows lie. Nobody outside this room asks which log it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcb.log.notes import Note
from ibcb.log.recipe import Preparation

if TYPE_CHECKING:
    from ibcb.log.behavior_log import BehaviorLog

__all__ = ["Log"]


class Log(Protocol):
    """A log in memory (`BehaviorLog`) or on disk (what `ibcb.open_log` gives): the same methods, the same meaning."""

    @property
    def name(self) -> str:
        """Of its file; empty for a log in memory."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...] | None: ...

    @property
    def n_features(self) -> int: ...

    @property
    def preparation(self) -> Preparation | None:
        """How the features were made from raw columns, if a reader made them."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a reader should know of how it was read; of a log on disk complete once it has been read to the end."""
        ...

    @property
    def number(self) -> int:
        """Of its first episode in the log that it is a part of; negative in a warm-up."""
        ...

    @property
    def n_episodes(self) -> int | None:
        """How many episodes are stored, the warm-up's included; None where only reading all of it would tell."""
        ...

    @property
    def warmup(self) -> int:
        """How many episodes the policy did not choose."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether its rows are there already, so that going through them again reads nothing."""
        ...

    @property
    def elsewhere(self) -> tuple[Path, dict[str, Any]] | None:
        """Path and options with which `ibcb.open_log` opens it in another process and finds every episode at once;
        None where that cannot be done.
        """
        ...

    def __len__(self) -> int:
        """Number of episodes that the policy chose; where ``n_episodes`` is None this reads the log."""
        ...

    def __iter__(self) -> Iterator[Log]:
        """Each episode that the policy chose as a log of its own; the first carries the warm-up."""
        ...

    def episodes(self) -> Iterator[tuple[bool, Log]]:
        """Every stored episode in order as ``(the policy chose it, episode)``; the warm-up comes first."""
        ...

    def parts(self) -> Iterator[tuple[int, BehaviorLog]]:
        """Some whole steps at a time, in memory, with the number of their episode; negative in a warm-up."""
        ...

    def step_counts(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Every episode's number, and the candidates of each of its steps."""
        ...

    def steps(self, number: int, first: int, last: int) -> Iterator[BehaviorLog]:
        """Steps first to last - 1 of the episode with that number, in parts."""
        ...

    def read(self) -> BehaviorLog:
        """All of it, in memory."""
        ...
