"""Whether to trust a fitted model, in words: one voice for the report and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Verdict", "other_notes", "verdict"]

_HEADLINES = {
    "good": "The log supports this model well.",
    "fair": "The log supports this model in part.",
    "poor": "Do not rely on this model.",
    "unknown": "The log does not tell whether to trust this model.",
}
#: how far a choice model may be ahead; not tuned
_BEHIND = 0.02

Shares = Sequence[float | None]


class Verdict(NamedTuple):
    """A judgement in words.

    Attributes
    ----------
    level : {"good", "fair", "poor", "unknown"}
    headline : str
    reasons : tuple of str
        Sentences, the weightiest first.
    predicted : float or None
        Share of the choices of the later half of the episodes that was predicted from the episodes before each.
    """

    level: str
    headline: str
    reasons: tuple[str, ...]
    predicted: float | None


def verdict(model: Any, *, rival: Shares | None = None, chance: Shares | None = None) -> Verdict:
    """Judge a fitted `IBCB` by its diagnostics.

    Parameters
    ----------
    model : IBCB
    rival : per episode, the share that a choice model of the episode before predicts, optional
    chance : per episode, the share that a blind draw would meet, optional
    """
    late = _late(model.diagnostics_)
    own = [entry.next_agreement for entry in model.diagnostics_]
    predicted, behind, blind = (_mean(model.diagnostics_, late, shares) for shares in (own, rival, chance))
    reasons = [
        *_on_prediction(model, len(late), predicted, behind, blind),
        *_on_the_forecast(model),
        *_on_the_solver(model),
    ]
    level = _level(model, predicted, behind, blind)
    return Verdict(level, _HEADLINES[level], tuple(reasons), predicted)


def _late(diagnostics: Sequence[Any]) -> list[int]:
    """The later half of the episodes that could be predicted at all."""
    known = [number for number, entry in enumerate(diagnostics) if entry.next_agreement is not None]
    return known[len(known) // 2 :]


def _mean(diagnostics: Sequence[Any], episodes: Sequence[int], shares: Shares | None) -> float | None:
    """Mean over the steps of some episodes; None where nothing is known of them."""
    known = [(diagnostics[n].steps, shares[n]) for n in episodes] if shares is not None else []
    pairs = [(steps, share) for steps, share in known if share is not None]
    total = sum(steps for steps, _ in pairs)
    return sum(steps * share for steps, share in pairs) / total if total else None


def _level(model: Any, predicted: float | None, rival: float | None, chance: float | None) -> str:
    if not model.coef_.any():
        return "poor"
    if predicted is None:
        return "unknown"
    kind, base = model.decider_, chance or 0.0
    # What is predicted beyond chance, of what there is to predict.
    gain = (predicted - base) / (1 - base) if base < 1 else 0.0
    ahead = rival is None or predicted >= rival - _BEHIND
    if gain < kind.fair / 2 or (gain < kind.fair and not ahead):
        return "poor"
    if gain >= kind.good and ahead and not _started_late(model):
        return "good"
    return "fair"


def _started_late(model: Any) -> bool:
    return any(note.code == "late-start" for note in model.notes_)


def other_notes(model: Any) -> tuple[Any, ...]:
    """The notes of a model that the verdict does not say."""
    return tuple(note for note in model.notes_ if note != model.forecast_note_)


def _on_prediction(
    model: Any, episodes: int, predicted: float | None, rival: float | None, chance: float | None
) -> list[str]:
    if not model.coef_.any():
        return ["Nothing was learned: zero weights explain every choice."]
    if predicted is None:
        if not model.incremental:
            return ["All episodes were solved at once, so none could be predicted; fit with incremental=True to know."]
        return ["No episode could be predicted: it takes two that were chosen after something had been learned."]
    span = f"last {episodes} episodes" if episodes > 1 else "last episode"
    rivals = []
    if rival is not None:
        rivals.append(f"a choice model of the episode before {rival:.1%}")
    if chance is not None:
        rivals.append(f"chance {chance:.1%}")
    against = f" Compare: {', '.join(rivals)}." if rivals else ""
    found = [f"The recovered rewards predict {predicted:.1%} of choices one episode ahead ({span}).{against}"]
    if rival is not None and predicted < rival - _BEHIND:
        found.append("A plain choice model predicts more: the decider may not learn as this model assumes.")
    return found


def _on_the_forecast(model: Any) -> list[str]:
    if model.forecast_note_ is None or not model.coef_.any():
        return []
    words = model.forecast_note_.text
    return [words[:1].upper() + words[1:]]


def _on_the_solver(model: Any) -> list[str]:
    named = {(row.episode, row.step) for entry in model.diagnostics_ for row in entry.certificate or ()}
    violated = sum(entry.violated for entry in model.diagnostics_)
    if not model.coef_.any():
        return []
    if violated == 0 and not named:
        return ["The recovered policies explain every logged choice exactly."]
    left = f"{violated:,} comparison{'s' * (violated != 1)} of a chosen candidate with another"
    goes = "goes" if violated == 1 else "go"
    misfit = model.decider_.words.misfit
    if misfit:
        return [f"{misfit}: the fit is robust, and {left} {goes} against it."]
    found = []
    if named:
        found.append(
            f"No reward weights explain all choices: {len(named)} steps contradict each other. A decider of this kind "
            "with these settings leaves no contradictions, so something differs: changed choices, other episodes, "
            "another l2, a decider that draws."
        )
    if violated:
        found.append(f"Under the recovered policies {left} {goes} against the log.")
    return found
