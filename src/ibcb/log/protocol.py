"""What every log can do, wherever its rows lie. Nobody outside this room asks which log it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ibcb.log.notebook import laid_out
from ibcb.log.notes import Note
from ibcb.log.recipe import Preparation
from ibcb.numerics.printable import WrongTypeError

if TYPE_CHECKING:
    from ibcb.log.behavior_log import BehaviorLog


class Log(ABC):
    """A log in memory (`BehaviorLog`) or on disk (what `ibcb.open_log` gives): the same methods, the same meaning.

    Attributes
    ----------
    name : str
        Of its file; empty for a log in memory.
    feature_names : tuple of str or None
    n_features : int
    preparation : Preparation or None
        How the features were made from raw columns, if a reader made them.
    notes : tuple of Note
        What a reader should know of how it was read; of a log on disk complete once it has been read to the end.
    warmup : int
        How many episodes the policy did not choose.
    in_memory : bool
        Whether its rows are there already, so that going through them again reads nothing.
    """

    __slots__ = ()

    name: str
    feature_names: tuple[str, ...] | None
    preparation: Preparation | None
    in_memory: bool

    @property
    @abstractmethod
    def n_features(self) -> int: ...

    @property
    @abstractmethod
    def notes(self) -> tuple[Note, ...]: ...

    @property
    @abstractmethod
    def warmup(self) -> int: ...

    @property
    @abstractmethod
    def number(self) -> int:
        """Of its first episode in the log that it is a part of; negative in a warm-up."""

    @property
    @abstractmethod
    def n_episodes(self) -> int | None:
        """How many episodes are stored, the warm-up's included; None where only reading all of it would tell."""

    @property
    @abstractmethod
    def elsewhere(self) -> tuple[Path, dict[str, Any]] | None:
        """Path and options with which `ibcb.open_log` opens it in another process and finds every episode at once;
        None where that cannot be done.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Number of episodes that the policy chose; where ``n_episodes`` is None this reads the log."""

    @abstractmethod
    def __iter__(self) -> Iterator[Log]:
        """Each episode that the policy chose as a log of its own; the first carries the warm-up."""

    @abstractmethod
    def episodes(self) -> Iterator[tuple[bool, Log]]:
        """Every stored episode in order as ``(the policy chose it, episode)``; the warm-up comes first."""

    @abstractmethod
    def parts(self) -> Iterator[tuple[int, BehaviorLog]]:
        """Every episode as ``(number, part)``, in order, some whole steps at a time, in memory; large ones in several
        parts, the warm-up's number negative.
        """

    @abstractmethod
    def read(self) -> BehaviorLog:
        """All of it, in memory."""

    def parts_by_episode(self) -> Iterator[tuple[int, Iterator[BehaviorLog]]]:
        """Every episode's number, and its parts."""
        for number, pairs in groupby(self.parts(), key=itemgetter(0)):
            yield number, (part for _, part in pairs)

    def step_counts(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Every episode's number, and the candidates of each of its steps."""
        for _, episode in self.episodes():
            yield from episode.step_counts()

    @abstractmethod
    def steps(self, number: int, first: int, last: int) -> Iterator[BehaviorLog]:
        """Steps first to last - 1 of the episode with that number, in parts."""

    def _repr_html_(self) -> str:
        return laid_out("log", self)


def check_is_log(value: Any, asked: str) -> None:
    """Refuse what has no parts to go through; ``asked``: the function that was given it."""
    if not callable(getattr(value, "parts", None)):
        raise WrongTypeError(
            f"{asked} takes a BehaviorLog or a log on disk, got {type(value).__name__}; open a file with "
            "ibcb.open_log, make arrays a log with ibcb.BehaviorLog.from_episodes."
        )
