"""What a reader of a fitted model should know, as notes; and what is looked for in a log to say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from scipy import sparse

from ibcb.deciders import Kind
from ibcb.engine import Episode, Heading
from ibcb.inverse.solvers import InfeasibleError, SolverError
from ibcb.log import BehaviorLog, Log
from ibcb.log.behavior_log import DENSE_NUMBERS
from ibcb.log.notes import Note
from ibcb.log.validation.first_episode import missing_past
from ibcb.tracking import Track, learns, projects
from ibcb.tracking.contenders import Tracks, UntrackedError

#: names in a note
_MOST_NAMES = 12
#: rates of sampling: that which is tried first, and the others
_MIDDLE, _OTHERS = 0.1, (0.3, 0.03)
#: episodes that are looked at: the first, in which l2 still matters
_EPISODES = 6
#: numbers of an episode up to which it is held, 32 MB; not tuned
_HELD_NUMBERS = 1 << 22
#: share of its policy that a decider owes to l2, after its first episode, below which no rate would show; not tuned
_MATTERS = 0.05
#: log-likelihood that a rate must add, and the share of the most that any adds from which a larger one is preferred
#: (judged on 16 logs, decision 0015)
_CLEAR, _ENOUGH = 20.0, 0.85
#: times the typical size of its feature above which a number stands out; not tuned
_FAR = 1e4

NOTHING_LEARNED = Note(
    "nothing-learned",
    "warning",
    "coef_ is zero, because zero explains every choice so far: the log says nothing about the rewards yet. Either "
    "candidates do not differ, or steps have one candidate, or exploration alone decided.",
)


def no_exact_solution(error: SolverError, kind: Kind) -> Note:
    """Why the whole log was solved in robust mode."""
    rows = "sbts" if kind.per_unit is None else "sbucb"
    return Note(
        "no-exact-solution",
        "warning" if kind.deterministic else "info",
        f"no exact solution as {kind.label}: {reason(error)}. The whole log was solved in robust mode.",
        {"rows": rows, "l2": kind.l2, "units": kind.units},
    )


def reason(error: SolverError) -> str:
    """Why a problem has no exact solution, in a clause."""
    if not isinstance(error, InfeasibleError):
        return str(error).partition(";")[0]
    steps = list(dict.fromkeys(f"{row.episode}:{row.step}" for row in error.certificate))
    return f"steps {', '.join(steps)} (episode:step) contradict each other"


def not_tracked(place: int, error: Exception) -> Note:
    """Why there is no track."""
    return Note(
        "not-tracked",
        "warning",
        f"the policy could not be tracked beyond stored episode {place} ({error or type(error).__name__}), so "
        "forecasts are the policy that coef_ leads to; rescale the contexts to about 1.",
        {"episode": place},
    )


def policy_is_coef(kind: Kind) -> Note:
    """What coef_ means of a decider that does not learn, or not in a known way."""
    learns = f"how a decider of the kind {kind.name!r} learns is not known"
    if kind.motions.stays:
        learns = f"a decider of the kind {kind.name!r} does not learn"
    return Note(
        "coef-is-policy",
        "info",
        f"{learns}, so coef_ is its policy right after the log, and not rewards: its direction tells what is "
        "preferred, its length how sharply.",
        {"kind": kind.name},
    )


def how_it_moves(track: Track) -> Note:
    """What the model believed means for the forecast."""
    now = track.seen
    walks = track.models.by_family(now.hits)[0]
    missed, rival = now.compared - int(now.hits[now.best]), now.compared - int(walks.max())
    figures: dict[str, int | str] = {
        "model": track.model,
        "compared": now.compared,
        "predicted": int(now.hits[now.best]),
    }
    if not learns(track):
        return Note(
            "last-policy-forecast",
            "info",
            "from each episode of the log to the next, no learner misses fewer of the choices than the last policy "
            f"does ({missed:,} of {now.compared:,}), so the forecast is the last policy.",
            figures,
        )
    follows = "we project it forward" if projects(track) else "we project it forward by one update, no further"
    return Note(
        "learner-forecast",
        "info",
        "projected from each episode of the log to the next as ridge regression learns, the policy misses "
        f"{missed:,} of {now.compared:,} choices (one that does not learn: {rival:,}), so {follows}.",
        figures,
    )


def few_steps(steps: int, features: int) -> tuple[Note, ...]:
    """That a log is too short for its features."""
    if steps >= features:
        return ()
    text = (
        f"{steps} steps cannot tell {features} weights apart: most of the result rests on assumptions. Use fewer "
        "features, or a longer log."
    )
    return (Note("few-steps", "warning", text, {"steps": steps, "features": features}),)


def undetermined(names: tuple[str, ...]) -> tuple[Note, ...]:
    """Which weights the choices do not determine."""
    if not names:
        return ()
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    if len(names) == 1:
        text = f"the choices do not determine the weight of feature {shown}: none depends on it, or too few do."
    else:
        text = (
            f"the choices do not determine the weights of features {shown}{more} one by one: none depends on some "
            "combination of them, or too few do. Read them together, or leave one out."
        )
    return (Note("undetermined-features", "warning", text, {"features": names}),)


def late_start(heading: Heading, kind: Kind) -> tuple[Note, ...]:
    """A note where the first episode looks as if there had been others before it, in whichever units."""
    if heading.warmup or not kind.learns:
        return ()
    block, offsets, notes = heading.first, heading.first.offsets, list[Note]()
    steps = BehaviorLog(block.contexts, offsets, block.chosen_rows - offsets[:-1], [0, len(offsets) - 1])
    first = next(steps.pieces(max(1, DENSE_NUMBERS // steps.n_features))).densified()
    # One that knows nothing in some units may know nothing.
    for frame in (None, *heading.moments.frames()):
        missing = missing_past(first, bonus=kind.per_unit is not None, frame=frame)
        if missing is None:
            return ()
        notes.append(missing)
    return tuple(notes[:1])


# -- is the log a sample of the decider's choices? Then its Gram matrix grew faster than the log shows -----------------
#
# A rate enters as a factor of l2 alone (`ibcb.numerics.ridge`), so that choices tell no rate from another l2. What they
# do tell is that the l2 of the fit, given or the least that was tried, is too large for the Gram matrix of the log.
# Only those of a decider that draws do: its spread shows beside its policy. Of one that adds a bonus the log-likelihood
# favours one rate or another by chance (decision 0015).


@dataclass(frozen=True)
class Sampling:
    """The first episodes, on which the same decider at another rate is compared with the fit in the end.

    Attributes
    ----------
    kind : Kind
        Of the fit.
    held : tuple of Episode
    matters : bool
        Whether a rate would show: only the choices of a decider that draws tell.
    """

    kind: Kind
    matters: bool
    held: tuple[Episode, ...] = ()

    def step(self, episode: Episode) -> Sampling:
        """One more episode, should it still be told."""
        if not self.matters or episode.number >= _EPISODES:
            return self
        matters = episode.lesson.n_rows * len(episode.lesson.total) <= _HELD_NUMBERS
        if episode.number == 0:
            owed = 1 - np.diag(self.kind.ridge(episode.after).shrinkage)
            matters = matters and bool(np.mean(owed) >= _MATTERS)
        return replace(self, held=(*self.held, episode), matters=matters)

    def finish(self, track: Track) -> tuple[Note, ...]:
        """A note where a decider that made more choices than the log has would explain it clearly better.

        ``track``: of the fit, through these episodes or more.
        """
        if not self.matters:
            return ()
        # Most logs are whole, as a rate in the middle tells.
        gains = {_MIDDLE: self._gain(track, _MIDDLE)}
        if not gains[_MIDDLE] > _CLEAR:
            return ()
        gains |= {rate: self._gain(track, rate) for rate in _OTHERS}
        # The largest that will do: less and less is gained by going on.
        enough = _ENOUGH * max(gains.values())
        rate, gain = max((rate, gain) for rate, gain in gains.items() if gain >= enough)
        count = sum(episode.by_policy for episode in self.held)
        text = (
            f"the first {count} episodes are explained better (log-likelihood +{gain:.0f}) by a decider that made "
            f"about {1 / rate:.0f} times the choices of the log. If the log is a sample, set sampling_rate={rate:g} "
            f"(--sampling-rate {rate:g}). If it is complete, l2={self.kind.l2:g} is too large by that factor."
        )
        return (Note("looks-sampled", "info", text, {"rate": rate, "gain": gain}),)

    def _gain(self, track: Track, rate: float) -> float:
        """Log-likelihood that a rate adds; -inf where that cannot be said."""
        tracks = Tracks.begin([replace(self.kind, rate=rate)], self.held[0].before.chosen.phi)
        # Where numbers cannot hold the choices of such a decider, what the fit says of it is enough.
        try:
            with np.errstate(all="ignore"):
                for episode in self.held:
                    tracks = tracks.after(episode)
        except UntrackedError:
            return -np.inf
        count = tracks.episodes
        if count < 3 or any(tracks.failures):
            return -np.inf
        judged = tracks.judged[max(2, count // 3) :]
        own = [each.log_likelihood for each in track.predicted[count - len(judged) : count]]
        here = float(np.average(own, weights=[each.steps for each in judged]))
        steps = sum(len(episode.lesson.chosen) for episode in self.held if episode.number > 0)
        return steps * (reduce(add, judged).per_step(0) - here)


# -- what to look at first where numbers cannot hold what a fit needs --------------------------------------------------


def largest_outlier(logs: Sequence[Log]) -> str:
    """Which number is the most times as large as its feature mostly is, in words; "" where none is far off."""
    medians, peaks, count = list[Any](), list[Any](), 0
    for log in logs:
        for number, parts in log.parts_by_episode():
            first = 0
            for part in parts:
                X = abs(sparse.csc_array(part.contexts, dtype=np.float64))
                X.eliminate_zeros()
                columns = np.split(X.data, X.indptr[1:-1])
                medians.append([np.median(column) if len(column) else 0.0 for column in columns])
                rows = np.asarray(X.argmax(axis=0)).ravel()
                steps = part.step_offsets.searchsorted(rows, side="right") - 1
                values = part.contexts[rows, np.arange(len(rows))]
                peaks.append((count if number >= 0 else number, first + steps, rows - part.step_offsets[steps], values))
                first += part.n_steps
            count += number >= 0
    usual = np.array([np.median(own[own > 0]) if own.any() else np.inf for own in np.transpose(medians)])
    with np.errstate(over="ignore"):
        ratios = np.abs([values for *_, values in peaks]) / usual
    place, column = np.unravel_index(int(ratios.argmax()), ratios.shape)
    if ratios[place, column] < _FAR:
        return ""
    (episode, steps, candidates, values), names = peaks[place], logs[0].feature_names
    where = f"episode {episode}{' (warm-up)' * (episode < 0)}, step {steps[column]}, candidate {candidates[column]}"
    name = str(column) if names is None else repr(names[column])
    return (
        f"Look at {where}: feature {name} is {values[column]:.6g}, but about {usual[column]:.3g} elsewhere. "
        "Correct it, or leave the step out."
    )
