"""How far to rely on a fitted model: a level, reasons and a next step, the same for page, command line and notebooks.

The level answers one question: does `predict` pick what the decider's own next policy prefers? "good": on at least
98% of steps. "poor": it certainly does not, or no better than something simpler. What is judged is the policy predicted
one episode ahead, over the later half of the episodes. The bars were set on simulated deciders, and are judged on fresh
ones, by benchmarks/verdicts.py. The words are in verdict.toml.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from ibcb.numerics.arrays import Vector
from ibcb.report.writing import count

#: by code, see there; and the headlines, by level
_WORDS = tomllib.loads(files("ibcb.report").joinpath("verdict.toml").read_text(encoding="utf-8"))


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


class Figures(SimpleNamespace):
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
    bend : float or None
        By how many standard errors a choice model with squares and products of the features predicts more choices of
        the last episode; None where there are too few choices or too many features.
    bent : list of str
        Features whose squares and products count most, where luck does not explain the gain; else empty.
    agreement, agreement_low : float or None
        Share of steps at which `predict` picks what the decider's next policy prefers, as expected by what is believed
        of that policy, and a cautious bound: 19 of 20 policies agree as often, if their deviation is twice what is
        believed. None without a belief.
    """


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
        share: float | None = None if self.figures is None else self.figures.predicted
        return share

    @property
    def supported(self) -> bool:
        """Whether the log supports the model at all: only then intervals mean something."""
        return self.level in ("good", "fair")

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        figures = None if self.figures is None else dict(vars(self.figures))
        return {**vars(self), "reasons": list(self.reasons), "figures": figures}

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
    level, codes = _judged(model, figures)
    # Of what is named already no more is advised.
    both = "expert='auto'" if model.l2 == "auto" else "expert='auto', l2='auto'"
    values: dict[str, Any] = {"auto": f", or fit with {both}", "enough": 2 * BARS.many_steps}
    values["every"] = " expert='auto' tries every kind of decider."
    if model.expert == "auto":
        values |= {"auto": "", "every": ""}
    if figures is not None:
        p = "p < 0.001" if figures.p_value < 0.001 else f"p = {figures.p_value:.2g}"
        span = f"last {figures.episodes} episodes" if figures.episodes > 1 else "last episode"
        values |= {"f": figures, "p": p, "span": span, "changed": 1 - figures.kept}
        values["steps"] = count(figures.steps, "step")
        values["bent"] = ", ".join(figures.bent)
        codes = ["predicts/alone" if figures.rival is None else "predicts/rival", *codes]
    # Choices that are explained exactly contradict nothing.
    exact = explained_exactly(model.coef_, model.diagnostics_)
    supported = level in ("good", "fair")
    if misfits and supported and not exact and not model.decider_.makes_random_choices:
        steps = sum(entry.steps for entry in model.diagnostics_)
        values |= {"misfits": misfits, "all": steps, "share": misfits / steps}
        codes = [*codes, "misfits"]
    said = [_WORDS[code] for code in codes]
    reasons = [words["reason"].format(**values) for words in said if "reason" in words]
    next_step = next(words["next"] for words in said if "next" in words).format(**values)
    return Verdict(level, _WORDS["headlines"][level], (*reasons, *statements(model)), next_step, figures)


def of_another_log() -> Verdict:
    """What is said of a model beside a log that it was not fitted to."""
    words = _WORDS["another-log"]
    return Verdict("unknown", _WORDS["headlines"]["unknown"], (words["reason"],), words["next"], None)


# -- the level -----------------------------------------------------------------------------------------------------


#: a level, and the codes of what is said of it, in their order
_Judged = tuple[str, list[str]]


def _judged(model: Any, figures: Figures | None) -> _Judged:
    """The level, and what decided it: the first rule that applies."""
    if not model.next_policy_coef_.any():
        few = sum(entry.steps for entry in model.diagnostics_) < BARS.many_steps
        return "unknown" if few else "poor", ["nothing-learned"]
    if figures is None:
        return "unknown", ["one-episode" if model.incremental else "solved-at-once"]
    if figures.steps < BARS.some_steps:
        return "unknown", ["too-few-steps"]
    return _chance(model, figures) or _refuted(figures) or _supported(model, figures)


def _chance(model: Any, figures: Figures) -> _Judged | None:
    """Whether it is known to be better than a blind draw."""
    left = 1 - figures.chance
    if left <= 0:
        return "unknown", ["no-choice"]
    # A wrong estimate of exploration spoils what is predicted of choices, but not what predict picks.
    share = max(figures.predicted, figures.greedy)
    gain = (share - figures.chance) / left
    error = math.sqrt(share * (1 - share) / figures.steps) / left
    blind = math.sqrt(figures.chance * left / figures.steps) / left
    if gain + BARS.luck * error < BARS.nothing:
        return "poor", ["chance/hardly-more" if gain > 0 else "chance/no-better"]
    if gain < BARS.luck * blind or _noted(model, "not-predicted"):
        return "unknown", ["chance/maybe"]
    return None


def _refuted(figures: Figures) -> _Judged | None:
    """Whether a rival, or what came next, speaks against it."""
    if figures.episodes >= BARS.some_episodes and min(_rival_lead(figures), figures.greedy_lead) > BARS.outdone:
        return "poor", ["outdone"]
    best = max(figures.kept, figures.borne_out)
    error = math.sqrt(best * (1 - best) / figures.steps)
    return ("poor", ["refuted"]) if best + BARS.luck * error < BARS.refuted else None


def _supported(model: Any, figures: Figures) -> _Judged:
    """Good, or what keeps it from being good: whatever has something to be done next."""
    computed = figures.agreement is not None and figures.agreement_low is not None
    expected, low = (1.0 if each is None else each for each in (figures.agreement, figures.agreement_low))
    measured = figures.steps >= BARS.measured_steps and min(figures.kept, figures.confirmed) >= BARS.measured
    measured = measured and expected >= BARS.expected
    known, vague = computed and not measured and not figures.bent, expected < 1 - 5 * (1 - BARS.agreement)
    said = {
        "rival-leads": _rival_lead(figures) > 0,
        "late-start": _noted(model, "late-start"),
        "unmarked-warmup": _noted(model, "unmarked-warmup"),
        "restless": figures.kept < BARS.agreement or _noted(model, "restless"),
        "not-borne-out": figures.borne_out < BARS.agreement,
        "bent": bool(figures.bent),
        "measured": measured and not figures.bent,
        "next-policy/not-computed": not measured and not computed,
        "next-policy/vague": known and vague,
        "next-policy/known": known and not vague,
        "next-policy/unsure": known and low < BARS.agreement,
        "few-steps": figures.steps < BARS.many_steps,
    }
    codes = [code for code, applies in said.items() if applies]
    return ("fair", codes) if any("next" in _WORDS[code] for code in codes) else ("good", [*codes, "good"])


def _noted(model: Any, code: str) -> bool:
    return any(note.code == code for note in model.notes_)


def _rival_lead(figures: Figures) -> float:
    return lead(figures.rival_only, figures.model_only, figures.steps)


def lead(one_only: int, other_only: int, steps: int) -> float:
    """Share of steps by which one leads another, given how many each alone predicts, less what luck explains."""
    return (one_only - other_only - BARS.luck * math.sqrt(one_only + other_only)) / steps


# -- of a fit alone --------------------------------------------------------------------------------------------------


def explained_exactly(rewards: Vector, diagnostics: Sequence[Any]) -> bool:
    """Whether the reward weights of a fit explain every choice of its log."""
    return bool(rewards.any()) and not any(entry.violated or entry.certificate for entry in diagnostics)


def statements(model: Any) -> list[str]:
    """What can be said of a fit without its log: whether its choices have an exact explanation."""
    if not model.coef_.any():
        return []
    named = len({(row.episode, row.step) for entry in model.diagnostics_ for row in entry.certificate or ()})
    violated, own = sum(entry.violated for entry in model.diagnostics_), model.l2 == "auto"
    codes = {"contradicting": named > 0, "violated": violated > 0}
    if explained_exactly(model.coef_, model.diagnostics_):
        codes = {"exact": True}
    elif model.expert_ != model.decider_.name:
        # Whether contradictions are usual depends on what it is.
        codes = {}
    elif model.decider_.words.misfit:
        codes = {"robust": True}
    values = {
        "misfit": model.decider_.words.misfit,
        "left": f"{count(violated, 'comparison')} of a chosen candidate with another",
        "goes": "goes" if violated == 1 else "go",
        "where": f" with l2 = {model.l2_:g}, which was found in the log" if own else "",
        "l2": "its own" if own else "another",
        "contradicting": f"{named} steps contradict each other",
    }
    if named == 1:
        values["contradicting"] = "a step contradicts what was learned before it"
    return [_WORDS[f"statement/{code}"]["reason"].format(**values) for code, applies in codes.items() if applies]
