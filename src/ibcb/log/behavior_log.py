"""The behaviour log: what a decider saw and chose, episode by episode, and no rewards.

A log is a set of flat, ragged arrays. Candidate rows of all steps lie in one matrix; step offsets cut it
into steps, episode offsets cut the steps into episodes (what lies between two updates of the policy)::

    contexts         (rows, d)        one row per candidate
    step_offsets     (steps + 1,)     step t owns rows step_offsets[t] : step_offsets[t + 1]
    chosen           (steps,)         position of the chosen candidate inside its step, from 0
    episode_offsets  (episodes + 1,)  episode e owns steps episode_offsets[e] : episode_offsets[e + 1]

There is no place for rewards, so nothing that is handed a log can see one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.log.arms import arm_count, arm_rows, never_chosen, positions, read_arms
from ibcb.log.arms import arm_feature_names as named_features
from ibcb.log.arrays import (
    EpisodeArrays,
    LogFormatError,
    distinct_names,
    first_steps,
    float_array,
    frozen,
    per_step,
    plural,
    read_episode,
    rising_offsets,
    sparse_array,
    warmup_count,
    whole_numbers,
)
from ibcb.log.notebook import log_html
from ibcb.log.notes import Note
from ibcb.log.propensities import row_propensities
from ibcb.log.recipe import Preparation
from ibcb.numerics.checks import WrongTypeError
from ibcb.numerics.contexts import LARGEST, Contexts, compact, dense, is_sparse, stacked

__all__ = ["BehaviorLog", "LogFormatError", "argmax_per_step", "dense_pieces"]

_FINITE_CHECK_ROWS = 65_536
_PART_ROWS = 1 << 18
#: what sparse contexts may become at a time where they are needed dense, 32 MB; not tuned finely
DENSE_NUMBERS = 1 << 22


class BehaviorLog:
    """Candidates and choices of a decider, episode by episode.

    Most logs are built with `from_episodes`; this constructor takes the flat arrays themselves and
    does not copy them.

    Parameters
    ----------
    contexts : array of shape (rows, d), or a sparse one of SciPy
        float32 or float64, kept as given; integers and booleans become float64. Sparse contexts stay sparse: with
        features that are mostly 0, such as those of arms, they take less memory and time.
    step_offsets : array of shape (steps + 1,)
        First row of every step, and the number of rows at the end.
    chosen : array of shape (steps,)
        Position of the chosen candidate within its step, counted from 0.
    episode_offsets : array of shape (episodes + 1,)
        First step of every episode, and the number of steps at the end.
    warmup : int
        How many leading episodes the policy did *not* choose (a random start). They enter the decider's Gram matrix but
        say nothing about its policy; ``len``, indexing and `head` do not count them.
    feature_names : sequence of d str, optional
    timestamps : array of shape (steps,), optional
    step_ids : array of shape (steps,), optional
    candidate_ids : array of shape (rows,), optional
        Names of the candidates, one per row: an item's id, an arm's name. `ibcb predict` writes them. They are not part
        of the fingerprint.
    propensities : array of shape (rows,) or (steps,), optional
        Logged probability with which the decider drew each candidate; NaN where none was logged. One per step means
        that of the chosen candidate. Kept for checks; never fitted, and not part of the fingerprint.
    preparation : Preparation, optional
        How the features were made from raw columns, if a reader made them; models keep it for `predict`.
    notes : iterable of Note
        What a reader should know about how the log was read, such as columns that were left out. Slices keep them; they
        are not part of the fingerprint.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> episodes = [(rng.normal(size=(50, 4, 3)), rng.integers(4, size=50)) for _ in range(6)]
    >>> log = BehaviorLog.from_episodes(episodes, warmup=1)
    >>> log
    BehaviorLog(5 episodes after 1 of warm-up, 300 steps, 4 candidates each, 3 features, float64)
    >>> len(log.head(0.5)), log[1:3].n_steps
    (2, 100)
    """

    __slots__ = (
        "_bound",
        "_origin",
        "candidate_ids",
        "candidates_per_step",
        "chosen",
        "contexts",
        "episode_offsets",
        "feature_names",
        "notes",
        "preparation",
        "propensities",
        "step_ids",
        "step_offsets",
        "timestamps",
        "warmup",
    )

    contexts: Contexts
    step_offsets: NDArray[np.int64]
    chosen: NDArray[np.int64]
    episode_offsets: NDArray[np.int64]
    warmup: int
    feature_names: tuple[str, ...] | None
    timestamps: NDArray[Any] | None
    step_ids: NDArray[Any] | None
    candidate_ids: NDArray[Any] | None
    propensities: NDArray[np.float64] | None
    preparation: Preparation | None
    notes: tuple[Note, ...]
    #: the common number of candidates of every step, or None where it varies
    candidates_per_step: int | None

    def __init__(
        self,
        contexts: Contexts,
        step_offsets: ArrayLike,
        chosen: ArrayLike,
        episode_offsets: ArrayLike,
        *,
        warmup: int = 0,
        feature_names: Sequence[str] | None = None,
        timestamps: ArrayLike | None = None,
        step_ids: ArrayLike | None = None,
        candidate_ids: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        preparation: Preparation | None = None,
        notes: Iterable[Note] = (),
    ) -> None:
        self._fill(
            contexts, step_offsets, chosen, episode_offsets, warmup, feature_names, timestamps, step_ids, preparation
        )
        self._fill_rows(candidate_ids, propensities)
        self.notes = tuple(notes)

    def _fill(
        self,
        contexts: Contexts,
        step_offsets: ArrayLike,
        chosen: ArrayLike,
        episode_offsets: ArrayLike,
        warmup: int,
        feature_names: Sequence[str] | None,
        timestamps: ArrayLike | None,
        step_ids: ArrayLike | None,
        preparation: Preparation | None,
        origin: tuple[int, int] = (0, 0),
        bound: float | None = None,
    ) -> None:
        """``bound``: the size of the largest number, where all have been looked at before."""
        # Where in its log a part of one begins: episode and step.
        self._origin = origin
        matrix = (sparse_array if is_sparse(contexts) else float_array)(contexts, "contexts")
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise LogFormatError(
                f"contexts has shape {matrix.shape}; it must be (rows, features) with at least one feature."
            )
        self.contexts = frozen(matrix)
        self.chosen = frozen(whole_numbers(chosen, "chosen"))
        self.step_offsets = frozen(rising_offsets(step_offsets, matrix.shape[0], "step_offsets", "rows"))
        self.episode_offsets = frozen(rising_offsets(episode_offsets, len(self.chosen), "episode_offsets", "steps"))
        self.warmup = warmup_count(warmup, len(self.episode_offsets) - 1)
        self.feature_names = distinct_names(feature_names, matrix.shape[1])
        self.timestamps = per_step(timestamps, len(self.chosen), "timestamps")
        self.step_ids = per_step(step_ids, len(self.chosen), "step_ids")
        self.preparation, self.notes = preparation, ()
        self.candidates_per_step = _common(np.diff(self.step_offsets))
        self._check_choices()
        self._bound = self._checked_bound() if bound is None else bound

    def _fill_rows(self, candidate_ids: ArrayLike | None, propensities: ArrayLike | None) -> None:
        """What stands beside the rows."""
        self.candidate_ids = per_step(candidate_ids, self.n_rows, "candidate_ids", "row")
        self.propensities = row_propensities(propensities, self.step_offsets, self.chosen, self._place)

    @classmethod
    def part(
        cls,
        contexts: Contexts,
        counts: NDArray[np.int64],
        chosen: NDArray[np.int64],
        *,
        origin: tuple[int, int],
        feature_names: Sequence[str] | None = None,
        timestamps: NDArray[Any] | None = None,
        step_ids: NDArray[Any] | None = None,
        candidate_ids: NDArray[Any] | None = None,
        propensities: NDArray[np.float64] | None = None,
        preparation: Preparation | None = None,
    ) -> BehaviorLog:
        """Some steps of one episode of a log that is never whole in memory; ``origin``: the episode, the first step."""
        part = cls.__new__(cls)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        edges = np.array([0, len(chosen)])
        part._fill(contexts, offsets, chosen, edges, 0, feature_names, timestamps, step_ids, preparation, origin=origin)
        part._fill_rows(candidate_ids, propensities)
        return part

    @classmethod
    def joined(cls, parts: Sequence[BehaviorLog], contexts: Contexts, notes: Iterable[Note] = ()) -> BehaviorLog:
        """Consecutive parts of a log as one, whose numbers were looked at part by part; ``contexts``: all of theirs."""
        log, head = cls.__new__(cls), parts[0]
        numbers = np.repeat([part.number for part in parts], [part.n_steps for part in parts])
        edges = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1, [len(numbers)]])
        # Of a warm-up alone it is not one: it says nothing of a policy.
        warmup = int(np.count_nonzero(numbers[edges[:-1]] < 0)) if numbers[-1] >= 0 else 0
        log._fill(
            contexts,
            np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.step_offsets) for part in parts]))]),
            np.concatenate([part.chosen for part in parts]),
            edges,
            warmup,
            head.feature_names,
            optional([part.timestamps for part in parts]),
            optional([part.step_ids for part in parts]),
            head.preparation,
            origin=(head.number + warmup, 0),
            bound=max(part._bound for part in parts),
        )
        ids, propensities = [part.candidate_ids for part in parts], [part.propensities for part in parts]
        log._fill_rows(optional(ids), optional(propensities))
        log.notes = tuple(notes)
        return log

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[tuple[Any, ArrayLike]],
        *,
        warmup: int = 0,
        feature_names: Sequence[str] | None = None,
        timestamps: ArrayLike | None = None,
        step_ids: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
    ) -> BehaviorLog:
        """Build a log from one ``(contexts, chosen)`` pair per episode.

        Parameters
        ----------
        episodes : iterable of (contexts, chosen)
            contexts: array of shape (B, M, d), or a list of B arrays of shape (M_b, d) where the number of
            candidates varies; or sparse: one matrix of shape (B * M, d), the rows of a step together, or a list of B
            matrices. chosen: B whole numbers, counted from 0. d and the float type must be the same throughout.
        warmup : int
            How many leading episodes were a random start, not chosen by the policy.
        feature_names, timestamps, step_ids, propensities
            As in `BehaviorLog`. All but the names are flat: those of one episode after the other.
        """
        if isinstance(episodes, BehaviorLog):
            raise WrongTypeError("from_episodes got a BehaviorLog, which is a log already; use it as it is.")
        parts: list[EpisodeArrays] = []
        if not isinstance(episodes, Iterable):
            raise WrongTypeError(
                f"from_episodes got {type(episodes).__name__}; it takes a list of pairs (contexts, chosen), "
                "one per episode."
            )
        # Places are named as they will be in the log: the warm-up has negative numbers.
        before = warmup if isinstance(warmup, int) else 0
        for index, pair in enumerate(episodes):
            parts.append(read_episode(pair, f"episode {index - before}", parts[0] if parts else None))
        if not parts:
            raise LogFormatError("The log is empty: from_episodes got no episode; it needs at least one.")
        counts = np.concatenate([part.counts for part in parts])
        steps = np.array([len(part.chosen) for part in parts])
        return cls(
            stacked([part.contexts for part in parts]),
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([part.chosen for part in parts]),
            np.concatenate([[0], np.cumsum(steps)]),
            warmup=warmup,
            feature_names=feature_names,
            timestamps=timestamps,
            step_ids=step_ids,
            propensities=propensities,
        )

    @classmethod
    def from_arms(
        cls,
        episodes: Iterable[tuple[ArrayLike, ArrayLike]],
        *,
        n_arms: int | None = None,
        available: Sequence[Any] | None = None,
        arm_features: ArrayLike | None = None,
        warmup: int = 0,
        feature_names: Sequence[str] | None = None,
        arm_names: Sequence[Any] | None = None,
        arm_feature_names: Sequence[str] | None = None,
        timestamps: ArrayLike | None = None,
        step_ids: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
    ) -> BehaviorLog:
        """Build a log of choices among a fixed set of arms, each with its own weights on the features of the step.

        The candidates of a step are its available arms, in their order; ``log.candidate_ids`` has their names.

        Parameters
        ----------
        episodes : iterable of (X, arm)
            X: array of shape (B, m), the features of each step; with (B, 0) an arm has one weight, its constant. No
            constant is added to features: give a column of ones for weights of an arm's own level. arm: B whole
            numbers from 0.
        n_arms : int, optional
            By default found from the largest number, the names or the features of the arms.
        available : sequence, optional
            One entry per episode: None if all arms are available, an array of n_arms bools, one of shape (B, n_arms),
            or B lists of arms. Arms may appear late, and retire.
        arm_features : array of shape (n_arms, q), optional
            Features of the arms, with weights that all arms share.
        warmup, timestamps, step_ids, propensities
            As in `from_episodes`; a row is an available arm.
        feature_names, arm_feature_names : sequences of m and of q str, optional
        arm_names : sequence of n_arms names, optional

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> episodes = [(rng.normal(size=(50, 2)), rng.integers(3, size=50)) for _ in range(4)]
        >>> log = BehaviorLog.from_arms(episodes, arm_names=["a", "b", "c"], feature_names=["age", "visits"])
        >>> log.feature_names
        ('arm=a:age', 'arm=a:visits', 'arm=b:age', 'arm=b:visits', 'arm=c:age', 'arm=c:visits')
        """
        pairs = list(episodes)
        if not pairs:
            raise LogFormatError("The log is empty: from_arms got no episode; it needs at least one.")
        shared = None if arm_features is None else float_array(arm_features, "arm_features")
        if shared is not None and (shared.ndim != 2 or shared.shape[1] == 0):
            raise LogFormatError(f"arm_features has shape {shared.shape}; expected (arms, features).")
        K = arm_count(n_arms, arm_names, shared, pairs)
        could = [None] * len(pairs) if available is None else list(available)
        if len(could) != len(pairs):
            raise LogFormatError(
                f"available has {len(could)} entries but there are {plural(len(pairs), 'episode')}; give one for each."
            )
        before = warmup if isinstance(warmup, int) else 0
        read = [
            read_arms(pair, K, some, f"episode {place - before}")
            for place, (pair, some) in enumerate(zip(pairs, could, strict=True))
        ]
        m = read[0].features.shape[1]
        for place, part in enumerate(read):
            if part.features.shape[1] != m:
                raise LogFormatError(
                    f"episode {place - before}: X has {plural(part.features.shape[1], 'feature')} but the first "
                    f"episode has {m}; every step needs the same features."
                )
        made = [arm_rows(part.features, part.available, shared) for part in read]
        names = [f"x{place}" for place in range(m)] if feature_names is None else list(feature_names)
        own = distinct_names(names, m) if m else ("",)
        q = 0 if shared is None else shared.shape[1]
        of_arms = [f"arm_x{place}" for place in range(q)] if arm_feature_names is None else list(arm_feature_names)
        arms = range(K) if arm_names is None else list(arm_names)
        never = K - len(np.unique(np.concatenate([part.arms for part in read])))
        counts = np.concatenate([each[2] for each in made])
        steps = np.array([len(part.arms) for part in read])
        return cls(
            compact(stacked([each[0] for each in made])),
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([positions(part) for part in read]),
            np.concatenate([[0], np.cumsum(steps)]),
            warmup=warmup,
            feature_names=named_features(arms, own or (), distinct_names(of_arms, q) or ()),
            timestamps=timestamps,
            step_ids=step_ids,
            candidate_ids=np.asarray(arms)[np.concatenate([each[1] for each in made])],
            propensities=propensities,
            notes=[never_chosen(never, K)] if never else [],
        )

    # -- what every log has, see `ibcb.log.protocol.Log` ---------------------------------------------------------

    @property
    def name(self) -> str:
        """Of its file: a log in memory has none."""
        return ""

    @property
    def number(self) -> int:
        """Of its first episode in the log that it is a part of; negative in a warm-up."""
        return self._origin[0] - self.warmup

    @property
    def n_episodes(self) -> int:
        """How many episodes are stored, the warm-up's included."""
        return len(self.episode_offsets) - 1

    @property
    def in_memory(self) -> bool:
        """Whether its rows are there already: always."""
        return True

    @property
    def elsewhere(self) -> None:
        """How another process could open it: not at all."""
        return

    def step_counts(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Every episode's number, and the candidates of each of its steps."""
        for _, episode in self.episodes():
            yield episode.number, np.diff(episode.step_offsets)

    def read(self) -> BehaviorLog:
        """All of it, in memory: itself."""
        return self

    # -- size ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of episodes that the policy chose; the warm-up is not counted."""
        return len(self.episode_offsets) - 1 - self.warmup

    @property
    def n_features(self) -> int:
        return int(self.contexts.shape[1])

    @property
    def n_steps(self) -> int:
        """Number of steps, the warm-up's included."""
        return len(self.chosen)

    @property
    def n_rows(self) -> int:
        """Number of candidate rows, the warm-up's included."""
        return int(self.contexts.shape[0])

    @property
    def policy_steps(self) -> slice:
        """The steps that the policy chose: all but the warm-up's."""
        return slice(int(self.episode_offsets[self.warmup]), self.n_steps)

    def densified(self) -> BehaviorLog:
        """The same log with dense contexts; itself if it has them."""
        if not is_sparse(self.contexts):
            return self
        same = self._slice(0, len(self.episode_offsets) - 1)
        same._origin, same.contexts = self._origin, frozen(dense(self.contexts))
        return same

    def with_contexts(self, contexts: Contexts, feature_names: Sequence[str] | None) -> BehaviorLog:
        """The same choices among candidates with other features, of which nothing is known but their names."""
        same = type(self).__new__(type(self))
        arrays = (self.step_offsets, self.chosen, self.episode_offsets, self.warmup, feature_names)
        same._fill(contexts, *arrays, self.timestamps, self.step_ids, None, origin=self._origin)
        same.candidate_ids, same.propensities, same.notes = self.candidate_ids, self.propensities, self.notes
        return same

    def without_contexts(self) -> BehaviorLog:
        """What stands beside the contexts, which takes little memory; for `joined` alone."""
        same = self._slice(0, len(self.episode_offsets) - 1)
        same._origin, same.contexts = self._origin, np.empty((0, self.n_features), dtype=self.contexts.dtype)
        return same

    def with_propensities(self, propensities: ArrayLike | None) -> BehaviorLog:
        """The same log with other propensities, such as ``model.propensities(log)``; None removes them.

        `ibcb.write_log` then writes them into labels of Vowpal Wabbit, `ibcb.io.to_feedback` gives them to the Open
        Bandit Pipeline.
        """
        same = self._slice(0, len(self.episode_offsets) - 1)
        same._origin = self._origin
        same.propensities = row_propensities(propensities, self.step_offsets, self.chosen, self._place)
        return same

    def step_arrays(self, steps: slice) -> tuple[Contexts, NDArray[np.int64], NDArray[np.int64]]:
        """Contexts, offsets and choices of consecutive steps, sharing the log's arrays."""
        offsets = self.step_offsets[steps.start : steps.stop + 1]
        return self.contexts[offsets[0] : offsets[-1]], offsets - offsets[0], self.chosen[steps]

    @property
    def chosen_rows(self) -> NDArray[np.int64]:
        """Row of ``contexts`` that was chosen at each step, shape (steps,)."""
        rows: NDArray[np.int64] = self.step_offsets[:-1] + self.chosen
        return rows

    def candidates(self, step: int) -> Contexts:
        """Feature rows of one step's candidates, shape (M, d); the warm-up's steps are counted, as in ``chosen``."""
        if not -self.n_steps <= step < self.n_steps:
            raise IndexError(f"step {step} does not exist; the log has steps 0 to {self.n_steps - 1}.")
        step %= self.n_steps
        return self.contexts[self.step_offsets[step] : self.step_offsets[step + 1]]

    # -- slicing ---------------------------------------------------------------------------------------------

    def __getitem__(self, key: SupportsIndex | slice) -> BehaviorLog:
        """Some consecutive episodes as a log that shares this one's arrays.

        A slice that begins at the first episode keeps the warm-up before it. One that begins later starts in
        the middle of the decider's life: see ``IBCB(prior_gram=...)``.
        """
        if isinstance(key, slice):
            start, stop, stride = key.indices(len(self))
            if stride != 1:
                raise ValueError(f"log[{_show(key)}] skips episodes; only consecutive episodes make a log.")
            if stop <= start:
                raise IndexError(f"log[{_show(key)}] holds no episode; the log has episodes 0 to {len(self) - 1}.")
        else:
            index = operator.index(key)
            start = index + len(self) if index < 0 else index
            if not 0 <= start < len(self):
                raise IndexError(f"episode {index} does not exist; the log has episodes 0 to {len(self) - 1}.")
            stop = start + 1
        return self._slice(0 if start == 0 else start + self.warmup, stop + self.warmup)

    def __iter__(self) -> Iterator[BehaviorLog]:
        """Each episode as a log of one episode; the first carries the warm-up."""
        return (self[n] for n in range(len(self)))

    def head(self, fraction: float) -> BehaviorLog:
        """The first ``floor(fraction * N)`` episodes and the warm-up before them: the paper's ce_rate."""
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float, np.number)):
            raise WrongTypeError(f"head({fraction!r}): the fraction of episodes must be a number.")
        if not 0 < fraction <= 1:
            raise ValueError(f"head({fraction}): the fraction of episodes must be above 0 and at most 1.")
        # 0.29 * 100 is 28.999...: a fraction that names a whole number of episodes gets that number.
        count = math.floor(fraction * len(self) + 1e-9)
        if count == 0:
            raise ValueError(
                f"head({fraction}) of {len(self)} episodes holds no whole episode; take at least {1 / len(self):.3g}."
            )
        return self[:count]

    def recut(self, edges: ArrayLike) -> BehaviorLog:
        """The same steps in other episodes; the warm-up stays, and the arrays are shared.

        Parameters
        ----------
        edges : array of int
            The first step of each episode, counted after the warm-up, beginning with 0; such as those that
            `ibcb.find_updates` finds.
        """
        start = int(self.episode_offsets[self.warmup])
        cut = start + first_steps(edges, self.n_steps - start)
        same = self._slice(0, len(self.episode_offsets) - 1)
        same.episode_offsets = frozen(np.concatenate([self.episode_offsets[: self.warmup], cut, [self.n_steps]]))
        return same

    def _slice(self, first: int, last: int) -> BehaviorLog:
        """Episodes first to last - 1, the warm-up's counted, sharing the arrays."""
        steps = slice(int(self.episode_offsets[first]), int(self.episode_offsets[last]))
        offsets = self.step_offsets[steps.start : steps.stop + 1]
        part = type(self).__new__(type(self))
        part._bound, part._origin = self._bound, (self._origin[0] + (0 if first == 0 else first - self.warmup), 0)
        part.contexts = self.contexts[offsets[0] : offsets[-1]]
        part.step_offsets = _rebased(offsets)
        part.chosen = self.chosen[steps]
        part.episode_offsets = _rebased(self.episode_offsets[first : last + 1])
        part.warmup = self.warmup if first == 0 else 0
        part.feature_names = self.feature_names
        part.preparation, part.notes = self.preparation, self.notes
        part.timestamps = None if self.timestamps is None else self.timestamps[steps]
        part.step_ids = None if self.step_ids is None else self.step_ids[steps]
        part.candidate_ids = None if self.candidate_ids is None else self.candidate_ids[offsets[0] : offsets[-1]]
        part.propensities = None if self.propensities is None else self.propensities[offsets[0] : offsets[-1]]
        part.candidates_per_step = self.candidates_per_step
        if part.candidates_per_step is None:
            part.candidates_per_step = _common(np.diff(part.step_offsets))
        return part

    def episodes(self) -> Iterator[tuple[bool, BehaviorLog]]:
        """Every stored episode in order as ``(the policy chose it, episode)``; the warm-up comes first."""
        for index in range(len(self.episode_offsets) - 1):
            episode = self._slice(index, index + 1)
            episode.warmup, episode._origin = 0, (self._origin[0] + index - self.warmup, 0)
            yield index >= self.warmup, episode

    def parts(self) -> Iterator[tuple[int, BehaviorLog]]:
        """Every stored episode as ``(number, part)``, large ones in several parts; the warm-up's number is negative."""
        most = max(1, DENSE_NUMBERS // self.n_features) if is_sparse(self.contexts) else _PART_ROWS
        for number, (_, episode) in enumerate(self.episodes(), start=-self.warmup):
            for piece in episode.pieces(most):
                yield number, piece

    def pieces(self, most: int) -> Iterator[BehaviorLog]:
        """A single episode in parts of so many rows at most, whole steps each."""
        offsets, first = self.step_offsets, 0
        while first < self.n_steps:
            last = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
            last = min(max(last, first + 1), self.n_steps)
            yield self if last - first == self.n_steps else self._steps(first, last)
            first = last

    def steps(self, number: int, first: int, last: int) -> Iterator[BehaviorLog]:
        """Steps first to last - 1 of the episode with that number."""
        for _, episode in self.episodes():
            if episode.number == number:
                yield episode._steps(first, last)

    def _steps(self, first: int, last: int) -> BehaviorLog:
        """Steps first to last - 1 of a single episode, sharing the arrays."""
        rows = slice(int(self.step_offsets[first]), int(self.step_offsets[last]))
        part = self._slice(0, 1)
        part._origin = (self._origin[0], self._origin[1] + first)
        part.contexts = self.contexts[rows]
        part.step_offsets = _rebased(self.step_offsets[first : last + 1])
        part.chosen = self.chosen[first:last]
        part.episode_offsets = frozen(np.array([0, last - first]))
        part.timestamps = None if self.timestamps is None else self.timestamps[first:last]
        part.step_ids = None if self.step_ids is None else self.step_ids[first:last]
        part.candidate_ids = None if self.candidate_ids is None else self.candidate_ids[rows]
        part.propensities = None if self.propensities is None else self.propensities[rows]
        part.candidates_per_step = _common(np.diff(part.step_offsets))
        return part

    # -- checks ----------------------------------------------------------------------------------------------

    def _check_choices(self) -> None:
        for offsets, what in ((self.episode_offsets, "episode"), (self.step_offsets, "step")):
            if len(offsets) < 2:
                raise LogFormatError(f"The log is empty: it has no {what}; it needs at least one.")
        steps = np.diff(self.episode_offsets)
        if (steps <= 0).any():
            index = int(np.argmax(steps <= 0))
            raise LogFormatError(f"episode {index} has no steps; leave it out or give it the steps it had.")
        if len(self.step_offsets) - 1 != self.n_steps:
            raise LogFormatError(
                f"step_offsets marks {len(self.step_offsets) - 1} steps but chosen has {self.n_steps} entries; "
                "they must be as many (step_offsets is one longer)."
            )
        counts = np.diff(self.step_offsets)
        if (counts <= 0).any():
            place = self._place(int(np.argmax(counts <= 0)))
            raise LogFormatError(f"{place}: the step has no candidates; leave it out.")
        wrong = (self.chosen < 0) | (self.chosen >= counts)
        if wrong.any():
            step = int(np.argmax(wrong))
            raise LogFormatError(
                f"{self._place(step)}: chosen is {self.chosen[step]} but the step has "
                f"{plural(int(counts[step]), 'candidate')}; indices start at 0."
            )

    def _checked_bound(self) -> float:
        """A bound on the size of all numbers; refuses what is not finite."""
        bound = 0.0
        for start, block in self._number_blocks():
            numbers = block.data if is_sparse(block) else block
            # The sum of squares is finite unless a term is not, or it overflows: rarely needs the elementwise look.
            with np.errstate(over="ignore", invalid="ignore"):
                squares = float(np.vdot(numbers, numbers))
            if not math.isfinite(squares):
                why = "contexts must be finite. Impute the value or drop the step"
                self._refuse(dense(block), start, ~np.isfinite(dense(block)), why)
                squares = math.inf
            bound = max(bound, math.sqrt(squares))
        return bound

    def check_sizes(self, most: float = LARGEST) -> None:
        """Raise LogFormatError, with its place, for a number that is too large to be reckoned with.

        A log may hold any finite number; whoever sums squares calls this first.
        """
        if self._bound <= most or self.contexts.dtype == np.float32:  # which has none as large
            return
        why = f"powers of numbers beyond {most:g} overflow. Rescale it to about 1"
        for start, block in self._number_blocks():
            self._refuse(dense(block), start, np.abs(dense(block)) > most, why)

    def _number_blocks(self) -> Iterator[tuple[int, Contexts]]:
        """Some rows at a time, with the number of the first."""
        for start in range(0, self.n_rows, _FINITE_CHECK_ROWS):
            yield start, self.contexts[start : start + _FINITE_CHECK_ROWS]

    def _refuse(self, block: NDArray[Any], start: int, wrong: NDArray[np.bool_], why: str) -> None:
        """Raise LogFormatError for the first of the wrong numbers in a block, if there is one."""
        for row, column in np.argwhere(wrong)[:1].tolist():
            step = int(np.searchsorted(self.step_offsets, start + row, side="right")) - 1
            raise LogFormatError(
                f"{self._place(step)}, candidate {start + row - int(self.step_offsets[step])}: feature "
                f"{self._feature(column)} is {block[row, column]}; {why}."
            )

    def _place(self, step: int) -> str:
        episode = int(np.searchsorted(self.episode_offsets, step, side="right")) - 1
        number = self._origin[0] + episode - self.warmup
        warmup = " (warm-up)" if number < 0 else ""
        return f"episode {number}{warmup}, step {self._origin[1] + step - int(self.episode_offsets[episode])}"

    def _feature(self, column: int) -> str:
        return str(column) if self.feature_names is None else repr(self.feature_names[column])

    def _repr_html_(self) -> str:
        return log_html(self)

    def __repr__(self) -> str:
        warmup = f" after {self.warmup} of warm-up" if self.warmup else ""
        counts = np.diff(self.step_offsets)
        each = f"{plural(int(counts[0]), 'candidate')} each"
        if self.candidates_per_step is None:
            each = f"{counts.min()} to {counts.max()} candidates"
        return (
            f"BehaviorLog({plural(len(self), 'episode')}{warmup}, {plural(self.n_steps, 'step')}, {each}, "
            f"{plural(self.n_features, 'feature')}, {'sparse ' if is_sparse(self.contexts) else ''}"
            f"{self.contexts.dtype})"
        )


def _common(counts: NDArray[np.int64]) -> int | None:
    return int(counts[0]) if len(counts) and (counts == counts[0]).all() else None


def _rebased(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    return offsets if offsets[0] == 0 else frozen(offsets - offsets[0])


def optional(arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Arrays of consecutive parts as one; None where the log has none."""
    known = [array for array in arrays if array is not None]
    return joined_arrays(known) if known else None


def joined_arrays(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Consecutive arrays as one, without a copy of a single one."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _show(key: slice) -> str:
    return ":".join("" if part is None else str(part) for part in (key.start, key.stop, key.step)).removesuffix(":")


def dense_pieces(episode: BehaviorLog) -> Iterator[BehaviorLog]:
    """A single episode, or part of one, with dense contexts: itself, or in pieces that are small enough."""
    if not is_sparse(episode.contexts):
        yield episode
        return
    for piece in episode.pieces(max(1, DENSE_NUMBERS // episode.n_features)):
        yield piece.densified()


def argmax_per_step(scores: NDArray[Any], log: BehaviorLog) -> NDArray[np.int64]:
    """Position of the best candidate of each step, the first of equals. Shape (steps,)."""
    if log.candidates_per_step is not None:
        best: NDArray[np.int64] = scores.reshape(-1, log.candidates_per_step).argmax(axis=1)
        return best
    starts, counts = log.step_offsets[:-1], np.diff(log.step_offsets)
    top = np.repeat(np.maximum.reduceat(scores, starts), counts)
    rows = np.flatnonzero(scores == top)
    steps = np.searchsorted(log.step_offsets, rows, side="right") - 1
    _, first = np.unique(steps, return_index=True)
    positions: NDArray[np.int64] = rows[first] - starts
    return positions
