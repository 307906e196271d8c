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

import copy
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcb.log.array_checks import (
    LogFormatError,
    context_array,
    distinct_names,
    first_steps,
    first_true,
    float_array,
    frozen,
    joined_arrays,
    offsets_of,
    per_step,
    plural,
    rising_offsets,
    runs,
    step_place,
    warmup_count,
    whole_numbers,
)
from ibcb.log.choice_propensities import row_propensities
from ibcb.log.notes import Note
from ibcb.log.pairs import arm_count, arm_steps, never_chosen, read_arm_pair, read_pairs, read_sets
from ibcb.log.protocol import Log
from ibcb.log.recipe import Preparation
from ibcb.log.recipe import arm_feature_names as named_features
from ibcb.log.steps import Steps
from ibcb.numerics.contexts import LARGEST, Contexts, best_rows, compact, dense, is_sparse
from ibcb.numerics.printable import WrongTypeError

_FINITE_CHECK_ROWS = 65_536
_PART_ROWS = 1 << 18
#: what sparse contexts may become at a time where they are needed dense, 32 MB; not tuned finely
DENSE_NUMBERS = 1 << 22
#: what a log has of every step, and of every row; of these, what it may be without
_OF_STEPS, _OF_ROWS = ("chosen", "timestamps", "step_ids"), ("contexts", "candidate_ids", "propensities")
_BESIDE = ("timestamps", "step_ids", "candidate_ids", "propensities")


@dataclass(init=False, eq=False, repr=False, slots=True)
class BehaviorLog(Log):
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
    origin : (int, int)
        Of a part of a log: the episode of its first step, of those that the policy chose, and the step within it.
    bound : float, optional
        The size of the largest number, where all have been looked at before.

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
    _origin: tuple[int, int]
    _bound: float

    name = ""
    in_memory = True
    elsewhere = None

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
        origin: tuple[int, int] = (0, 0),
        bound: float | None = None,
    ) -> None:
        self._origin = origin
        matrix = context_array(contexts, "contexts")
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise LogFormatError(
                f"contexts has shape {matrix.shape}; it must be (rows, features) with at least one feature."
            )
        rows, d = matrix.shape
        self.contexts = frozen(matrix)
        self.chosen = frozen(whole_numbers(chosen, "chosen"))
        self.step_offsets = frozen(rising_offsets(step_offsets, rows, "step_offsets", "rows"))
        self.episode_offsets = frozen(rising_offsets(episode_offsets, len(self.chosen), "episode_offsets", "steps"))
        self.warmup = warmup_count(warmup, len(self.episode_offsets) - 1)
        self.feature_names = distinct_names(feature_names, d)
        self.timestamps = per_step(timestamps, len(self.chosen), "timestamps")
        self.step_ids = per_step(step_ids, len(self.chosen), "step_ids")
        self.preparation, self.notes = preparation, tuple(notes)
        self.candidates_per_step = _common(np.diff(self.step_offsets))
        self._check_choices()
        self._bound = self._checked_bound() if bound is None else bound
        self.candidate_ids = per_step(candidate_ids, rows, "candidate_ids", "row")
        self.propensities = row_propensities(propensities, self.step_offsets, self.chosen, self._place)

    @classmethod
    def part(cls, steps: Steps, origin: tuple[int, int], **more: Any) -> BehaviorLog:
        """Some steps of one episode of a log that is never whole in memory; ``origin``: the episode, the first step."""
        return cls.of_steps([steps], [0, len(steps.chosen)], origin=origin, **more)

    @classmethod
    def joined(cls, parts: Sequence[BehaviorLog], contexts: Contexts, notes: Iterable[Note] = ()) -> BehaviorLog:
        """Consecutive parts of a log as one, whose numbers were looked at part by part; ``contexts``: all of theirs."""
        head, numbers = parts[0], np.repeat([part.number for part in parts], [part.n_steps for part in parts])
        edges = runs(numbers)
        # Of a warm-up alone it is not one: it says nothing of a policy.
        warmup = int(np.count_nonzero(numbers[edges[:-1]] < 0)) if numbers[-1] >= 0 else 0
        return cls(
            contexts,
            offsets_of(np.concatenate([np.diff(part.step_offsets) for part in parts])),
            np.concatenate([part.chosen for part in parts]),
            edges,
            warmup=warmup,
            feature_names=head.feature_names,
            preparation=head.preparation,
            notes=notes,
            origin=(head.number + warmup, 0),
            bound=max(part._bound for part in parts),
            **{name: joined_arrays(getattr(part, name) for part in parts) for name in _BESIDE},
        )

    @classmethod
    def of_steps(cls, batches: Sequence[Steps], episode_offsets: ArrayLike, **more: Any) -> BehaviorLog:
        """Consecutive steps as one log; ``more``: as in `BehaviorLog`."""
        steps = Steps.joined(batches)
        beside = {name: getattr(steps, name) for name in _BESIDE}
        return cls(steps.contexts, offsets_of(steps.counts), steps.chosen, episode_offsets, **beside | more)

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
        if isinstance(episodes, Log):
            raise WrongTypeError("from_episodes got a BehaviorLog, which is a log already; use it as it is.")
        steps = list(read_pairs(episodes, warmup, read_sets, "from_episodes").values())
        edges = offsets_of([len(each.chosen) for each in steps])
        beside: dict[str, Any] = {"timestamps": timestamps, "step_ids": step_ids, "propensities": propensities}
        return cls.of_steps(steps, edges, warmup=warmup, feature_names=feature_names, **beside)

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
        pairs = read_pairs(episodes, warmup, read_arm_pair, "from_arms")
        shared = None if arm_features is None else float_array(arm_features, "arm_features")
        if shared is not None and (shared.ndim != 2 or shared.shape[1] == 0):
            raise LogFormatError(f"arm_features has shape {shared.shape}; expected (arms, features).")
        K = arm_count(n_arms, arm_names, shared, pairs.values())
        could = [None] * len(pairs) if available is None else list(available)
        if len(could) != len(pairs):
            raise LogFormatError(
                f"available has {len(could)} entries but there are {plural(len(pairs), 'episode')}; give one for each."
            )
        every = zip(pairs.items(), could, strict=True)
        whole = Steps.joined([arm_steps(pair, some, K, shared, place) for (place, pair), some in every])
        m, q = next(iter(pairs.values())).features.shape[1], 0 if shared is None else shared.shape[1]
        names = [f"x{place}" for place in range(m)] if feature_names is None else feature_names
        own = distinct_names(names, m) if m else ("",)
        of_arms = [f"arm_x{place}" for place in range(q)] if arm_feature_names is None else arm_feature_names
        arms = range(K) if arm_names is None else list(arm_names)
        all_names = named_features(arms, own or (), distinct_names(of_arms, q) or ())
        never = K - len(np.unique(np.concatenate([pair.arms for pair in pairs.values()])))
        notes = [never_chosen(never, K)] if never else []
        whole = whole._replace(contexts=compact(whole.contexts), candidate_ids=np.asarray(arms)[whole.candidate_ids])
        edges = offsets_of([len(pair.arms) for pair in pairs.values()])
        beside: dict[str, Any] = {"timestamps": timestamps, "step_ids": step_ids, "propensities": propensities}
        return cls.of_steps([whole], edges, warmup=warmup, feature_names=all_names, notes=notes, **beside)

    # -- what every log has, see `ibcb.log.protocol.Log` ---------------------------------------------------------

    @property
    def number(self) -> int:
        return self._origin[0] - self.warmup

    @property
    def n_episodes(self) -> int:
        return len(self.episode_offsets) - 1

    def step_counts(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        for _, episode in self.episodes():
            yield episode.number, np.diff(episode.step_offsets)

    def read(self) -> BehaviorLog:
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

    def _with(self, **changes: Any) -> BehaviorLog:
        """The same log, but for some attributes."""
        same = copy.copy(self)
        for name, value in changes.items():
            setattr(same, name, value)
        return same

    def densified(self) -> BehaviorLog:
        """The same log with dense contexts; itself if it has them."""
        return self._with(contexts=frozen(dense(self.contexts))) if is_sparse(self.contexts) else self

    def with_contexts(self, contexts: Contexts, feature_names: Sequence[str] | None) -> BehaviorLog:
        """The same choices among candidates with other features, of which nothing is known but their names."""
        arrays = (self.step_offsets, self.chosen, self.episode_offsets)
        names = ("warmup", "notes", *_BESIDE)
        same = {name: getattr(self, name) for name in names}
        return type(self)(contexts, *arrays, feature_names=feature_names, origin=self._origin, **same)

    def without_contexts(self) -> BehaviorLog:
        """What stands beside the contexts, which takes little memory; for `joined` alone."""
        return self._with(contexts=np.empty((0, self.n_features), dtype=self.contexts.dtype))

    def with_propensities(self, propensities: ArrayLike | None) -> BehaviorLog:
        """The same log with other propensities, such as ``model.propensities(log)``; None removes them.

        `ibcb.write_log` then writes them into labels of Vowpal Wabbit, `ibcb.io.to_feedback` gives them to the Open
        Bandit Pipeline.
        """
        propensities = row_propensities(propensities, self.step_offsets, self.chosen, self._place)
        return self._with(propensities=propensities)

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
            some, said = range(len(self))[key], f"log[{_show(key)}] holds no episode"
            if some.step != 1:
                raise ValueError(f"log[{_show(key)}] skips episodes; only consecutive episodes make a log.")
        else:
            index = operator.index(key)
            start, said = index + len(self) * (index < 0), f"episode {index} does not exist"
            some = range(max(start, 0), min(start + 1, len(self)))
        if not some:
            raise IndexError(f"{said}; the log has episodes 0 to {len(self) - 1}.")
        return self._slice(0 if some.start == 0 else some.start + self.warmup, some.stop + self.warmup)

    def __iter__(self) -> Iterator[BehaviorLog]:
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
        offsets = np.concatenate([self.episode_offsets[: self.warmup], cut, [self.n_steps]])
        return self._with(episode_offsets=frozen(offsets), _origin=(self._origin[0], 0))

    def _slice(self, first: int, last: int) -> BehaviorLog:
        """Episodes first to last - 1, the warm-up's counted, sharing the arrays."""
        edges = self.episode_offsets[first : last + 1]
        part = self._steps(int(edges[0]), int(edges[-1]))
        part.episode_offsets, part.warmup = _rebased(edges), self.warmup if first == 0 else 0
        part._origin = (self._origin[0] + (0 if first == 0 else first - self.warmup), 0)
        return part

    def _steps(self, first: int, last: int) -> BehaviorLog:
        """Steps first to last - 1 of a single episode, sharing the arrays."""
        offsets = self.step_offsets[first : last + 1]
        places = dict.fromkeys(_OF_STEPS, slice(first, last)) | dict.fromkeys(_OF_ROWS, slice(offsets[0], offsets[-1]))
        taken = {name: getattr(self, name)[some] for name, some in places.items() if getattr(self, name) is not None}
        return self._with(
            **taken,
            step_offsets=_rebased(offsets),
            episode_offsets=frozen(np.array([0, last - first])),
            candidates_per_step=self.candidates_per_step or _common(np.diff(offsets)),
            _origin=(self._origin[0], self._origin[1] + first),
        )

    def episodes(self) -> Iterator[tuple[bool, BehaviorLog]]:
        for index in range(len(self.episode_offsets) - 1):
            episode = self._slice(index, index + 1)
            episode.warmup, episode._origin = 0, (self.number + index, 0)
            yield index >= self.warmup, episode

    def parts(self) -> Iterator[tuple[int, BehaviorLog]]:
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
        for _, episode in self.episodes():
            if episode.number == number:
                yield episode._steps(first, last)

    # -- checks ----------------------------------------------------------------------------------------------

    def _check_choices(self) -> None:
        for offsets, what in ((self.episode_offsets, "episode"), (self.step_offsets, "step")):
            if len(offsets) < 2:
                raise LogFormatError(f"The log is empty: it has no {what}; it needs at least one.")
        steps = np.diff(self.episode_offsets)
        if (index := first_true(steps <= 0)) is not None:
            raise LogFormatError(f"episode {index} has no steps; leave it out or give it the steps it had.")
        if len(self.step_offsets) - 1 != self.n_steps:
            raise LogFormatError(
                f"step_offsets marks {len(self.step_offsets) - 1} steps but chosen has {self.n_steps} entries; "
                "they must be as many (step_offsets is one longer)."
            )
        counts = np.diff(self.step_offsets)
        if (step := first_true(counts <= 0)) is not None:
            raise LogFormatError(f"{self._place(step)}: the step has no candidates; leave it out.")
        if (step := first_true((self.chosen < 0) | (self.chosen >= counts))) is not None:
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
        number, first = self._origin[0] + episode - self.warmup, self._origin[1] - int(self.episode_offsets[episode])
        return step_place(number, first, step)

    def _feature(self, column: int) -> str:
        return str(column) if self.feature_names is None else repr(self.feature_names[column])

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
    return best_rows(scores, log.step_offsets) - log.step_offsets[:-1]
