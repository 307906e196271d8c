"""How far to rely on a fitted model: a level, reasons and a next step, the same for page, command line and notebooks.

The level answers one question: does `predict` pick what the decider's own next policy prefers? "good": on at least
98% of steps. "poor": it certainly does not, or no better than something simpler. What is judged is the policy predicted
one episode ahead, over the later half of the episodes. The bars were set on simulated deciders, and are judged on fresh
ones, by benchmarks/verdicts.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ibcb.numerics.arrays import Vector
from ibcb.report.writing import count

_HEADLINES = {
    "good": "The log supports this model well.",
    "fair": "The log supports this model in part.",
    "poor": "Do not rely on this model.",
    "unknown": "The log does not tell whether to trust this model.",
}


@dataclass(frozen=True)
class Bars:
    """What a level asks for; set by benchmarks/verdicts.py on seeds below 1000."""

    #: steps of the later half: with fewer nothing is said, and nothing is called good
    some_steps: int = 30
    many_steps: int = 100
    #: good: agreement with the decider's next policy, by each of three estimates: a cautious bound of what is believed,
    #: the preferences that an episode left as they were predicted, and those that its own choices bear out
    agreement: float = 0.985
    #: good, whatever the cautious bound: so many steps, so many preferences that they leave, and confirm by themselves,
    #: and so many expected to be right (with wrong edges the others mislead: half of the updates are none)
    measured_steps: int = 1000
    measured: float = 0.988
    expected: float = 0.965
    #: poor: neither of the latter two reaches this
    refuted: float = 0.85
    #: poor: a rival leads by this, and by more than luck explains
    outdone: float = 0.05
    #: and does so in so many episodes: of a learner each is predicted better than the last
    some_episodes: int = 2
    #: poor: of what chance leaves open, no more than this is predicted
    nothing: float = 0.1
    #: standard errors beyond which luck explains nothing
    luck: float = 2.5


BARS = Bars()


@dataclass(frozen=True)
class Figures:
    """What a verdict goes by, all of the later half of the episodes.

    Attributes
    ----------
    episodes, steps : int
    predicted : float
        Share of choices predicted one episode ahead.
    rival : str or None
        The best simple rival, by name; None where there was nothing to learn for one.
    rival_predicted : float or None
        Share of choices that it predicts.
    model_only, rival_only : int
        Steps whose choice only the model, or only the rival predicts.
    greedy_lead : float
        Share of steps by which the rival leads the model without exploration, which is what `predict` picks, less
        what luck explains.
    p_value : float
        Of a sign test on these steps, two-sided: how probable so unequal a count is if both are equally good.
    greedy : float
        Share of choices of the candidate that the model prefers without exploration.
    chance : float
        Share of choices that a blind draw would meet.
    kept : float
        Share of steps at which the candidate preferred one episode ahead still was once the episode was seen.
    confirmed : float
        Share of steps at which it is the one of the weights that explain the choices of these episodes by themselves.
    borne_out : float
        The same, the errors of these weights aside: 1 - sqrt(D^2 - E^2), of the share D = 1 - ``confirmed`` that
        differs and the share E by which these errors explain it.
    agreement, agreement_low : float or None
        Share of steps at which `predict` picks what the decider's next policy prefers, as expected by what is believed
        of that policy, and a cautious bound: 19 of 20 policies agree as often, if their deviation is twice what is
        believed. None without a belief.
    """

    episodes: int
    steps: int
    predicted: float
    rival: str | None
    rival_predicted: float | None
    model_only: int
    rival_only: int
    p_value: float
    greedy: float
    greedy_lead: float
    chance: float
    kept: float
    confirmed: float
    borne_out: float
    agreement: float | None = None
    agreement_low: float | None = None


@dataclass(frozen=True)
class Verdict:
    """How far to rely on a model.

    Attributes
    ----------
    level : {"good", "fair", "poor", "unknown"}
    headline : str
    reasons : tuple of str
        Sentences, the weightiest first.
    next_step : str
        What to do now: a sentence.
    figures : Figures or None
        What it goes by; None where no episode could be predicted.
    """

    level: str
    headline: str
    reasons: tuple[str, ...]
    next_step: str
    figures: Figures | None

    @property
    def predicted(self) -> float | None:
        """Share of choices predicted one episode ahead, over the later half of the episodes."""
        return None if self.figures is None else self.figures.predicted

    @property
    def supported(self) -> bool:
        """Whether the log supports the model at all: only then intervals mean something."""
        return self.level in ("good", "fair")

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "reasons": list(self.reasons)}

    def _repr_html_(self) -> str:
        from ibcb.report.rendering import verdict_html

        return verdict_html(self)


def judge(model: Any, figures: Figures | None, misfits: int = 0) -> Verdict:
    """Judge a fitted `IBCB`.

    Parameters
    ----------
    model : IBCB
    figures : Figures or None
        How the later half of its log was predicted; None where nothing was.
    misfits : int
        Choices that do not fit the rest of their episodes.
    """
    level, judged, next_step = _judged(model, figures)
    predicted = [] if figures is None else [_prediction(figures)]
    reasons = (*predicted, *judged, *_misfits(model, misfits), *statements(model))
    return Verdict(level, _HEADLINES[level], reasons, next_step, figures)


def of_another_log() -> Verdict:
    """What is said of a model beside a log that it was not fitted to."""
    reason = "This is not the log that the model was fitted to: how far that one supports it cannot be told from here."
    return Verdict(
        "unknown", _HEADLINES["unknown"], (reason,), "Give the fitted log, or fit a model to this one.", None
    )


# -- the level -----------------------------------------------------------------------------------------------------


#: a level, what decided it, and what to do now
_Judged = tuple[str, list[str], str]


def _judged(model: Any, figures: Figures | None) -> _Judged:
    """The level, what decided it, and what to do now: the first rule that applies."""
    if not model.next_policy_coef_.any():
        reason = "Nothing was learned: zero weights explain every choice."
        level = "unknown" if sum(entry.steps for entry in model.diagnostics_) < BARS.many_steps else "poor"
        next_step = "Check that candidates differ in their features (ibcb validate), and fit a longer log."
        return level, [reason], next_step
    if figures is None and model.incremental:
        reason = "No episode could be predicted: it takes two that were chosen after something had been learned."
        return "unknown", [reason], "Fit a log with more episodes."
    if figures is None:
        reason = "All episodes were solved at once, so none could be predicted."
        return "unknown", [reason], "Fit with incremental=True, or with forecast='auto', to know."
    if figures.steps < BARS.some_steps:
        reason = f"{count(figures.steps, 'step')} to judge by: too few to tell a model from luck."
        return "unknown", [reason], f"Fit a longer log: {2 * BARS.many_steps} steps or more."
    return _chance(model, figures) or _refuted(model, figures) or _supported(model, figures)


def _chance(model: Any, figures: Figures) -> _Judged | None:
    """Whether it is known to be better than a blind draw."""
    left = 1 - figures.chance
    if left <= 0:
        reason = "No step has a choice: each has one candidate."
        return "unknown", [reason], "Give the log all candidates of each step, not only the chosen one."
    # A wrong estimate of exploration spoils what is predicted of choices, but not what predict picks.
    share = max(figures.predicted, figures.greedy)
    gain = (share - figures.chance) / left
    error = math.sqrt(share * (1 - share) / figures.steps) / left
    blind = math.sqrt(figures.chance * left / figures.steps) / left
    next_step = "Check features and episode edges (ibcb validate): as they are, they do not explain the choices."
    if model.expert != "auto":
        next_step += " expert='auto' tries every kind of decider."
    if gain + BARS.luck * error < BARS.nothing:
        told = "hardly more than" if gain > 0 else "no better than"
        return "poor", [f"That is {told} chance."], next_step
    if gain < BARS.luck * blind or _noted(model, "not-predicted"):
        return "unknown", ["That may be chance."], next_step
    return None


def _refuted(model: Any, figures: Figures) -> _Judged | None:
    """Whether a rival, or what came next, speaks against it."""
    if figures.episodes >= BARS.some_episodes and min(_rival_lead(figures), figures.greedy_lead) > BARS.outdone:
        reason = (
            f"The rival predicts clearly more: {_paired(figures)}. The decider does not work as this model assumes."
        )
        return "poor", [reason], f"Use an ibcb.ChoiceModel instead{_or_auto(model)}."
    best = max(figures.kept, figures.borne_out)
    error = math.sqrt(best * (1 - best) / figures.steps)
    if best + BARS.luck * error >= BARS.refuted:
        return None
    reason = (
        f"The choices bear out only {figures.borne_out:.1%} of the preferences that were predicted: the policy moves "
        "in a way that the model does not predict."
    )
    return "poor", [reason], f"Check where episodes begin (ibcb validate){_or_auto(model)}."


def _supported(model: Any, figures: Figures) -> _Judged:
    """Good, or what keeps it from being good."""
    reasons, steps = [], []
    if _rival_lead(figures) > 0:
        reasons.append(f"The rival predicts more: {_paired(figures)}.")
        steps.append(f"Compare predict with an ibcb.ChoiceModel before relying on it{_or_auto(model)}.")
    if _noted(model, "late-start"):
        reasons.append("The log seems to begin in the middle of the decider's life: what came before is missing.")
        steps.append("Give the log from its beginning, or prior_gram=.")
    if _noted(model, "unmarked-warmup"):
        reasons.append("The choices of the first episode look random, as of a decider that had learned nothing yet.")
        steps.append("If they were, mark them: warmup=1 (--warmup 1).")
    if figures.kept < BARS.agreement or _noted(model, "restless"):
        reasons.append(f"What an episode showed changed {1 - figures.kept:.1%} of the preferences predicted of it.")
        steps.append("Use predict for the next episode only, and check where episodes begin (ibcb validate).")
    if figures.borne_out < BARS.agreement:
        reasons.append(
            f"The later choices, read by themselves, bear out {figures.borne_out:.1%} of the preferences predicted."
        )
        steps.append(f"Compare predict with an ibcb.ChoiceModel before relying on it{_or_auto(model)}.")
    low, expected = figures.agreement_low, figures.agreement
    likely = expected is None or expected >= BARS.expected
    if likely and figures.steps >= BARS.measured_steps and min(figures.kept, figures.confirmed) >= BARS.measured:
        reasons.append(
            f"{figures.steps:,} later choices, read by themselves, confirm {figures.confirmed:.1%} of the preferences "
            "predicted."
        )
    elif low is None or expected is None:
        reasons.append("How well the next policy is known was not computed.")
        steps.append("Fit with forecast='auto' to know.")
    else:
        reasons.append(_next_policy(expected, low))
        if low < BARS.agreement:
            steps.append("Use predict where certainty is high (model.certainty); more episodes would settle the rest.")
    if figures.steps < BARS.many_steps:
        reasons.append(f"{count(figures.steps, 'step')} to judge by: too few for more.")
        steps.append("Fit a longer log to know more.")
    if steps:
        return "fair", reasons, steps[0]
    return "good", reasons, "Rely on predict and the weights; fit again as new episodes come."


def _noted(model: Any, code: str) -> bool:
    return any(note.code == code for note in model.notes_)


def _rival_lead(figures: Figures) -> float:
    return lead(figures.rival_only, figures.model_only, figures.steps)


def lead(one_only: int, other_only: int, steps: int) -> float:
    """Share of steps by which one leads another, given how many each alone predicts, less what luck explains."""
    return (one_only - other_only - BARS.luck * math.sqrt(one_only + other_only)) / steps


# -- words -----------------------------------------------------------------------------------------------------------


def _prediction(figures: Figures) -> str:
    span = f"last {figures.episodes} episodes" if figures.episodes > 1 else "last episode"
    against = f"chance {figures.chance:.1%}."
    if figures.rival is not None:
        against = f"Best simple rival ({figures.rival}) {figures.rival_predicted:.1%}, {against}"
    else:
        against = against.capitalize()
    return f"Predicts {figures.predicted:.1%} of choices one episode ahead ({span}). {against}"


def _paired(figures: Figures) -> str:
    p = "p < 0.001" if figures.p_value < 0.001 else f"p = {figures.p_value:.2g}"
    return f"{figures.rival_only:,} choices only the rival predicts, {figures.model_only:,} only the model ({p})"


def _next_policy(expected: float, low: float) -> str:
    if expected < 1 - 5 * (1 - BARS.agreement):
        return "How the decider's next policy will choose is not well known."
    return (
        f"If choices depend on these features alone, predict picks what the decider's next policy prefers on about "
        f"{expected:.1%} of steps; by a cautious bound, on at least {low:.1%}."
    )


def _misfits(model: Any, misfits: int) -> list[str]:
    # Choices that are explained exactly contradict nothing.
    exact = explained_exactly(model.coef_, model.diagnostics_)
    if not misfits or exact or model.decider_.makes_random_choices:
        return []
    steps = sum(entry.steps for entry in model.diagnostics_)
    return [f"{misfits:,} of {steps:,} choices ({misfits / steps:.1%}) do not fit the rest; ibcb.explain names them."]


def _or_auto(model: Any) -> str:
    return "" if model.expert == "auto" else ", or fit with expert='auto', l2='auto'"


def explained_exactly(rewards: Vector, diagnostics: Sequence[Any]) -> bool:
    """Whether the reward weights of a fit explain every choice of its log."""
    return bool(rewards.any()) and not any(entry.violated or entry.certificate for entry in diagnostics)


def statements(model: Any) -> list[str]:
    """What can be said of a fit without its log: whether its choices have an exact explanation."""
    if not model.coef_.any():
        return []
    if explained_exactly(model.coef_, model.diagnostics_):
        return ["There are reward weights that explain every logged choice exactly."]
    named = {(row.episode, row.step) for entry in model.diagnostics_ for row in entry.certificate or ()}
    violated = sum(entry.violated for entry in model.diagnostics_)
    left = f"{count(violated, 'comparison')} of a chosen candidate with another"
    goes = "goes" if violated == 1 else "go"
    misfit = model.decider_.words.misfit
    if misfit:
        return [f"{misfit}: the fit is robust, and {left} {goes} against it."]
    said = []
    if named:
        own = model.l2 == "auto"
        where = f" with l2 = {model.l2_:g}, which was found in the log" if own else ""
        said.append(
            f"No reward weights explain all choices{where}: {_contradicting(len(named))}. A decider of this kind with "
            f"these settings leaves no contradictions, so something differs: {'its own' if own else 'another'} l2, "
            "changed choices, other episodes, a decider that draws."
        )
    if violated:
        said.append(f"Under the reward weights that come nearest, {left} {goes} against the log.")
    return said


def _contradicting(steps: int) -> str:
    return f"{steps} steps contradict each other" if steps > 1 else "a step contradicts what was learned before it"
