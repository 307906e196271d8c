"""The replay: one driver goes through a log, and everything that needs the log is told of each episode in turn.

A subscriber is a value with three methods. ``begin`` is told what the log is like once its first candidates are known,
``step`` each stored episode in order, the warm-up first, and ``finish`` gives the result. ``begin`` and ``step`` give
the subscriber that goes on, which may be another one. What had been chosen before an episode is summed here, and
nowhere else; so is the name of the log so far. Where a decider that somebody follows has a past that is not all of the
log (``pasts``), what each episode taught is kept too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from tqdm import tqdm

from ibcb.engine.block import Block, Experience, experienced
from ibcb.engine.candidates import CandidateMoments, first_look
from ibcb.engine.episode_rows import LocalRows, Rows
from ibcb.engine.threads import Workers, one_blas_thread
from ibcb.log import Log
from ibcb.log.fingerprint import NO_LOG, with_episode
from ibcb.numerics.arrays import Matrix, Vector, lazy
from ibcb.numerics.ridge import Chosen, Regularization, Ridge


@dataclass(frozen=True)
class Past:
    """All of the log: the base of every other past, which overrides `weights`.

    A decider whose rewards are linear has b_n = sum over the episodes i before the n-th of w_i (Phi_i theta + m_i c),
    by the Gram matrix and the sum of the contexts chosen in each. Where w is 1 for all of them, that is plain ridge
    regression.
    """

    name: ClassVar[str] = "all"
    #: by which factor an update shrinks the weights of what was known before, as a discount does
    kept: ClassVar[float] = 1.0

    def weights(self, episodes: int) -> Vector:
        """How much each of the first so many episodes that the policy chose counts after them. Shape (episodes,).

        What was chosen before the policy's first episode counts in full.
        """
        return np.ones(episodes)


#: all of the log
ALL = Past()


@dataclass(frozen=True)
class History:
    """What lies before an episode.

    Attributes
    ----------
    chosen : Chosen
        The contexts chosen so far, those before the log included.
    stored, episodes : int
        How many episodes there were; all, and those that the policy chose.
    fingerprint : str
        Name of the log so far, see `ibcb.log.fingerprint`.
    lessons : tuple of Chosen or None
        Of each of the policy's episodes; None where nobody has a past that needs them one by one.
    """

    chosen: Chosen
    stored: int = 0
    episodes: int = 0
    fingerprint: str = NO_LOG
    lessons: tuple[Chosen, ...] | None = None

    @classmethod
    def before_the_log(cls, gram: Matrix) -> History:
        """Where a log begins; ``gram`` is of the contexts chosen before it, zeros if there were none."""
        return cls(Chosen.before_the_log(gram))

    def by(self, past: Past) -> Chosen:
        """The contexts chosen so far, as a decider with this past knows them."""
        if past == ALL:
            return self.chosen
        known = self._known_by
        if past not in known:
            assert self.lessons is not None  # whoever has such a past asks for them when the log begins
            gone = 1.0 - past.weights(self.episodes)
            known[past] = self.chosen
            for share, lesson in zip(gone.tolist(), self.lessons, strict=True):
                known[past] = known[past].without(share, lesson) if share else known[past]
        return known[past]

    def ridge(self, regularization: Regularization, past: Past = ALL) -> Ridge:
        """What the choices so far leave behind; worked out once for all who ask."""
        known, asked = self._ridges, (regularization, past)
        if asked not in known:
            known[asked] = regularization.ridge(self.by(past))
        return known[asked]

    @lazy
    def _known_by(self) -> dict[Past, Chosen]:
        return {}

    @lazy
    def _ridges(self) -> dict[tuple[Regularization, Past], Ridge]:
        return {}

    def one_by_one(self) -> History:
        """The same, keeping what each further episode teaches."""
        return self if self.lessons is not None else replace(self, lessons=())

    def after(self, lesson: Experience, *, by_policy: bool) -> History:
        """With one more episode."""
        named_by = (lesson.counts, lesson.chosen, lesson.phi)
        own = Chosen(float(len(lesson.chosen)), lesson.total, lesson.phi)
        return History(
            self.chosen.and_then(len(lesson.chosen), lesson.total, lesson.phi),
            self.stored + 1,
            self.episodes + by_policy,
            with_episode(self.fingerprint, *named_by, by_policy=by_policy),
            (*self.lessons, own) if self.lessons is not None and by_policy else self.lessons,
        )


class Episode:
    """An episode on its way past the subscribers.

    Attributes
    ----------
    number : int
        Counted from 0; negative in the warm-up.
    rows : Rows
        Wherever they live.
    before : History
    """

    def __init__(self, number: int, rows: Rows, before: History) -> None:
        self.number, self.rows, self.before = number, rows, before

    @property
    def by_policy(self) -> bool:
        """Whether the policy made the choices; False in the warm-up."""
        return self.number >= 0

    @lazy
    def lesson(self) -> Experience:
        """What its choices teach the decider."""
        return Experience.join(list(self.rows.map(experienced)))

    @lazy
    def after(self) -> History:
        """What lies before the next one."""
        return self.before.after(self.lesson, by_policy=self.by_policy)

    def begin_from(self, before: History) -> None:
        """Let another history lie before it."""
        self.before = before
        self.__dict__.pop("after", None)

    def worked_up(self, rows: Rows, lesson: Experience) -> None:
        """Its rows with what somebody has worked out for them, and what it teaches, found on the way."""
        self.rows = rows
        self.__dict__["lesson"] = lesson


class Heading(NamedTuple):
    """What a log is like, as far as its first candidates tell.

    Attributes
    ----------
    n_features : int
    moments : CandidateMoments
        Of the first candidates that the policy chose from: those of its first episode, or of a block of it.
    first : Block
        That episode, or its first block.
    warmup : bool
        Whether anything in the log was chosen before them.
    before : History
        Before the first stored episode.
    """

    n_features: int
    moments: CandidateMoments
    first: Block
    warmup: bool
    before: History


class Subscriber:
    """Whoever needs the log; as it stands here, nobody does."""

    @property
    def pasts(self) -> tuple[Past, ...]:
        """Of deciders that it follows."""
        return ()

    def begin(self, heading: Heading) -> Subscriber:
        """Before the first episode: who goes on; itself where nothing is asked of the first candidates."""
        return self

    def step(self, episode: Episode) -> Subscriber:
        """One more episode: who goes on."""
        return self

    def finish(self) -> Any:
        """After the last one: the result."""
        return None


def replay(
    logs: Sequence[Log],
    *subscribers: Subscriber,
    before: History | None = None,
    keep: int | None = None,
    client: Any = None,
    team: Workers | None = None,
    progress: str = "",
) -> list[Any]:
    """Go through logs, one after the other, once; gives what the subscribers found, in their order.

    Parameters
    ----------
    logs : sequence of Log
    subscribers
        Told of each episode in the order given.
    before : History, optional
        What lies before the first episode; nothing by default.
    keep : int, optional
        Bytes of each episode of a log on disk that may stay in memory between passes.
    client : distributed.Client, optional
        Of a Dask cluster, whose workers then hold the rows.
    team : Workers, optional
        Threads that share the blocks of an episode.
    progress : str
        What a progress bar says; none is shown without, or where nobody looks, or if all is done within a second.
    """
    waiting, going = list[Episode](), None
    counts = [log.n_episodes for log in logs]
    with (
        one_blas_thread(),
        _Bar(
            total=None if None in counts else sum(count or 0 for count in counts),
            desc=progress,
            unit="episode",
            delay=1,
            leave=False,
            # disable=None: silent unless stderr is a terminal.
            disable=None if progress else True,
        ) as bar,
    ):
        for episode in _episodes(logs, before, keep, client, team):
            waiting.append(episode)
            if going is None:
                if not episode.by_policy:
                    continue
                heading = _heading(logs[0], waiting)
                going = [each.begin(heading) for each in subscribers]
                if any(past != ALL for each in going for past in each.pasts):
                    # From here on what each episode teaches is kept.
                    known = waiting[0].before.one_by_one()
                    for each in waiting:
                        each.begin_from(known)
                        known = each.after
            for each in waiting:
                going = [subscriber.step(each) for subscriber in going]
                bar.update()
            waiting = []
    return [each.finish() for each in going or ()]


class _Bar(tqdm):  # type: ignore[misc]
    #: until it is made, so that one whose making is interrupted has nothing to close (tqdm before 4.70)
    disable = True


def _episodes(
    logs: Sequence[Log], before: History | None, keep: int | None, client: Any, team: Workers | None
) -> Iterator[Episode]:
    for log in logs:
        stored: Iterator[tuple[int, Rows]]
        if client is None:
            stored = ((each.number, LocalRows(each, keep=keep, team=team)) for _, each in log.episodes())
        else:
            from ibcb.engine.cluster import distributed_rows

            stored = distributed_rows(log, client)
        for number, rows in stored:
            if before is None:
                d = log.n_features
                before = History.before_the_log(np.zeros((d, d)))
            episode = Episode(number if number < 0 else before.episodes, rows, before)
            yield episode
            # Only now: somebody may have found on the way what it teaches.
            before = episode.after


def _heading(log: Log, waiting: Sequence[Episode]) -> Heading:
    episode = waiting[-1]
    # All of it first: what stays in memory is read once.
    lesson = episode.lesson
    return Heading(
        len(lesson.total),
        first_look(episode.rows, log.feature_names),
        episode.rows.head(partial(Block.with_work, work=None)),
        len(waiting) > 1,
        waiting[0].before,
    )
