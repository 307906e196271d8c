"""Which of several kinds of decider to believe, once it is known how likely the choices were to each.

The likeliest, but for a few rules. Kinds that are about as likely are told apart by what they leave open: one that says
how the decider chooses goes before one that does not; a decider all of whose choices are exactly the best with a bonus
adds one; and one that moves must be clearly likelier than one that does not, or be seen to move. Where a rule overrides
the likeliest kind, a note says so, with both figures.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.log.notes import Note
from ibcb.tracking.contenders import Comparison, Tracks
from ibcb.tracking.tracker import Track

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
#: the same where the decider is seen to learn
_LITTLE_OF_LEARNERS = 0.02
#: share of the random choices that a kind allows for at which it is at a loss: it allows for wrong records only
_AT_MOST = 0.8
#: the same of a kind that leaves less open
_LEAVES_LESS = 0.005
#: and it must predict at least this share of what chance does not: a policy of no memory has an exact explanation in
#: every episode
_BEYOND_CHANCE = 0.2
#: inequalities per weight that an episode has on average where it means something that one policy satisfies them all
_MANY_ROWS = 8
#: share of them that may fail all the same: a policy in the middle of what is believed is not always among the exact;
#: and what it may lose to the likeliest kind, as a share of what that tells: whoever takes the best in every episode,
#: whatever it learned, is explained exactly too
_HARDLY_ANY, _EXACT_LOSS = 3e-4, 0.035
#: lead in standard errors, in log-likelihood, and as a share of what is told of the choices, at which a decider is said
#: to move (judged by benchmarks/selection.py)
_MOVING_LEAD, _MOVING_GAIN, _HARDLY_MORE = 3.0, 4.0, 0.001
#: evidence at which a policy is seen to move, whatever is predicted of it: of a track that assumes nothing, and of that
#: where nearly all choices are the best, so that a policy that only grows longer looks as if it moved (judged by
#: benchmarks/selection.py: of stationary deciders .5 and 15 at most, of learners and walks 5 and 60 at least)
_SEEN_TO_MOVE, _SEEN_FOR_SURE, _NEARLY_ALL = 4.0, 25.0, 0.98
#: evidence by which motions that settle must beat one that stands still, and those that do not settle, for a decider to
#: be seen to learn (judged as well: of a softmax that stays 1.9 at most, of one that walks -1.5 at most)
_SEEN_TO_LEARN, _SEEN_TO_SETTLE = 3.0, 2.0
#: what a kind that assumes less may lose to another, as a share of what that tells, and be believed: to a softmax that
#: is not seen to learn, and to a track that is itself as likely to stand still
_ASSUMES_LESS, _PLAINLY = 0.1, 0.05
#: a decider whose policies of consecutive episodes agree on fewer steps than this is restless, unless it has had fewer
#: than six episodes (judged by benchmarks/deciders.py)
STEADY, GROWN_UP = 0.9, 6


def choose(tracks: Tracks, judged: Comparison) -> tuple[int, Note | None]:
    """The place of the kind to believe, and why it is not the likeliest if it is not."""
    likeliest = judged.ranked(tracks.running)[0]
    chosen, why = _of_kinds(tracks, judged, likeliest)
    if chosen == likeliest:
        return chosen, None
    name, figure = tracks.kinds[chosen].label, judged.per_step(chosen)
    rival, other = tracks.kinds[likeliest].label, judged.per_step(likeliest)
    return chosen, Note(
        "override",
        "info",
        f"{rival} is likelier than {name} (log-likelihood {other:.4f} per choice against {figure:.4f}) but was not "
        f"chosen: {why}.",
        {"chosen": name, "log_likelihood": figure, "likeliest": rival, "its_log_likelihood": other},
    )


def _of_kinds(tracks: Tracks, judged: Comparison, likeliest: int) -> tuple[int, str]:
    """The place of the kind to believe, and the rule that kept the likeliest from it."""
    kinds, best, why = tracks.kinds, likeliest, ""
    for given in given_l2(tracks):
        if given not in tracks.running or best == given:
            continue
        if judged.lead(best, given) < _UNITS_LEAD or judged.loss(best, given) < _UNITS_GAIN:
            best, why = given, "a given l2 is kept unless another is clearly likelier"

    def equal(places: list[int], lead: float = _EQUAL, little: float = _LITTLE) -> int | None:
        """The likeliest of some, if it is about as likely as the best."""
        first = next(iter(judged.ranked(places)), None)
        if first is None or judged.beyond_chance(first) < _BEYOND_CHANCE or judged.told(first) <= 0:
            return None
        return first if judged.lead(best, first) < lead or judged.loss(best, first) < little else None

    plain = followed(tracks)
    named = [place for place in tracks.running if not _assumes_nothing(kinds[place])]
    # A softmax that is not seen to learn says no more than a track that assumes nothing.
    named = [place for place in named if not _has_temperature(kinds[place]) or _settles(tracks.tracks[place])]
    exact = [place for place in named if kinds[place].deterministic and _explains_all(tracks, place)]
    exact = [place for place in exact if judged.beyond_chance(place) >= _BEYOND_CHANCE]
    exact = [place for place in exact if judged.loss(likeliest, place) < _EXACT_LOSS]
    if plain is not None and kinds[best].learns and best not in named and judged.loss(best, plain) < _ASSUMES_LESS:
        best, why = plain, f"{kinds[best].label} is not seen to learn"
    if exact:
        # Of one draw an episode the choices hang together, which only the evidence of whole episodes tells.
        exactly = max(exact, key=lambda place: _evidence(tracks.tracks[place]))
        if best != exactly:
            best, why = exactly, f"every choice is exactly what {kinds[exactly].label} prefers"
    elif _assumes_nothing(kinds[best]):
        seen = plain is not None and _settles(tracks.tracks[plain])
        # What assumes nothing allows for choices at random, too: a kind that makes them must be seen to learn.
        telling = [place for place in named if seen or not kinds[place].makes_random_choices]
        telling = [place for place in telling if not _at_a_loss(tracks, place)]
        rival = equal(telling, little=_LITTLE_OF_LEARNERS if seen else _LITTLE)
        if rival is not None:
            best, why = rival, f"{kinds[rival].label} is about as likely, and says how the decider chooses"
    if not exact and kinds[best].per_unit is not None:
        rival = equal([place for place in named if kinds[place].makes_random_choices], _EQUAL_TO_BONUS, 0.0)
        if rival is not None:
            best, why = rival, f"{kinds[rival].label} is about as likely, and not all choices are the best with a bonus"
    elif not exact and kinds[best].learns and not kinds[best].words.spread:
        rival = equal([place for place in named if kinds[place].words.spread], little=_LEAVES_LESS)
        if rival is not None:
            best, why = rival, f"{kinds[rival].label} is about as likely, and leaves less open"
    return _moving(tracks, judged, best, why)


def _moving(tracks: Tracks, judged: Comparison, best: int, why: str) -> tuple[int, str]:
    """The place of the kind to believe, and why: of the best by what is predicted, and of one that stays."""
    kinds = tracks.kinds
    still, plain = [place for place in tracks.running if kinds[place].motions.stays], followed(tracks)
    if not still:
        return best, why
    stays, moved = judged.ranked(still)[0], tracks.tracks[best]
    predicted, seen_to_move = judged.told(best) >= _MOVING_GAIN, False
    if plain is not None:
        needed = _SEEN_TO_MOVE if judged.beyond_chance(plain) < _NEARLY_ALL else _SEEN_FOR_SURE
        seen_to_move = _evidence_of_moves(tracks.tracks[plain]) >= needed
        if tracks.episodes >= GROWN_UP and tracks.steadiness(plain) < STEADY and not predicted:
            return plain, "nothing is predicted, and the policy changes from one episode to the next"
        if predicted and seen_to_move and best == stays:
            return plain, "the policy is seen to move"
    if not predicted:
        return stays, "nothing is predicted"
    if best == stays or seen_to_move or (_has_temperature(kinds[best]) and _settles(moved)):
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


def _explains_all(tracks: Tracks, place: int) -> bool:
    """Whether in every episode but the first a policy of a kind explains all choices, and they are enough to tell: a
    decider that draws strays at first, and later hardly.
    """
    track, judged = tracks.tracks[place], reduce(add, tracks.judged[1:])
    if track is None:
        return False
    strayed = [each.stray for each in track.predicted[1:]]
    rows = judged.candidates - judged.steps
    return rows >= _MANY_ROWS * (track.d + 1) * len(strayed) and float(np.mean(strayed)) < _HARDLY_ANY


def followed(tracks: Tracks) -> int | None:
    """The place of the kind that assumes nothing but that a policy moves."""
    moving = (place for place in tracks.running if not tracks.kinds[place].motions.stays)
    return next((place for place in moving if _assumes_nothing(tracks.kinds[place])), None)


def _evidence(track: Track | None) -> float:
    """Log-likelihood of all episodes, each as a whole, under the best model."""
    return -np.inf if track is None else float(track.seen.evidence.max())


def _evidence_of_moves(track: Track | None) -> float:
    """Log-likelihood of all episodes by which the best model beats the one that stands still; infinite where that was
    dropped.
    """
    return 0.0 if track is None else float(track.seen.whole_evidence.max()) - _likeliest(track, track.models.still)


def _likeliest(track: Track, asked: NDArray[np.bool_]) -> float:
    """Log-likelihood of all episodes under the likeliest of some models; minus infinity where there is none."""
    return float(track.seen.whole_evidence[asked].max(initial=-np.inf))


def _at_a_loss(tracks: Tracks, place: int) -> bool:
    """Whether a kind that does not choose at random takes as many choices to be so as it ever may."""
    track, most = tracks.tracks[place], tracks.kinds[place].most_random
    return track is not None and most < 1 and track.random_share(tracks.episodes) > _AT_MOST * most


def _settles(track: Track | None) -> bool:
    """Whether a decider is seen to learn: motions that settle are likelier than one that stays and those that stray."""
    if track is None:
        return False
    over_still, over_restless = evidence_of_settling(track)
    return over_still >= _SEEN_TO_LEARN and over_restless >= _SEEN_TO_SETTLE


def evidence_of_settling(track: Track) -> tuple[float, float]:
    """Log-likelihood of all episodes by which motions that settle beat one that stays, and those that stray."""
    still, settling = track.models.still, track.models.settling
    settles = _likeliest(track, settling)
    return settles - _likeliest(track, still), settles - _likeliest(track, ~still & ~settling)


def given_l2(tracks: Tracks) -> list[int]:
    """Places of the kinds whose l2 was given, in the units of the log, where others are compared with it."""
    kinds = [(place, kind) for place, kind in enumerate(tracks.kinds) if kind.learns]
    framed = any(kind.frame is not None for _, kind in kinds)
    return [place for place, kind in kinds if framed and kind.frame is None]


def _assumes_nothing(kind: Kind) -> bool:
    """Whether a kind says neither how the decider learns nor that it draws from its best."""
    return not kind.learns and kind.top_k == 1


def _has_temperature(kind: Kind) -> bool:
    """Whether it draws by the softmax of its scores over a temperature, which is to be told."""
    return any(each.name == "temperature" and not each.estimate.is_unit for each in kind.parameters)
