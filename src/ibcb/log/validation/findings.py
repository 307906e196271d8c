"""What `ibcb.validate` hands back: what a log holds, and what is to be said of it, in the words of `findings.toml`."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

from ibcb.log.array_checks import plural
from ibcb.log.notebook import laid_out
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
    def named(self) -> str:
        """The features in a sentence: some of them, and how many more there are."""
        some, more = self.features, ""
        if len(some) > _NAMES_SHOWN + 1:
            some, more = some[:_NAMES_SHOWN], f" and {len(some) - _NAMES_SHOWN} more"
        return f"Features: {', '.join(some)}{more}."

    @property
    def note(self) -> Note:
        """The same as a note of whatever is made of the log; an error is a warning then, if anything was made."""
        text = self.message
        if not text.startswith(self.features):
            text = text[:1].lower() + text[1:]
        figures: dict[str, Figure] = {}
        if self.place is not None:
            text, figures["place"] = f"{self.place}: {text}", self.place
        if self.features:
            text, figures["features"] = f"{text} {self.named}", self.features
        text = f"{text} {self.remedy}".rstrip()
        return Note(self.code, "info" if self.severity == "note" else "warning", text, figures)


@cache
def _words() -> dict[str, dict[str, str]]:
    """What findings say, by code and, behind a slash, which of several: severity, message and remedy."""
    return tomllib.loads(files("ibcb.log.validation").joinpath("findings.toml").read_text(encoding="utf-8"))


def says(
    case: str, /, place: str | None = None, *, warns: bool = False, features: Iterable[str] = (), **figures: Any
) -> Finding:
    """A finding of the table; ``warns`` where a note is a warning."""
    code = case.partition("/")[0]
    said = _words().get(code, {}) | _words()[case]
    message, remedy = (said.get(part, "").format(**figures) for part in ("message", "remedy"))
    severity = cast(Severity, "warning" if warns else said["severity"])
    return Finding(severity, code, message, place, remedy, tuple(features))


def noted(case: str, figures: Mapping[str, Figure], **more: Any) -> Note:
    """A note in the words of the table, which are made of its figures and of ``more``."""
    told: dict[str, Any] = {**figures, **more}
    return replace(says(case, **told).note, figures=figures)


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
        severities = [finding.severity for finding in self.findings]
        counts = [plural(severities.count(each), each) for each in SEVERITIES if each in severities]
        if not counts:
            return "Ready to fit: nothing wrong was found."
        listed = " and ".join(filter(None, [", ".join(counts[:-1]), counts[-1]]))
        return f"{'Ready to fit' if self.ok else 'Not ready to fit'}: {listed}."

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"ok": self.ok, **asdict(self)}

    def render(self, width: int = 80) -> str:
        """As text for a terminal: the verdict, what the log holds, then every finding."""

        def wrapped(text: str, first: str, later: str) -> list[str]:
            # Long names of features may be broken: a line that is too long helps nobody.
            return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=later)

        lines = [self.verdict, ""]
        for name, text in _described(self.summary).items():
            lines += wrapped(f"{name:<10}{text}", "", " " * 10)
        for finding in self.findings:
            place = f", {finding.place}" if finding.place else ""
            lines += ["", *wrapped(f"{finding.severity}: {finding.code}{place}", "", "")]
            lines += wrapped(finding.message, "  ", "  ")
            if finding.features:
                lines += wrapped(finding.named, "  ", "  ")
            lines += wrapped(f"-> {finding.remedy}", "  ", "     ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return laid_out("validation", self)

    def __str__(self) -> str:
        return self.render()


def _described(summary: LogSummary) -> dict[str, str]:
    warmup = f" after {summary.warmup_episodes} of warm-up" if summary.warmup_episodes else ""
    size, unit = float(summary.nbytes), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size >= 1000:
            size, unit = size / 1000, larger
    entries = {
        "episodes": f"{summary.episodes}{warmup}{_spread(summary.episode_steps, 'step')}",
        "steps": f"{summary.steps}{_spread(summary.candidates, 'candidate')}",
        "rows": f"{summary.rows} of {plural(summary.features, 'feature')}, "
        f"{summary.dtype or 'no numbers'}: {size:.3g} {unit} in memory",
    }
    if summary.propensities:
        entries["logged"] = f"propensities of {plural(summary.propensities, 'choice')}"
    if summary.time_span is not None:
        entries["time"] = " to ".join(summary.time_span)
    return entries


def _spread(sizes: tuple[int, float, int] | None, noun: str) -> str:
    if sizes is None:
        return ""
    least, median, most = sizes
    if least == most:
        return f", {plural(least, noun)} each"
    return f", {least} to {most} {noun}s (median {median:g})"
