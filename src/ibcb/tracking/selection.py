"""Which kind of decider left a log, and which track of it to believe, told without rewards.

Every candidate kind goes through the log once, with a tracker of its own. Before each episode it has a belief of the
policy from the episodes before, and gives every candidate a probability (`ibcb.deciders.Kind.propensities`). One figure
has one meaning for every kind: the log-likelihood of each choice under the probabilities predicted from the episodes
before, but for the first episodes, of which little can be predicted. It decides what predicts. What the decider is, and
whether it has a name, is in `ibcb.tracking.posterior`.

A selection is a value that steps from episode to episode (`Selecting`). What took long to find is in its `Tracks`: with
these and the log, a selection that was stopped goes on to the same bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from ibcb.deciders import Kind, experts
from ibcb.engine import Episode, Past, Subscriber
from ibcb.log.notes import Note
from ibcb.numerics.arrays import Vector, changed
from ibcb.numerics.laplace import draw_scale
from ibcb.tracking.contenders import Comparison, Out, Scored, Tracks, UntrackedError, scored
from ibcb.tracking.posterior import UNDETERMINED, Conclusion, concluded, manner_of, motions, named, rules
from ibcb.tracking.tracker import Track

#: after so many episodes the worse half of the parameters of each kind is given up (successive halving); judged
#: by benchmarks/selection.py
_RACES = (2, 3, 4, 7, 14, 28, 56, 112)
#: and, from the fourth race and so many choices on, whatever is behind the likeliest by so many standard errors and
#: this share of what it tells of the choices; judged as well: kinds that came this far behind earlier came back
_HOPELESS_STEPS, _HOPELESS_LEAD, _HOPELESS_LOSS = 500, 6.0, 0.25
#: episodes whose draws tell the scale of a topk decider's scores
_DRAWN_EPISODES = 10
#: lead in standard errors, and share of what is told of the choices, at which a ridge in units of the features is
#: believed instead of one that was given in mixed units; not tuned: either is a guess
_UNITS_LEAD, _UNITS_GAIN = 2.0, 0.001
#: weight below which a rule's motions are not asked for
_HARDLY_ANY = 0.01
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
    draws : str or None
        Of "sbts", how often it draws: every "step" or "episode".
    log_likelihood : float
        Per step of the episodes judged, each predicted from those before.
    agreement : float
        Share of these steps whose choice was the most probable.
    chosen : bool
    out_after : int
        Episodes after which it was given up, because it had fallen behind or numbers could not hold it, so that its
        figures are of these; 0 if it was not.
    """

    expert: str
    l2: float | None
    units: str | None
    top_k: int | None
    draws: str | None
    log_likelihood: float
    agreement: float
    chosen: bool = False
    out_after: int = 0

    @property
    def name(self) -> str:
        """The kind with its parameter."""
        parts = [f"top_k={self.top_k}"] if self.top_k else []
        parts += [] if self.l2 is None else [f"l2={self.l2:g}"]
        parts += [] if self.units in (None, "own") else [str(self.units)]
        name = f"{self.expert}-episode" if self.draws == "episode" else self.expert
        return f"{name}({', '.join(parts)})" if parts else name

    def check(self) -> None:
        """Raise ValueError where no kind has this name."""
        if self.expert not in experts():
            raise ValueError(f"{self.expert!r} is not a known kind of decider")


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
    told : Conclusion
    """

    track: Track
    scale: float
    evidence: tuple[Candidate, ...]
    notes: tuple[Note, ...]
    told: Conclusion


# -- what is judged --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selecting(Subscriber):
    """A selection between two episodes; a subscriber of the replay.

    Attributes
    ----------
    tracks : Tracks
        Ahead of the rest where a selection goes on that was stopped.
    watch : callable or None
        Called with the tracks after every further episode that the policy chose.
    episodes : int
        How many of the policy's there were.
    drawn : tuple
        Of the last episodes, the scores by what each kind that draws from its best believed once they were seen.
    """

    tracks: Tracks
    watch: Callable[[Tracks], None] | None = None
    episodes: int = 0
    drawn: tuple[Scored, ...] = ()

    @property
    def pasts(self) -> tuple[Past, ...]:
        return tuple(kind.past for kind in self.tracks.kinds)

    def step(self, episode: Episode) -> Selecting:
        """One more episode."""
        tracks, is_ahead = self.tracks, self.tracks.stored > episode.before.stored
        # Kinds that are far from the truth may lead to numbers beyond all bounds; they predict nothing then.
        with np.errstate(all="ignore"):
            if not is_ahead:
                tracks = tracks.after(episode)
            state = changed(self, tracks=tracks, episodes=self.episodes + episode.by_policy)
            if episode.by_policy:
                state = state._drawn_with(episode)
                # Of tracks that are ahead it has been decided.
                state = state if is_ahead else state._raced()
        if self.watch is not None and episode.by_policy and not is_ahead:
            self.watch(state.tracks)
        return state

    def _drawn_with(self, episode: Episode) -> Selecting:
        """With the scores of an episode by the kinds that draw from their best."""
        tracks = self.tracks
        asked = [
            (tracks.kinds[place], tracks.kinds[place].ridge(episode.before), self._policy(place))
            for place in self._drawing
        ]
        if not asked:
            return self
        return changed(self, drawn=(*self.drawn, episode.rows.head(partial(scored, asked=asked)))[-_DRAWN_EPISODES:])

    @property
    def _drawing(self) -> list[int]:
        """Places of the kinds that draw from their best."""
        return [place for place, kind in enumerate(self.tracks.kinds) if kind.setting("top_k") is not None]

    def _policy(self, place: int) -> Vector:
        """What a kind believed of the last episode's policy once it was seen; zeros where it could not be tracked."""
        tracks = self.tracks.tracks
        track = tracks[place]
        known = next(each for each in tracks if each is not None)
        return np.zeros(known.d) if track is None else track.policies[self.episodes - 1]

    def _raced(self) -> Selecting:
        """Without the candidates that have fallen behind."""
        tracks = self.tracks
        if self.episodes not in _RACES or len(tracks.running) < 2 or self._unpredictable:
            return self
        kinds, judged = tracks.kinds, self.judged()
        ranked = judged.ranked(tracks.running)
        behind, best = set[int](), ranked[0]
        if self.episodes >= _RACES[3] and judged.steps >= _HOPELESS_STEPS:
            behind |= {
                place
                for place in ranked
                if judged.lead(best, place) > _HOPELESS_LEAD and judged.loss(best, place) > _HOPELESS_LOSS
            }
        for key in dict.fromkeys(kinds[place].key for place in ranked):
            alike = [place for place in ranked if kinds[place].key == key]
            # Which candidates are its best is known only late, and from how many it draws still later.
            if kinds[alike[0]].setting("top_k") is None or self.episodes >= _RACES[3]:
                behind |= set(alike[(len(alike) + 1) // 2 :])
        # A ridge parameter that was given is compared with at the end, and so is the kind that assumes nothing.
        kept = {*given_l2(tracks), followed(tracks)}
        out = {
            place: Out(self.episodes, judged.per_step(place), judged.agreement(place))
            for place in sorted(behind)
            if place not in kept
        }
        return changed(self, tracks=tracks.without(out))

    @property
    def _unpredictable(self) -> bool:
        """Whether nothing could be known of the last episode's policy: it was the first that had learned anything."""
        known = [track.now for track in self.tracks.tracks if track is not None and track.now is not None]
        return any(self.episodes <= 1 + now.blank for now in known)

    def judged(self) -> Comparison:
        """All episodes but the first two, and the first third, of which little can be predicted."""
        episodes = self.tracks.episodes
        return reduce(add, self.tracks.judged[min(max(2, episodes // 3), episodes - 1) :])

    def finish(self) -> Selection | None:
        """The kind to believe; None of one episode, which tells nothing of kinds."""
        return _selection(self) if self.episodes > 1 else None

    def scale(self, place: int) -> float:
        """The unit of a drawing decider's scores, from its latest draws."""
        if place not in self._drawing:
            return 1.0
        own = self._drawing.index(place)
        parts = ([each.scores[own], each.counts, each.chosen] for each in self.drawn)
        scores, counts, taken = (np.concatenate(part) for part in zip(*parts, strict=True))
        drawn_by = draw_scale(scores, np.append(0, counts.cumsum()), taken, self.tracks.kinds[place].top_k)
        return drawn_by.scale if drawn_by.scale > 0 else 1.0


# -- judgement -----------------------------------------------------------------------------------------------------


def _selection(state: Selecting) -> Selection:
    """What it is, and which track to believe of it."""
    tracks, judged = state.tracks, state.judged()
    is_told = _told(tracks, judged)
    chosen = _believed(tracks, judged, is_told)
    if tracks.kinds[chosen].name != is_told.name:
        # No track of that name is left: what is named must be what predicts.
        is_told = is_told._replace(name=UNDETERMINED)
    evidence = tuple(_candidate(tracks, judged, place, chosen) for place in range(len(tracks.kinds)))
    kind, best, track = tracks.kinds[chosen], evidence[chosen], tracks.tracks[chosen]
    notes: tuple[Note, ...] = (_how_chosen(is_told, best, kind, evidence),) if len(evidence) > 1 else ()
    notes += tuple(
        _other_units(evidence[place], best)
        for place in given_l2(tracks)
        if place != chosen and kind.name == evidence[place].expert
    )
    if not kind.learns or best.agreement < _STEADY:
        plain = chosen if not kind.learns else followed(tracks)
        steady = tracks.steadiness(plain) if plain is not None and state.episodes >= _GROWN_UP else 1.0
        notes += _unexplained(steady, judged.beyond_chance(chosen))
    if track is None:
        raise UntrackedError(
            f"the choices cannot be tracked as those of {kind.label}: numbers leave the range of floating point "
            f"({tracks.failures[chosen]}). Rescale the contexts to about 1."
        )
    return Selection(track, state.scale(chosen), evidence, notes, is_told)


def _told(tracks: Tracks, judged: Comparison) -> Conclusion:
    """What the log tells of the decider, by the likeliest tracks of each choice rule."""
    by_rule = defaultdict[str, list[Track]](list)
    names = defaultdict[str, dict[str, str]](dict)
    for key in dict.fromkeys((kind.key, kind.top_k) for kind in tracks.kinds):
        places = [place for place in tracks.running if (tracks.kinds[place].key, tracks.kinds[place].top_k) == key]
        if not places or tracks.kinds[places[0]].motions.stays:
            continue
        place = _likeliest(tracks, judged, places)
        kind, track = tracks.kinds[place], tracks.tracks[place]
        assert track is not None
        rule = manner_of(kind).name
        by_rule[rule].append(track)
        names[rule] |= {family.motion: kind.name for family in kind.motions.families}
    if not tracks.manners:
        kind = tracks.kinds[_likeliest(tracks, judged, tracks.running)]
        return named(kind, motions(by_rule[manner_of(kind).name]))
    # Who takes the best is followed by who takes it but for a share at random, a share of nearly none.
    by_rule["best"] += by_rule["egreedy"]
    plausible = rules(tracks.manners, tracks.free)
    asked = (each.name for each in plausible if each.weight >= _HARDLY_ANY)
    return concluded(plausible, names, {rule: motions(by_rule[rule]) for rule in asked})


def _believed(tracks: Tracks, judged: Comparison, is_told: Conclusion) -> int:
    """The place of the track that predicts: the likeliest of the kind that is told, or of all."""
    running, rule = tracks.running, is_told.rules[0].name if is_told.rules else ""
    named = [place for place in running if tracks.kinds[place].name == is_told.name]
    alike = [place for place in named if manner_of(tracks.kinds[place]).name == rule]
    return _likeliest(tracks, judged, alike or named or running)


def _likeliest(tracks: Tracks, judged: Comparison, places: Sequence[int]) -> int:
    """Of some places; one whose l2 was given unless another is clearly likelier."""
    best = judged.ranked(places)[0]
    for given in given_l2(tracks):
        if given in places and (judged.lead(best, given) < _UNITS_LEAD or judged.loss(best, given) < _UNITS_GAIN):
            return given
    return best


def given_l2(tracks: Tracks) -> list[int]:
    """Places of the kinds whose l2 was given, in the units of the log, where others are compared with it."""
    kinds = [(place, kind) for place, kind in enumerate(tracks.kinds) if kind.learns]
    framed = any(kind.frame is not None for _, kind in kinds)
    return [place for place, kind in kinds if framed and kind.frame is None]


def followed(tracks: Tracks) -> int | None:
    """The place of the kind that assumes nothing but that a policy moves."""
    kinds = tracks.kinds
    moving = (place for place in tracks.running if not kinds[place].motions.stays and not kinds[place].learns)
    return next((place for place in moving if kinds[place].setting("top_k") is None), None)


def _candidate(tracks: Tracks, judged: Comparison, place: int, chosen: int) -> Candidate:
    kind, out = tracks.kinds[place], tracks.out[place]
    figures = Out(0, judged.per_step(place), judged.agreement(place)) if out is None else out
    return Candidate(
        kind.name,
        kind.l2 if kind.learns else None,
        kind.units if kind.learns else None,
        kind.top_k if kind.top_k > 1 else None,
        kind.setting("draws"),
        figures.log_likelihood,
        figures.agreement,
        place == chosen,
        figures.episodes,
    )


# -- what a reader should know -------------------------------------------------------------------------------------


def _unexplained(steady: float, beyond_chance: float) -> tuple[Note, ...]:
    if beyond_chance < _EXPLAINED:
        share = max(0.0, beyond_chance)
        code, figures = "not-predicted", {"beyond_chance": share}
        text = f"one episode ahead, the model predicts {share:.0%} of what chance leaves open."
    elif steady < _STEADY:
        code, figures = "restless", {"changes": 1 - steady}
        text = (
            "from one episode to the next the policy that explains the choices changes its mind in "
            f"{1 - steady:.0%} of the steps, so the next policy can hardly be predicted."
        )
    else:
        return ()
    return (Note(code, "warning", f"no linear theta explains this log well: {text}", figures),)


def _how_chosen(is_told: Conclusion, best: Candidate, kind: Kind, evidence: Sequence[Candidate]) -> Note:
    others = [one for one in evidence if one.expert != best.expert and not one.out_after]
    rival = max(others, key=lambda one: one.log_likelihood, default=None)
    beside = f". Next best {rival.name}: {rival.log_likelihood:.4f}" if rival else ""
    figures: dict[str, Any] = {"log_likelihood": best.log_likelihood, "agreement": best.agreement}
    if rival:
        figures |= {"next": rival.name, "next_log_likelihood": rival.log_likelihood, "next_agreement": rival.agreement}
    predicted = f"log-likelihood {best.log_likelihood:.4f} per choice, predicted one episode ahead{beside}."
    if is_told.is_told:
        text = f"{kind.words.meaning} ({best.name}): {predicted}"
    else:
        text = (
            f"the log does not tell what kind of decider it is. {is_told.words} {best.name} predicts best: {predicted}"
        )
    return Note("kind-chosen" if is_told.is_told else "kind-open", "info", text, {"kind": best.name} | figures)


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
