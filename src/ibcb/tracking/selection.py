"""Which kind of decider left a log, told without rewards: by how well each kind foresees its choices.

Every candidate goes through the log once. Before each episode it has a policy from the episodes before, and scores the
episode's candidates with it as its kind does: an "sbucb" decider adds the confidence width; an "sbts" decider draws,
the more widely the less it has seen, so that its scores count in units of the step's width; a "topk" decider draws from
its k best; the others only have a policy. Scores become probabilities by a softmax whose scale, and a share of steps
that stray, are fitted to all episodes judged. That leaves a log-likelihood per step that can be compared across kinds.

Between known kinds the likelihood of all episodes but the first two decides. The kind chosen must also foresee
significantly more than a chooser of no known kind does, and do so in the later half too: in its youth a decider is hard
to foresee, and that tells little of what it does next. And one that moves must foresee more than one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcb.log import BehaviorLog, argmax_per_step
from ibcb.log.disk import DiskLog
from ibcb.numerics.laplace import draw_scale, read_choices
from ibcb.numerics.ridge import gram, ridge
from ibcb.tracking import Foresight
from ibcb.tracking.pursuit import Pursuit, Steps

__all__ = ["BEST_OF", "CHOOSERS", "PENALTIES", "Candidate", "Selection", "episode_steps", "select"]

Vector = NDArray[np.float64]

#: kinds that are pursued, not solved
CHOOSERS = ("topk", "stationary", "other")
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
BEST_OF = (2, 3, 4)
#: numbers of the log that are looked at; of a longer one every m-th step
_MOST = 1 << 22
#: lead in standard errors at which a known kind is believed, in all episodes and in the later half, and a move
_KNOWN, _LATE, _MOVING = 3.0, 1.0, 2.0
#: and it must foresee at least this share of what chance does not
_BEYOND = 0.2
#: a decider that moves must be foreseen better in this share of steps
_MORE = 0.002
#: episodes whose draws tell the scale of a topk decider's scores
_DRAWN = 10
#: a decider whose policies of consecutive episodes agree less, in the last moves, is restless, unless it is young
_STEADY, _LAST, _GROWN = 0.9, 3, 6
#: what is foreseen less, of what chance leaves open, is not explained
_SOME = 0.05


class Candidate(NamedTuple):
    """A kind of decider, and how well it foresaw the log.

    Attributes
    ----------
    expert : str
    l2 : float or None
        Of "sbucb" and "sbts".
    top_k : int or None
        Of "topk".
    log_likelihood : float
        Per step of the episodes judged, each foreseen from those before.
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
    """The candidate chosen, all of them, and what a reader should know.

    Attributes
    ----------
    chosen : Candidate
    evidence : tuple of Candidate
    notes : tuple of str
    pursuit : Pursuit or None
        Of a kind in `CHOOSERS`: what is known of its policies.
    scale : float
        What its policies have to be multiplied with so that a softmax of their scores draws as the decider did.
    """

    chosen: Candidate
    evidence: tuple[Candidate, ...]
    notes: tuple[str, ...]
    pursuit: Pursuit | None
    scale: float


def select(
    log: BehaviorLog | DiskLog,
    experts: Sequence[str],
    penalties: Sequence[float],
    best_of: Sequence[int],
    prior_gram: NDArray[np.float64],
) -> Selection:
    """Choose between kinds of deciders, and their parameters, by foresight.

    Parameters
    ----------
    log : BehaviorLog or DiskLog
        Of two episodes or more. Of a large one only some steps of each episode are looked at.
    experts : sequence of str
    penalties : sequence of float
        Candidates for l2.
    best_of : sequence of int
        Candidates for top_k.
    prior_gram : ndarray of shape (d, d)
        Gram matrix of the contexts chosen before the log begins.
    """
    log, share = _sample(log)
    d = log.n_features
    trials: list[_Learner | _Chooser] = []
    for expert in experts:
        if expert in ("sbucb", "sbts"):
            trials += [_Learner(expert, l2, share, prior_gram) for l2 in penalties]
    if "topk" in experts:
        trials += [_Chooser("topk", Pursuit(d, k)) for k in best_of]
    if {"stationary", "other"} & {*experts}:
        pursuit = Pursuit(d)
        trials += [_Chooser(expert, pursuit) for expert in ("other", "stationary") if expert in experts]
    # Kinds that are far from the truth may lead to numbers beyond all bounds; they foresee nothing then.
    with np.errstate(all="ignore"):
        told = _judge(log, trials)
    chosen = _choose(trials, told)
    followed = chosen if isinstance(chosen, _Chooser) else next((t for t in trials if t.expert == "other"), None)
    steady = _steadiness(log, followed.pursuit) if isinstance(followed, _Chooser) else 1.0
    if chosen.expert == "stationary" and "other" in experts and steady < _STEADY:
        # It is foreseen no worse than one that moves, but only because neither is foreseen.
        chosen = next(t for t in trials if t.expert == "other")
    evidence = tuple(
        Candidate(t.expert, t.l2, t.top_k, float(one.likelihoods.mean()), one.agreement, t is chosen)
        for t, one in zip(trials, told, strict=True)
    )
    place = trials.index(chosen)
    best = evidence[place]
    notes: tuple[str, ...] = (_in_words(best, evidence),) if len(evidence) > 1 else ()
    if isinstance(chosen, _Chooser) or best.agreement < _STEADY:
        notes += _unexplained(steady if len(log) >= _GROWN else 1.0, told[place])
    if not isinstance(chosen, _Chooser):
        return Selection(best, evidence, notes, None, 1.0)
    chosen.pursuit.moves = chosen.expert != "stationary"
    scale = _draws(log, chosen.pursuit) if chosen.expert == "topk" else 1.0
    return Selection(best, evidence, notes, chosen.pursuit, scale)


def episode_steps(episode: BehaviorLog) -> Steps:
    """The steps of an episode that the policy chose."""
    return Steps(*episode.step_arrays(episode.policy_steps))


# -- candidates ----------------------------------------------------------------------------------------------------


class _Learner:
    """An "sbucb" or "sbts" decider with one l2."""

    top_k = None

    def __init__(self, expert: str, l2: float, share: float, phi: NDArray[np.float64]) -> None:
        # With a share of all steps the Gram matrix is that share of itself: so must l2 be.
        self.expert, self.l2, self._l2, self._phi = expert, l2, share * l2, share * phi
        self._foresight: Foresight | None = Foresight(self._l2, self._phi, draws=expert == "sbts")

    def scores(self, steps: Steps) -> Vector:
        """Of every candidate, from the episodes before."""
        now, X = ridge(self._phi, self._l2), steps.contexts
        if self._foresight is None:
            return np.full(len(X), np.nan)
        scores: Vector = X @ self._foresight.forecast()
        if self.expert == "sbucb":
            scores += now.widths(X)
            return scores
        starts, counts = steps.offsets[:-1], np.diff(steps.offsets)
        middle = np.add.reduceat(X, starts, axis=0) / counts[:, None]
        square = np.add.reduceat(now.widths(X - np.repeat(middle, counts, axis=0)) ** 2, starts) / counts
        # Steps whose candidates do not differ have no width, and no lead either.
        unit = np.sqrt(np.where(square > 0, square, 1.0))
        scores /= np.repeat(unit, counts)
        return scores

    def add(self, by_policy: bool, episode: BehaviorLog) -> None:
        try:
            if self._foresight is not None:
                self._foresight.learn(episode, by_policy)
        except (np.linalg.LinAlgError, ValueError, ArithmeticError):
            self._foresight = None
        self._phi = self._phi + gram(episode.contexts[episode.chosen_rows])


class _Chooser:
    """A decider of which only choices are known. "stationary" and "other" share a pursuit, which "other" feeds."""

    l2 = None

    def __init__(self, expert: str, pursuit: Pursuit) -> None:
        self.expert, self.pursuit = expert, pursuit
        self.top_k = pursuit.top_k if expert == "topk" else None

    def scores(self, steps: Steps) -> Vector:
        """Of every candidate, from the episodes before."""
        policy = self.pursuit.still if self.expert == "stationary" else self.pursuit.coming
        scores: Vector = steps.contexts @ policy
        return scores

    def add(self, by_policy: bool, episode: BehaviorLog) -> None:
        if by_policy:
            self.pursuit.add(episode_steps(episode))


# -- judgement -----------------------------------------------------------------------------------------------------


class _Told(NamedTuple):
    """Log-likelihood of every step judged, the share of them whose choice had the best score, and where half begins.

    ``beyond_chance`` is how much of what chance leaves open is foreseen, 1 if all is.
    """

    likelihoods: Vector
    agreement: float
    half: int
    beyond_chance: float


def _judge(log: BehaviorLog, trials: Sequence[_Learner | _Chooser]) -> list[_Told]:
    first = min(2, len(log) - 1)
    scores: list[list[Vector]] = [[] for _ in trials]
    counts, chosen = [], []
    for number, (by_policy, episode) in enumerate(log.episodes(), start=-log.warmup):
        steps = episode_steps(episode)
        if number >= first:
            counts.append(np.diff(steps.offsets))
            chosen.append(steps.chosen)
            for found, trial in zip(scores, trials, strict=True):
                found.append(trial.scores(steps))
        fed: list[Pursuit] = []
        for trial in trials:
            if isinstance(trial, _Chooser):
                if any(trial.pursuit is pursuit for pursuit in fed):
                    continue
                fed.append(trial.pursuit)
            trial.add(by_policy, episode)
    of_step, taken = np.concatenate(counts), np.concatenate(chosen)
    half = sum(len(one) for one in counts[: len(counts) // 2])
    return [
        _foreseen(np.concatenate(s), of_step, taken, t.top_k or 1, half) for s, t in zip(scores, trials, strict=True)
    ]


def _foreseen(scores: Vector, counts: NDArray[np.int64], chosen: NDArray[np.int64], top_k: int, half: int) -> _Told:
    """How likely choices are given scores, whose unit and the share of steps that stray are fitted."""
    if not np.isfinite(scores).all():
        scores = np.zeros(len(scores))
    read = read_choices(scores, counts, chosen, top_k)
    chance = float(np.mean(1.0 / counts))
    beyond = (read.agreement - chance) / (1 - chance) if chance < 1 else 0.0
    return _Told(read.log_likelihoods, read.agreement, half, beyond)


def _choose(trials: Sequence[_Learner | _Chooser], told: Sequence[_Told]) -> _Learner | _Chooser:
    plain = {t.expert: place for place, t in enumerate(trials) if t.expert in ("other", "stationary")}
    known = [place for place in range(len(trials)) if place not in plain.values()]
    if known:
        best = max(known, key=lambda place: told[place].likelihoods.sum())
        rival = told[plain["other"]] if plain else None
        leads = rival is None or (_lead(told[best], rival) >= _KNOWN and _lead(told[best], rival, rival.half) >= _LATE)
        # Widths alone foresee a little of any log whose decider likes large contexts.
        if leads and (rival is None or told[best].beyond_chance >= _BEYOND):
            return trials[best]
    if len(plain) == 2:
        other, still = told[plain["other"]], told[plain["stationary"]]
        # A length that grows is likelier too, but foresees no choice better.
        moves = _lead(other, still) >= _MOVING and other.agreement > still.agreement + _MORE
        return trials[plain["other" if moves else "stationary"]]
    return trials[next(iter(plain.values()))]


def _lead(one: _Told, other: _Told, first: int = 0) -> float:
    """By how many standard errors the first is likelier, from some step on."""
    apart = (one.likelihoods - other.likelihoods)[first:]
    error = float(np.sqrt(np.square(apart).sum()))
    return float(apart.sum()) / error if error > 0 else 0.0


# -- what follows ----------------------------------------------------------------------------------------------------


def _draws(log: BehaviorLog, pursuit: Pursuit) -> float:
    """The unit of a drawing decider's scores, from its latest draws."""
    first = max(0, len(log) - _DRAWN)
    last = [episode_steps(log[number]) for number in range(first, len(log))]
    scores = [steps.contexts @ policy for steps, policy in zip(last, pursuit.policies[first:], strict=True)]
    counts = np.concatenate([np.diff(steps.offsets) for steps in last])
    chosen = np.concatenate([steps.chosen for steps in last])
    found = draw_scale(np.concatenate(scores), np.append(0, counts.cumsum()), chosen, pursuit.top_k)
    return found.scale if found.scale > 0 else 1.0


def _steadiness(log: BehaviorLog, pursuit: Pursuit) -> float:
    """How often the policies of consecutive episodes prefer the same candidate, lately, errors of estimation aside."""
    changes = []
    for number in range(max(1, len(log) - _LAST), len(log)):
        episode = log[number]
        before, now = (argmax_per_step(episode.contexts @ pursuit.policies[n], episode) for n in (number - 1, number))
        # The share of steps that change is about in proportion to the length of a move.
        changes.append(pursuit.moved[number - 1] * float(np.mean(before != now)))
    return 1 - float(np.mean(changes))


def _unexplained(steady: float, told: _Told) -> tuple[str, ...]:
    if told.beyond_chance < _SOME:
        why = f"of what chance leaves open, the episodes before foresee {max(0.0, told.beyond_chance):.0%}"
    elif steady < _STEADY:
        why = (
            "from one episode to the next the policy that explains the choices changes its mind in "
            f"{1 - steady:.0%} of the steps, so the next policy can hardly be foreseen"
        )
    else:
        return ()
    return (f"no linear theta explains this log well: {why}.",)


_MEANING = {
    "sbucb": "a learner that adds a confidence bound",
    "sbts": "a learner that draws from its posterior",
    "topk": "a decider that draws from its best candidates",
    "stationary": "a decider that does not learn",
    "other": "no kind that is known here, so its policies are only followed",
}


def _in_words(best: Candidate, evidence: Sequence[Candidate]) -> str:
    rival = max(
        (one for one in evidence if one.expert != best.expert), key=lambda one: one.log_likelihood, default=None
    )
    beside = f"; next {rival.name}: {rival.log_likelihood:.4f} and {rival.agreement:.3f}" if rival else ""
    return (
        f"the decider was taken for {best.name}, {_MEANING[best.expert]}: one episode ahead, a log-likelihood of "
        f"{best.log_likelihood:.4f} per step and {best.agreement:.3f} of the choices foreseen{beside}."
    )


# -- sampling ------------------------------------------------------------------------------------------------------


def _sample(log: BehaviorLog | DiskLog) -> tuple[BehaviorLog, float]:
    """The log, or of a large one every m-th step of each part; and 1 / m."""
    if isinstance(log, BehaviorLog) and log.contexts.size <= _MOST:
        return log, 1.0
    stride, kept = 1, list[tuple[int, BehaviorLog]]()
    for number, part in log.parts():
        kept.append((number, _thinned(number, part, stride)))
        while sum(one.contexts.size for _, one in kept) > _MOST and any(one.n_steps > 1 for _, one in kept):
            stride, kept = 2 * stride, [(n, _thinned(n, one, 2)) for n, one in kept]
    counts = np.concatenate([np.diff(part.step_offsets) for _, part in kept])
    numbers = np.repeat([number for number, _ in kept], [part.n_steps for _, part in kept])
    whole = BehaviorLog(
        np.concatenate([part.contexts for _, part in kept]),
        np.append(0, counts.cumsum()),
        np.concatenate([part.chosen for _, part in kept]),
        np.append(0, np.cumsum(np.unique(numbers, return_counts=True)[1])),
        warmup=len({number for number, _ in kept if number < 0}),
    )
    return whole, 1 / stride


def _thinned(number: int, part: BehaviorLog, stride: int) -> BehaviorLog:
    """Every m-th step."""
    if stride == 1:
        return part
    counts = np.diff(part.step_offsets)
    kept = np.arange(part.n_steps) % stride == 0
    rows = part.contexts[np.repeat(kept, counts)]
    return BehaviorLog.part(rows, counts[kept], part.chosen[kept], origin=(number, 0))
