"""What `ibcb.validate` hands back: what a log holds, and what is to be said of it."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ibcb.log.array_checks import plural
from ibcb.log.notebook import validation_html
from ibcb.log.notes import Figure, Note

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
#: what fits on a line
_NAMES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader should know of a log.

    Attributes
    ----------
    severity : {"error", "warning", "note"}
        error: fitting is impossible or says nothing. warning: some answers are doubtful. note: the rest.
    code : str
        A stable name in kebab-case, to filter by.
    message : str
        What was found, with its numbers, and why it matters.
    place : str or None
        Where: the first place, if there are several.
    remedy : str
    features : tuple of str
        Names of the features it is about; their numbers where the log has no names.
    """

    severity: Severity
    code: str
    message: str
    place: str | None
    remedy: str
    features: tuple[str, ...] = ()

    @property
    def note(self) -> Note:
        """The same as a note of whatever is made of the log; an error is a warning then, if anything was made."""
        named = any(self.message.startswith(name) for name in self.features)
        words = [self.message if named else self.message[:1].lower() + self.message[1:]]
        if self.place is not None:
            words[0] = f"{self.place}: {words[0]}"
        if self.features:
            words.append(f"Features: {shown(self.features)}.")
        figures: dict[str, Figure] = {} if self.place is None else {"place": self.place}
        if self.features:
            figures["features"] = self.features
        severity: Literal["info", "warning"] = "info" if self.severity == "note" else "warning"
        return Note(self.code, severity, " ".join([*words, self.remedy]), figures)


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What a log holds. Episodes do not count the warm-up; steps, rows and candidates do."""

    episodes: int
    warmup_episodes: int
    steps: int
    rows: int
    episode_steps: tuple[int, float, int] | None
    """Steps of an episode: least, median, most."""
    candidates: tuple[int, float, int] | None
    """Candidates of a step: least, median, most."""
    features: int
    dtype: str | None
    time_span: tuple[str, str] | None
    """First and last timestamp."""
    nbytes: int
    """Size in memory."""
    propensities: int
    """Choices with a logged propensity."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What a log holds and what is wrong with it, the gravest first; ``print`` shows all of it."""

    summary: LogSummary
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the log can be fitted: no finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def notes(self) -> tuple[Note, ...]:
        """All findings as notes: what `ibcb.report.write_report` takes, and `ibcb fit` repeats."""
        return tuple(finding.note for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One line."""
        counts = [
            plural(number, severity)
            for severity in SEVERITIES
            if (number := sum(finding.severity == severity for finding in self.findings))
        ]
        if not counts:
            return "Ready to fit: nothing wrong was found."
        listed = " and ".join(filter(None, [", ".join(counts[:-1]), counts[-1]]))
        return f"{'Ready to fit' if self.ok else 'Not ready to fit'}: {listed}."

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "ok": self.ok,
            "summary": asdict(self.summary),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def render(self, width: int = 80) -> str:
        """As text for a terminal: the verdict, what the log holds, then every finding."""
        lines = [self.verdict, "", *_described(self.summary, width)]
        for finding in self.findings:
            place = f", {finding.place}" if finding.place else ""
            lines += ["", *_wrapped(f"{finding.severity}: {finding.code}{place}", width, "")]
            lines += _wrapped(finding.message, width, "  ")
            if finding.features:
                lines += _wrapped(f"Features: {shown(finding.features)}.", width, "  ")
            lines += _wrapped(f"-> {finding.remedy}", width, "  ", "     ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return validation_html(self)

    def __str__(self) -> str:
        return self.render()


def shown(names: tuple[str, ...]) -> str:
    """Some names, and how many more there are."""
    if len(names) <= _NAMES_SHOWN + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMES_SHOWN])} and {len(names) - _NAMES_SHOWN} more"


def _described(summary: LogSummary, width: int) -> list[str]:
    warmup = f" after {summary.warmup_episodes} of warm-up" if summary.warmup_episodes else ""
    entries = {
        "episodes": f"{summary.episodes}{warmup}{_spread(summary.episode_steps, 'step')}",
        "steps": f"{summary.steps}{_spread(summary.candidates, 'candidate')}",
        "rows": f"{summary.rows} of {plural(summary.features, 'feature')}, "
        f"{summary.dtype or 'no numbers'}: {_bytes(summary.nbytes)} in memory",
    }
    if summary.propensities:
        entries["logged"] = f"propensities of {plural(summary.propensities, 'choice')}"
    if summary.time_span is not None:
        entries["time"] = " to ".join(summary.time_span)
    return [line for name, text in entries.items() for line in _wrapped(f"{name:<10}{text}", width, "", " " * 10)]


def _spread(sizes: tuple[int, float, int] | None, noun: str) -> str:
    if sizes is None:
        return ""
    least, median, most = sizes
    if least == most:
        return f", {plural(least, noun)} each"
    return f", {least} to {most} {noun}s (median {median:g})"


def _bytes(count: int) -> str:
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"


def _wrapped(text: str, width: int, first: str, later: str | None = None) -> list[str]:
    # Long names of features may be broken: a line that is too long helps nobody.
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=first if later is None else later)
