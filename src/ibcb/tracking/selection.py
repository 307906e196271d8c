"""Which kind of decider left a log, told without rewards: by how well each kind predicts its choices.

Every candidate kind goes through the log once, with a tracker of its own. Before each episode it has a policy from the
episodes before, and scores the episode's candidates with it as its kind does (`Kind.scores`). Scores become
probabilities by a softmax, with a share of steps that stray. Two numbers per kind, the unit of its scores and that
share, are fitted to all episodes judged. What decides is one figure with one meaning for every kind: the log-likelihood
of each choice under the probabilities predicted from the episodes before, over all episodes but the first two.

A kind must earn its assumptions. One that says how the decider learns must be significantly likelier than one that
assumes nothing of it, in the later half of the log too: in its youth a decider is hard to predict, and that tells
little of what it does next. And one that moves must predict more than one that does not. Where such a rule overrides
the likeliest kind, a note says so, with both figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import Kind
from ibcb.engine import Block, Rows, Workers, episodes
from ibcb.inverse.constraints import Experience, experienced
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.log.notes import Note
from ibcb.numerics.laplace import draw_scale, read_choices
from ibcb.numerics.ridge import Ridge, ridge
from ibcb.tracking.context_sample import best_rows
from ibcb.tracking.tracker import Track

__all__ = ["Candidate", "Selection", "select"]

Vector = NDArray[np.float64]

#: lead in standard errors at which a kind that learns is believed: in all episodes, and in the later half
#: (judged by benchmarks/selection.py)
_LEARNER_LEAD, _LATE_LEAD = 3.0, 1.0
#: and it must predict at least this share of what chance does not: widths alone predict a little of any log whose
#: decider likes large contexts
_BEYOND_CHANCE = 0.2
#: lead, and share of further choices predicted, at which a decider is said to move (judged by
#: benchmarks/selection.py)
_MOVING_LEAD, _MOVING_GAIN = 2.0, 0.002
#: episodes whose draws tell the scale of a topk decider's scores
_DRAWN_EPISODES = 10
#: a decider whose policies of consecutive episodes agree on fewer steps than this is restless, by its last three moves,
#: unless it has had fewer than six episodes (judged by benchmarks/deciders.py)
_STEADY, _LAST_MOVES, _GROWN_UP = 0.9, 3, 6
#: a log of which less is predicted, of what chance leaves open, is not explained
_EXPLAINED = 0.05


class Candidate(NamedTuple):
    """A kind of decider, and how well it predicted the log.

    Attributes
    ----------
    expert : str
    l2 : float or None
        Of kinds that learn.
    top_k : int or None
        Of "topk".
    log_likelihood : float
        Per step of the episodes judged, each predicted from those before; the unit of scores and the share of straying
        choices are fitted to all of them.
    agreement : float
        Share of these steps whose choice had the best score.
    chosen : bool
    """

    expert: str
    l2: float | None
    top_k: int | None
    log_likelihood: float
    agreement: float
    chosen: bool = False

    @property
    def name(self) -> str:
        """The kind with its parameter."""
        parameter = f"l2={self.l2:g}" if self.l2 is not None else f"top_k={self.top_k}" if self.top_k else ""
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
    log: BehaviorLog | DiskLog,
    kinds: Sequence[Kind],
    prior_gram: NDArray[np.float64],
    *,
    client: Any = None,
    team: Workers | None = None,
) -> Selection:
    """Choose between kinds of deciders, and their parameters, by what they predict.

    Parameters
    ----------
    log : BehaviorLog or DiskLog
        Of two episodes or more. Of a long episode only the first block is looked at.
    kinds : sequence of Kind
    prior_gram : ndarray of shape (d, d)
        Gram matrix of the contexts chosen before the log begins.
    """
    trials = [_Trial(kind, Track.begin(kind, prior_gram)) for kind in kinds]
    # Kinds that are far from the truth may lead to numbers beyond all bounds; they predict nothing then.
    with np.errstate(all="ignore"):
        judged = _judge(log, trials, prior_gram, client, team)
    chosen, override = _choose(trials, judged)
    evidence = tuple(
        Candidate(
            trial.kind.name,
            trial.kind.l2 if trial.kind.learns else None,
            trial.kind.top_k if trial.kind.top_k > 1 else None,
            float(one.likelihoods.mean()),
            one.agreement,
            trial is chosen,
        )
        for trial, one in zip(trials, judged, strict=True)
    )
    best = evidence[trials.index(chosen)]
    notes: tuple[Note, ...] = (_how_chosen(best, chosen.kind, evidence),) if len(evidence) > 1 else ()
    notes += () if override is None else (override,)
    if not chosen.kind.learns or best.agreement < _STEADY:
        plain = (trial for trial in trials if _assumes_nothing(trial.kind) and trial.kind.moves)
        followed = chosen if not chosen.kind.learns else next(plain, None)
        steady = followed.steadiness if followed is not None and len(log) >= _GROWN_UP else 1.0
        notes += _unexplained(steady, judged[trials.index(chosen)])
    if chosen.track is None:
        raise ValueError(
            f"the choices cannot be tracked as those of {chosen.kind.label}: numbers leave the range of floating "
            "point. Rescale the contexts to about 1."
        ) from chosen.failure
    return Selection(chosen.track, chosen.scale(), evidence, notes)


# -- candidates ----------------------------------------------------------------------------------------------------


@dataclass
class _Trial:
    """A kind on its way through the log.

    ``track`` is None once numbers could not hold what it believed. Of the last episodes it keeps, of kinds that do not
    learn, the scores by the policy that it believed once they were seen, and how often that policy's choice was another
    than that of the policy before.
    """

    kind: Kind
    track: Track | None
    failure: Exception | None = None
    scores: list[Vector] = field(default_factory=list)
    drawn: deque[tuple[Vector, NDArray[np.int64], NDArray[np.int64]]] = field(
        default_factory=lambda: deque(maxlen=_DRAWN_EPISODES)
    )
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=_LAST_MOVES))

    @property
    def policy(self) -> Vector | None:
        """Predicted for the coming episode; zeros before the first, None where nothing can be predicted."""
        if self.track is None:
            return None
        return np.zeros(len(self.track.gram)) if self.track.now is None else self.track.next_policy

    def add(self, rows: Rows | None, before: Ridge, lesson: Experience) -> None:
        """Learn from one more episode."""
        if self.track is None:
            return
        try:
            self.track = self.track.after(rows, before, lesson)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            self.track, self.failure = None, error
            return
        if rows is not None and not self.kind.learns:
            self._compare(rows, before)

    def _compare(self, rows: Rows, before: Ridge) -> None:
        assert self.track is not None
        policies = self.track.policies[-2:]
        scores, counts, chosen = rows.head(partial(_scored_by, kind=self.kind, before=before, policies=policies))
        self.drawn.append((scores[-1], counts, chosen))
        if len(policies) > 1:
            picks = [best_rows(each, counts) for each in scores]
            # The share of steps that change is about in proportion to the length of a move.
            self.changes.append(self.track.own_moves[-1] * float(np.mean(picks[0] != picks[1])))

    @property
    def steadiness(self) -> float:
        """How often the policies of consecutive episodes prefer the same candidate, lately, errors of estimation aside.

        1 where there is nothing to compare.
        """
        return 1 - float(np.mean(self.changes)) if self.changes else 1.0

    def scale(self) -> float:
        """The unit of a drawing decider's scores, from its latest draws."""
        if self.kind.top_k == 1 or not self.drawn:
            return 1.0
        scores, counts, chosen = (np.concatenate(part) for part in zip(*self.drawn, strict=True))
        found = draw_scale(scores, np.append(0, counts.cumsum()), chosen, self.kind.top_k)
        return found.scale if found.scale > 0 else 1.0


# -- judgement -----------------------------------------------------------------------------------------------------


class _Judged(NamedTuple):
    """Log-likelihood of every step judged, the share of them whose choice had the best score, and where half begins.

    ``beyond_chance`` is how much of what chance leaves open is predicted, 1 if all is.
    """

    likelihoods: Vector
    agreement: float
    half: int
    beyond_chance: float


def _judge(
    log: BehaviorLog | DiskLog,
    trials: Sequence[_Trial],
    prior_gram: NDArray[np.float64],
    client: Any,
    team: Workers | None,
) -> list[_Judged]:
    first = min(2, len(log) - 1)
    phi, number = prior_gram, 0
    counts, chosen = list[NDArray[np.int64]](), list[NDArray[np.int64]]()
    for by_policy, rows in episodes(log, client=client, team=team):
        lesson = Experience.join(list(rows.map(experienced)))
        before = {l2: ridge(phi, l2) for l2 in {trial.kind.l2 for trial in trials}}
        if by_policy and number >= first:
            asked = [(trial.kind, before[trial.kind.l2], trial.policy) for trial in trials]
            of_step, taken, scores = rows.head(partial(_scored, asked=asked))
            counts.append(of_step)
            chosen.append(taken)
            for trial, each in zip(trials, scores, strict=True):
                trial.scores.append(each)
        for trial in trials:
            trial.add(rows if by_policy else None, before[trial.kind.l2], lesson)
        phi = phi + lesson.phi
        number += by_policy
    of_step, taken = np.concatenate(counts), np.concatenate(chosen)
    half = sum(len(one) for one in counts[: len(counts) // 2])
    return [_predictions(np.concatenate(t.scores), of_step, taken, t.kind.top_k, half) for t in trials]


def _scored(
    block: Block, *, asked: Sequence[tuple[Kind, Ridge, Vector | None]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Vector]]:
    """Candidates and choice of every step, and the scores of all candidates by each of some policies."""
    nothing = np.full(len(block.contexts), np.nan)
    scores = [nothing if policy is None else kind.scores(block, before, policy) for kind, before, policy in asked]
    return np.diff(block.offsets), block.chosen_rows - block.offsets[:-1], scores


def _scored_by(
    block: Block, *, kind: Kind, before: Ridge, policies: NDArray[np.float64]
) -> tuple[list[Vector], NDArray[np.int64], NDArray[np.int64]]:
    """Scores of all candidates by each of some policies, and candidates and choice of every step."""
    counts, chosen, scores = _scored(block, asked=[(kind, before, policy) for policy in policies])
    return scores, counts, chosen


def _predictions(
    scores: Vector, counts: NDArray[np.int64], chosen: NDArray[np.int64], top_k: int, half: int
) -> _Judged:
    """How likely choices are given scores, whose unit and the share of steps that stray are fitted."""
    if not np.isfinite(scores).all():
        scores = np.zeros(len(scores))
    read = read_choices(scores, counts, chosen, top_k)
    chance = float(np.mean(1.0 / counts))
    beyond = (read.agreement - chance) / (1 - chance) if chance < 1 else 0.0
    return _Judged(read.log_likelihoods, read.agreement, half, beyond)


def _choose(trials: Sequence[_Trial], judged: Sequence[_Judged]) -> tuple[_Trial, Note | None]:
    """The trial to believe, and why it is not the likeliest if it is not."""
    likeliest = max(range(len(trials)), key=lambda place: judged[place].likelihoods.sum())
    chosen, why = _rules(trials, judged)
    if chosen == likeliest:
        return trials[chosen], None
    (name, figure), (rival, other) = (
        (trials[place].kind.label, float(judged[place].likelihoods.mean())) for place in (chosen, likeliest)
    )
    return trials[chosen], Note(
        "override",
        "info",
        f"{rival} is likelier than {name} (log-likelihood {other:.4f} per choice against {figure:.4f}) but was not "
        f"chosen: {why}.",
        {"chosen": name, "log_likelihood": figure, "likeliest": rival, "its_log_likelihood": other},
    )


def _rules(trials: Sequence[_Trial], judged: Sequence[_Judged]) -> tuple[int, str]:
    """The place of the trial to believe, and the rule that kept a likelier one from it."""

    def likeliest(places: list[int]) -> int:
        return max(places, key=lambda place: judged[place].likelihoods.sum())

    plain = [place for place, trial in enumerate(trials) if _assumes_nothing(trial.kind)]
    known = [place for place in range(len(trials)) if place not in plain]
    moving = [place for place in plain if trials[place].kind.moves]
    still = [place for place in plain if not trials[place].kind.moves]
    why = ""
    if known:
        best = likeliest(known)
        if not plain:
            return best, why
        rival = judged[likeliest(moving or still)]
        lead, late = _lead(judged[best], rival), _lead(judged[best], rival, rival.half)
        beyond = judged[best].beyond_chance
        if lead >= _LEARNER_LEAD and late >= _LATE_LEAD and beyond >= _BEYOND_CHANCE:
            return (
                best,
                f"{trials[best].kind.label} is significantly likelier than one of no known kind that moves",
            )
        if lead < _LEARNER_LEAD:
            why = f"to be believed it must lead by {_LEARNER_LEAD:g} standard errors, and leads by {lead:.1f}"
        elif late < _LATE_LEAD:
            why = f"in the later half it must lead by {_LATE_LEAD:g} standard errors, and leads by {late:.1f}"
        else:
            why = f"it predicts only {max(0.0, beyond):.0%} of what chance leaves open"
    if not (moving and still):
        return likeliest(plain), why
    moves, stays = likeliest(moving), likeliest(still)
    # A length that grows is likelier too, but predicts no choice better.
    lead, gain = _lead(judged[moves], judged[stays]), judged[moves].agreement - judged[stays].agreement
    if lead >= _MOVING_LEAD and gain > _MOVING_GAIN:
        return moves, why
    if trials[moves].steadiness < _STEADY:
        # It is predicted no worse by one that stays, but only because neither predicts it.
        return moves, "its policy changes too much from episode to episode to be standing still"
    if lead < _MOVING_LEAD:
        return stays, f"a decider that moves must lead by {_MOVING_LEAD:g} standard errors, and leads by {lead:.1f}"
    return stays, f"moving it predicts no more choices: {gain:+.1%}"


def _assumes_nothing(kind: Kind) -> bool:
    """Whether a kind says neither how the decider learns nor that it draws from its best."""
    return not kind.learns and kind.top_k == 1


def _lead(one: _Judged, other: _Judged, first: int = 0) -> float:
    """By how many standard errors the first is likelier, from some step on."""
    apart = (one.likelihoods - other.likelihoods)[first:]
    error = float(np.sqrt(np.square(apart).sum()))
    return float(apart.sum()) / error if error > 0 else 0.0


# -- what a reader should know -------------------------------------------------------------------------------------


def _unexplained(steady: float, judged: _Judged) -> tuple[Note, ...]:
    if judged.beyond_chance < _EXPLAINED:
        share = max(0.0, judged.beyond_chance)
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
    rival = max(
        (one for one in evidence if one.expert != best.expert), key=lambda one: one.log_likelihood, default=None
    )
    beside = f". Next best {rival.name}: {rival.agreement:.1%}, {rival.log_likelihood:.4f}" if rival else ""
    figures: dict[str, Any] = {"log_likelihood": best.log_likelihood, "agreement": best.agreement}
    if rival:
        figures |= {"next": rival.name, "next_log_likelihood": rival.log_likelihood, "next_agreement": rival.agreement}
    return Note(
        "kind-chosen",
        "info",
        f"{kind.words.meaning} ({best.name}): predicts {best.agreement:.1%} of choices one episode ahead, "
        f"log-likelihood {best.log_likelihood:.4f} per choice{beside}.",
        {"kind": best.name} | figures,
    )
