"""What a reader should know of a result, as data: code and figures to decide by, words to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Figure = float | int | str | tuple[float | int | str, ...]


@dataclass(frozen=True)
class Note:
    """One thing that a reader should know of a result; ``str`` gives its words.

    Attributes
    ----------
    code : str
        A stable name in kebab-case, to decide by; nothing decides by the words.
    severity : {"info", "warning"}
        warning: some answers are doubtful. info: the rest.
    text : str
        One or more sentences, without a capital at the start.
    figures : mapping of str to number, text, or a tuple of them
        What the words are made of.

    Examples
    --------
    >>> note = Note("late-start", "warning", "the log starts at episode 3.", {"episode": 3})
    >>> print(note)
    the log starts at episode 3.
    >>> Note.from_json(note.to_json()) == note
    True
    """

    code: str
    severity: Literal["info", "warning"]
    text: str
    # A mapping has no hash; the other three tell notes apart.
    figures: Mapping[str, Figure] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """As plain data, tuples as lists."""
        figures = {name: list(value) if isinstance(value, tuple) else value for name, value in self.figures.items()}
        return {"code": self.code, "severity": self.severity, "text": self.text, "figures": figures}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Note:
        """The note of which `to_json` gave this."""
        figures = {name: tuple(value) if isinstance(value, list) else value for name, value in data["figures"].items()}
        return cls(data["code"], data["severity"], data["text"], figures)
