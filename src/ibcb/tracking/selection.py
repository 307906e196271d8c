"""Which kind of decider left a log, told without rewards: by how well each kind predicts its choices.

Every candidate kind goes through the log once, with a tracker of its own. Before each episode it has a belief of the
policy from the episodes before, and gives every candidate a probability (`ibcb.deciders.Kind.propensities`). What
decides is one figure with one meaning for every kind: the log-likelihood of each choice under the probabilities
foreseen from the episodes before, over all episodes but the first.

A selection is a value that steps from episode to episode (`Selecting`). What took long to find is in its `Tracks`: with
these and the log, a selection that was stopped goes on to the same bits.

Kinds that are about as likely are told apart by what they leave open. One that says how the decider chooses goes before
one that does not; a decider all of whose choices are exactly the best with a bonus adds one; and one that moves must be
clearly likelier than one that does not. Where such a rule overrides the likeliest kind, a note says so, with both
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ibcb.deciders import Kind
from ibcb.engine import Rows, Workers, episodes
from ibcb.inverse.constraints import Experience, experienced
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.log.notes import Note
from ibcb.numerics.laplace import draw_scale
from ibcb.numerics.ridge import Chosen
from ibcb.tracking.contenders import Judged, Out, Ridges, Scored, Tracks, scored
from ibcb.tracking.tracker import Track

__all__ = ["Candidate", "Selecting", "Selection", "select"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]

#: lead in standard errors below which two kinds are about as likely (judged by benchmarks/selection.py)
_EQUAL = 2.0
#: lead, and share of what is told of the choices, at which a ridge in units of the features is believed instead of one
#: that was given in mixed units; not tuned: either is a guess
_UNITS_LEAD, _UNITS_GAIN = 2.0, 0.001
#: lead of a kind that adds a bonus below which one that explores at random is believed instead: either explains that
#: some choices are not the best
_EQUAL_TO_BONUS = 1.0
#: share of what the best kind tells of the choices that another may tell less and be about as likely, however many
#: choices there are: how well a policy is tracked differs by as much
_LITTLE = 0.007
#: the same of a kind that leaves less open
_LEAVES_LESS = 0.005
#: and it must foresee at least this share of what chance does not: a policy of no memory has an exact explanation in
#: every episode
_BEYOND_CHANCE = 0.2
#: inequalities per weight that an episode has on average where it means something that one policy satisfies them all
_MANY_ROWS = 8
#: share of them that may fail all the same: a policy in the middle of what is believed is not always among the exact;
#: and what it may lose to the likeliest kind, as a share of what that tells: whoever takes the best in every episode,
#: whatever it learned, is explained exactly too
_HARDLY_ANY, _EXACT_LOSS = 3e-4, 0.025
#: lead in standard errors, in log-likelihood, and as a share of what is told of the choices, at which a decider is said
#: to move (judged by benchmarks/selection.py)
_MOVING_LEAD, _MOVING_GAIN, _HARDLY_MORE = 3.0, 4.0, 0.001
#: evidence at which a policy is seen to move, whatever is foreseen of it: of a softmax that learns, of a track that
#: assumes nothing, and of that where nearly all choices are the best, so that a policy that only grows longer looks as
#: if it moved (judged by benchmarks/selection.py: of stationary deciders .6, .6 and 8.6 at most)
_SEEN_TO_LEARN, _SEEN_TO_MOVE, _SEEN_FOR_SURE, _NEARLY_ALL = 2.5, 5.0, 12.0, 0.98
#: what the kind that a track itself takes for another may lose to it, as a share of what it tells: less is assumed
_PLAINLY = 0.05
#: after so many episodes the worse half of the parameters of each kind is given up (successive halving); judged
#: by benchmarks/selection.py
_RACES = (2, 3, 4, 7, 14, 28, 56, 112)
#: and, from the fourth race and so many choices on, whatever is behind the likeliest by so many standard errors and
#: this share of what it tells of the choices; judged as well: kinds that came this far behind earlier came back
_HOPELESS_STEPS, _HOPELESS_LEAD, _HOPELESS_LOSS = 500, 6.0, 0.25
#: episodes whose draws tell the scale of a topk decider's scores
_DRAWN_EPISODES = 10
#: a decider whose policies of consecutive episodes agree on fewer steps than this is restless, unless it has had fewer
#: than six episodes (judged by benchmarks/deciders.py)
_STEADY, _GROWN_UP = 0.9, 6
#: a log of which less is predicted, of what chance leaves open, is not explained
_EXPLAINED = 0.05


class Candidate(NamedTuple):
    """A kind of decider, and how well it predicted the log.

    Attributes
    ----------
    expert : str
    l2 : float or None
        Of kinds that learn.
    units : str or None
        Of l2: "own" for the log's, "scaled" and "standardized" for those of features over their root mean square, or
        less their mean, over their standard deviation.
    top_k : int or None
        Of "topk".
    log_likelihood : float
        Per step of the episodes judged, each foreseen from those before.
    agreement : float
        Share of these steps whose choice was the most probable.
    chosen : bool
    out_after : int
        Episodes after which it had fallen behind and was given up, so that its figures are of these; 0 if it was not.
    """

    expert: str
    l2: float | None
    units: str | None
    top_k: int | None
    log_likelihood: float
    agreement: float
    chosen: bool = False
    out_after: int = 0

    @property
    def name(self) -> str:
        """The kind with its parameter."""
        parameter = f"top_k={self.top_k}" if self.top_k else ""
        if self.l2 is not None:
            parameter = f"l2={self.l2:g}" if self.units == "own" else f"l2={self.l2:g}, {self.units}"
        return f"{self.expert}({parameter})" if parameter else self.expert


class Selection(NamedTuple):
    """The kind chosen, all candidates, and what a reader should know.

    Attributes
    ----------
    track : Track
        Of the kind chosen, through the whole log.
    scale : float
        What its policies have to be multiplied with so that a softmax of their scores draws as the decider did.
    evidence : tuple of Candidate
    notes : tuple of Note
    """

    track: Track
    scale: float
    evidence: tuple[Candidate, ...]
    notes: tuple[Note, ...]


def select(
    logs: Sequence[BehaviorLog | DiskLog],
    kinds: Sequence[Kind],
    prior_gram: Matrix,
    *,
    begun: Tracks | None = None,
    watch: Callable[[Tracks], None] | None = None,
    progress: bool = False,
    client: Any = None,
    team: Workers | None = None,
) -> Selection:
    """Choose between kinds of deciders, and their parameters, by what they predict.

    Parameters
    ----------
    logs : sequence of BehaviorLog or DiskLog
        One after the other, two episodes or more. Of a long episode only the first steps are looked at.
    kinds : sequence of Kind
    prior_gram : ndarray of shape (d, d)
        Gram matrix of the contexts chosen before the log begins.
    begun : Tracks, optional
        Of the same kinds and the first episodes of the same log: these are not tracked again.
    watch : callable, optional
        Called with the tracks after every further episode that the policy chose.
    """
    state = Selecting.begin(kinds, prior_gram, begun)
    stored = [len(log) + log.warmup if isinstance(log, BehaviorLog) else log.n_episodes for log in logs]
    total = None if None in stored else sum(count or 0 for count in stored)
    # disable=None: silent unless stderr is a terminal.
    hidden = None if progress else True
    every = chain.from_iterable(episodes(log, client=client, team=team) for log in logs)
    with tqdm(every, total=total, desc="choose", unit="episode", delay=1, leave=False, disable=hidden) as bar:
        for by_policy, rows in bar:
            before, state = state, state.after(by_policy, rows)
            if watch is not None and by_policy and state.tracks is not before.tracks:
                watch(state.tracks)
    return state.chosen()


# -- what is judged --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selecting:
    """A selection between two episodes; it is never changed, `after` gives the next one.

    Attributes
    ----------
    tracks : Tracks
        Ahead of the rest where a selection goes on that was stopped.
    past : Chosen
        The contexts chosen so far.
    episodes, stored : int
        How many so far; those of the policy, and all.
    drawn : tuple
        Of the last episodes, the scores by what each kind that draws from its best believed once they were seen.
    """

    tracks: Tracks
    past: Chosen
    episodes: int = 0
    stored: int = 0
    drawn: tuple[Scored, ...] = ()

    @classmethod
    def begin(cls, kinds: Sequence[Kind], prior_gram: Matrix, begun: Tracks | None = None) -> Selecting:
        """Before the first episode; ``begun``: tracks that have been through the first episodes already."""
        return cls(Tracks.begin(kinds, prior_gram) if begun is None else begun, Chosen.before_the_log(prior_gram))

    def after(self, by_policy: bool, rows: Rows) -> Selecting:
        """One more episode."""
        # Kinds that are far from the truth may lead to numbers beyond all bounds; they predict nothing then.
        with np.errstate(all="ignore"):
            lesson = Experience.join(list(rows.map(experienced)))
            # In the order of the kinds: a set of them would have another in every process.
            asked = dict.fromkeys(kind.regularization for kind in self.tracks.kinds)
            before = {each: each.ridge(self.past) for each in asked}
            tracks, ahead = self.tracks, self.tracks.stored > self.stored
            if not ahead:
                tracks = tracks.after(rows if by_policy else None, before, lesson)
            state = replace(
                self,
                tracks=tracks,
                past=self.past.and_then(len(lesson.chosen), lesson.total, lesson.phi),
                stored=self.stored + 1,
                episodes=self.episodes + by_policy,
            )
            if by_policy:
                state = state._drawn_with(rows, before)
                # Of tracks that are ahead it has been decided.
                state = state if ahead else state._raced()
            return state

    def _drawn_with(self, rows: Rows, before: Ridges) -> Selecting:
        """With the scores of an episode by the kinds that draw from their best."""
        tracks = self.tracks
        asked = [
            (tracks.kinds[place], before[tracks.kinds[place].regularization], self._policy(place))
            for place in self._drawing
        ]
        if not asked:
            return self
        return replace(self, drawn=(*self.drawn, rows.head(partial(scored, asked=asked)))[-_DRAWN_EPISODES:])

    @property
    def _drawing(self) -> list[int]:
        """Places of the kinds that draw from their best."""
        return [place for place, kind in enumerate(self.tracks.kinds) if kind.draws_from_best]

    def _policy(self, place: int) -> Vector:
        """What a kind believed of the last episode's policy once it was seen; zeros where it could not be tracked."""
        track = self.tracks.tracks[place]
        return np.zeros(len(self.past.phi)) if track is None else track.policies[self.episodes - 1]

    def _raced(self) -> Selecting:
        """Without the candidates that have fallen behind."""
        tracks = self.tracks
        if self.episodes not in _RACES or len(tracks.running) < 2 or self._unpredictable:
            return self
        kinds, judged = tracks.kinds, self.judged()
        ranked = sorted(tracks.running, key=lambda place: judged.log_likelihoods[place], reverse=True)
        behind, best = set[int](), ranked[0]
        if self.episodes >= _RACES[3] and judged.steps >= _HOPELESS_STEPS:
            behind |= {
                place
                for place in ranked
                if judged.lead(best, place) > _HOPELESS_LEAD and judged.loss(best, place) > _HOPELESS_LOSS
            }
        for name in dict.fromkeys(kinds[place].name for place in ranked):
            alike = [place for place in ranked if kinds[place].name == name]
            behind |= set(alike[(len(alike) + 1) // 2 :])
        # A ridge parameter that was given is compared with at the end, and so is the kind that assumes nothing.
        kept = {*_given(tracks), _followed(tracks)}
        out = {
            place: Out(self.episodes, judged.per_step(place), judged.agreement(place))
            for place in sorted(behind)
            if place not in kept
        }
        return replace(self, tracks=tracks.without(out))

    @property
    def _unpredictable(self) -> bool:
        """Whether nothing could be known of the last episode's policy: it was the first that had learned anything."""
        known = [track.now for track in self.tracks.tracks if track is not None and track.now is not None]
        return any(self.episodes <= 1 + now.blank for now in known)

    def judged(self) -> Judged:
        """All episodes but the first two, and the first third, of which little can be foreseen."""
        return reduce(add, self.tracks.judged[self._first :])

    @property
    def _first(self) -> int:
        episodes = self.tracks.episodes
        return min(max(2, episodes // 3), episodes - 1)

    def explains_all(self, place: int) -> bool:
        """Whether in every episode but the first a policy of a kind explains all choices, and they are enough to tell:
        a decider that draws strays at first, and later hardly.
        """
        track, judged = self.tracks.tracks[place], reduce(add, self.tracks.judged[1:])
        if track is None:
            return False
        strayed = [each.stray for each in track.predicted[1:]]
        rows = judged.candidates - judged.steps
        return rows >= _MANY_ROWS * (track.d + 1) * len(strayed) and float(np.mean(strayed)) < _HARDLY_ANY

    def chosen(self) -> Selection:
        """The kind to believe; needs two episodes or more."""
        return _selection(self)

    def scale(self, place: int) -> float:
        """The unit of a drawing decider's scores, from its latest draws."""
        if place not in self._drawing:
            return 1.0
        own = self._drawing.index(place)
        parts = ([each.scores[own], each.counts, each.chosen] for each in self.drawn)
        scores, counts, taken = (np.concatenate(part) for part in zip(*parts, strict=True))
        found = draw_scale(scores, np.append(0, counts.cumsum()), taken, self.tracks.kinds[place].top_k)
        return found.scale if found.scale > 0 else 1.0


# -- judgement -----------------------------------------------------------------------------------------------------


def _selection(state: Selecting) -> Selection:
    """What to believe, given how well each kind predicts."""
    tracks, judged = state.tracks, state.judged()
    chosen, override = _choose(state, judged)
    evidence = tuple(_candidate(tracks, judged, place, chosen) for place in range(len(tracks.kinds)))
    kind, best, track = tracks.kinds[chosen], evidence[chosen], tracks.tracks[chosen]
    notes: tuple[Note, ...] = (_how_chosen(best, kind, evidence),) if len(evidence) > 1 else ()
    notes += () if override is None else (override,)
    notes += tuple(
        _other_units(evidence[place], best)
        for place in _given(tracks)
        if place != chosen and kind.name == evidence[place].expert
    )
    if not kind.learns or best.agreement < _STEADY:
        plain = (place for place, each in enumerate(tracks.kinds) if _assumes_nothing(each) and each.moves)
        followed = chosen if not kind.learns else next(plain, None)
        steady = tracks.steadiness(followed) if followed is not None and state.episodes >= _GROWN_UP else 1.0
        notes += _unexplained(steady, judged.beyond_chance(chosen))
    if track is None:
        raise ValueError(
            f"the choices cannot be tracked as those of {kind.label}: numbers leave the range of floating point "
            f"({tracks.failures[chosen]}). Rescale the contexts to about 1."
        )
    return Selection(track, state.scale(chosen), evidence, notes)


def _candidate(tracks: Tracks, judged: Judged, place: int, chosen: int) -> Candidate:
    kind, out = tracks.kinds[place], tracks.out[place]
    figures = Out(0, judged.per_step(place), judged.agreement(place)) if out is None else out
    return Candidate(
        kind.name,
        kind.l2 if kind.learns else None,
        kind.units if kind.learns else None,
        kind.top_k if kind.top_k > 1 else None,
        figures.log_likelihood,
        figures.agreement,
        place == chosen,
        figures.episodes,
    )


def _choose(state: Selecting, judged: Judged) -> tuple[int, Note | None]:
    """The place of the kind to believe, and why it is not the likeliest if it is not."""
    tracks = state.tracks
    likeliest = max(tracks.running, key=lambda place: judged.log_likelihoods[place])
    chosen, why = _rules(state, judged, likeliest)
    if chosen == likeliest:
        return chosen, None
    (name, figure), (rival, other) = (
        (tracks.kinds[place].label, judged.per_step(place)) for place in (chosen, likeliest)
    )
    return chosen, Note(
        "override",
        "info",
        f"{rival} is likelier than {name} (log-likelihood {other:.4f} per choice against {figure:.4f}) but was not "
        f"chosen: {why}.",
        {"chosen": name, "log_likelihood": figure, "likeliest": rival, "its_log_likelihood": other},
    )


def _rules(state: Selecting, judged: Judged, likeliest: int) -> tuple[int, str]:
    """The place of the kind to believe, and the rule that kept the likeliest from it."""
    tracks, kinds = state.tracks, state.tracks.kinds
    best, why = likeliest, ""
    for given in _given(tracks):
        if given not in tracks.running or best == given:
            continue
        if judged.lead(best, given) < _UNITS_LEAD or judged.loss(best, given) < _UNITS_GAIN:
            best, why = given, "a given l2 is kept unless another is clearly likelier"

    def equal(places: list[int], lead: float = _EQUAL, little: float = _LITTLE) -> int | None:
        """The likeliest of some, if it is about as likely as the best."""
        found = max(places, key=lambda place: judged.log_likelihoods[place], default=None)
        if found is None or judged.beyond_chance(found) < _BEYOND_CHANCE or judged.told(found) <= 0:
            return None
        return found if judged.lead(best, found) < lead or judged.loss(best, found) < little else None

    plain = _followed(tracks)
    named = [place for place in tracks.running if not _assumes_nothing(kinds[place])]
    # A softmax that is not seen to learn says no more than a track that assumes nothing.
    named = [place for place in named if not kinds[place].has_temperature or _learns(tracks.tracks[place])]
    exact = [place for place in named if kinds[place].adds_bonus and state.explains_all(place)]
    exact = [
        place
        for place in exact
        if judged.beyond_chance(place) >= _BEYOND_CHANCE and judged.loss(likeliest, place) < _EXACT_LOSS
    ]
    if plain is not None and kinds[best].learns and best not in named and judged.loss(best, plain) < _PLAINLY:
        best, why = plain, f"{kinds[best].label} is not seen to learn"
    if exact and best not in exact:
        best = max(exact, key=lambda place: judged.log_likelihoods[place])
        why = f"every choice is exactly what {kinds[best].label} prefers"
    elif not exact and _assumes_nothing(kinds[best]) and (found := equal(named)) is not None:
        best, why = found, f"{kinds[found].label} is about as likely, and says how the decider chooses"
    if not exact and kinds[best].adds_bonus:
        found = equal([place for place in named if kinds[place].explores_at_random], _EQUAL_TO_BONUS, 0.0)
        if found is not None:
            best, why = found, f"{kinds[found].label} is about as likely, and not all choices are the best with a bonus"
    elif not exact and kinds[best].learns and not kinds[best].narrows:
        found = equal([place for place in named if kinds[place].narrows], little=_LEAVES_LESS)
        if found is not None:
            best, why = found, f"{kinds[found].label} is about as likely, and leaves less open"
    return _moving(state, judged, best, why)


def _moving(state: Selecting, judged: Judged, best: int, why: str) -> tuple[int, str]:
    """The place of the kind to believe, and why: of the best by what is foreseen, and of one that stays."""
    tracks, kinds = state.tracks, state.tracks.kinds
    still, plain = [place for place in tracks.running if not kinds[place].moves], _followed(tracks)
    if not still:
        return best, why
    stays, moved = max(still, key=lambda place: judged.log_likelihoods[place]), tracks.tracks[best]
    foreseen, seen_to_move = judged.told(best) >= _MOVING_GAIN, False
    if plain is not None:
        needed = _SEEN_TO_MOVE if judged.beyond_chance(plain) < _NEARLY_ALL else _SEEN_FOR_SURE
        seen_to_move = _evidence_of_moves(tracks.tracks[plain]) >= needed
        if state.episodes >= _GROWN_UP and tracks.steadiness(plain) < _STEADY and not foreseen:
            return plain, "nothing is foreseen, and the policy changes from one episode to the next"
        if foreseen and seen_to_move and best == stays:
            return plain, "the policy is seen to move"
    if not foreseen:
        return stays, "nothing is foreseen"
    learns = kinds[best].has_temperature and _learns(moved) and _evidence_of_moves(moved) >= _SEEN_TO_LEARN
    if best == stays or seen_to_move or learns:
        return best, why
    lead, gain = judged.lead(best, stays), float(judged.log_likelihoods[best] - judged.log_likelihoods[stays])
    if lead < _MOVING_LEAD or gain < _MOVING_GAIN or judged.loss(best, stays) < _HARDLY_MORE:
        if gain > 0 or not why:
            why = (
                f"a decider that moves must be clearly likelier, and {kinds[best].label} leads by {gain:.1f} in all, "
                f"{lead:.1f} standard errors"
            )
        return stays, why
    if _evidence_of_moves(moved) < _MOVING_GAIN and judged.loss(best, stays) < _PLAINLY:
        return stays, f"{kinds[best].label} is as likely to stand still"
    return best, why


def _followed(tracks: Tracks) -> int | None:
    """The place of the kind that assumes nothing but that a policy moves."""
    places = (place for place in tracks.running if _assumes_nothing(tracks.kinds[place]) and tracks.kinds[place].moves)
    return next(places, None)


def _evidence_of_moves(track: Track | None) -> float:
    return 0.0 if track is None else track.evidence_of_moves


def _learns(track: Track | None) -> bool:
    """Whether a track's best model is one that learns."""
    return track is not None and track.learns


def _given(tracks: Tracks) -> list[int]:
    """Places of the kinds whose l2 was given, in the units of the log, where others are compared with it."""
    kinds = [(place, kind) for place, kind in enumerate(tracks.kinds) if kind.learns]
    framed = any(kind.frame is not None for _, kind in kinds)
    return [place for place, kind in kinds if framed and kind.frame is None]


def _assumes_nothing(kind: Kind) -> bool:
    """Whether a kind says neither how the decider learns nor that it draws from its best."""
    return not kind.learns and kind.top_k == 1


# -- what a reader should know -------------------------------------------------------------------------------------


def _unexplained(steady: float, beyond_chance: float) -> tuple[Note, ...]:
    if beyond_chance < _EXPLAINED:
        share = max(0.0, beyond_chance)
        return (
            Note(
                "not-predicted",
                "warning",
                "no linear theta explains this log well: one episode ahead, the model predicts "
                f"{share:.0%} of what chance leaves open.",
                {"beyond_chance": share},
            ),
        )
    if steady < _STEADY:
        return (
            Note(
                "restless",
                "warning",
                "no linear theta explains this log well: from one episode to the next the policy that explains the "
                f"choices changes its mind in {1 - steady:.0%} of the steps, so the next policy can hardly be "
                "predicted.",
                {"changes": 1 - steady},
            ),
        )
    return ()


def _how_chosen(best: Candidate, kind: Kind, evidence: Sequence[Candidate]) -> Note:
    others = [one for one in evidence if one.expert != best.expert and not one.out_after]
    rival = max(others, key=lambda one: one.log_likelihood, default=None)
    beside = f". Next best {rival.name}: {rival.log_likelihood:.4f}" if rival else ""
    figures: dict[str, Any] = {"log_likelihood": best.log_likelihood, "agreement": best.agreement}
    if rival:
        figures |= {"next": rival.name, "next_log_likelihood": rival.log_likelihood, "next_agreement": rival.agreement}
    return Note(
        "kind-chosen",
        "info",
        f"{kind.words.meaning} ({best.name}): log-likelihood {best.log_likelihood:.4f} per choice, each predicted from "
        f"the episodes before{beside}.",
        {"kind": best.name} | figures,
    )


def _other_units(given: Candidate, best: Candidate) -> Note:
    return Note(
        "l2-in-other-units",
        "warning",
        f"l2={given.l2:g} was given, but the features are in different units, and {best.name} predicts the log "
        f"better (log-likelihood {best.log_likelihood:.4f} per choice, against {given.log_likelihood:.4f}), so it is "
        "used. Leave l2 at 'auto', or give the features in the decider's own units.",
        {
            "given": given.name,
            "its_log_likelihood": given.log_likelihood,
            "used": best.name,
            "log_likelihood": best.log_likelihood,
        },
    )
