"""Vowpal Wabbit's text format for contextual bandits (``--cb_adf``).

A step is a block of lines, blocks are separated by blank lines. A block may begin with a line ``shared |...``; every
other line is a candidate, and that of the chosen one bears the label ``action:cost:probability``::

    shared |user age:31
    |item:2 price:0.5 red
    2:-1:0.25 |item price:0.25 |text sale

A candidate's features are ``ns^name`` (``name`` where the namespace has no name), their values the written ones times
the namespace's weight; without a value it is 1, and what appears several times is added up. A text as value, as in
``city:paris``, makes the feature ``ns^city^paris`` with value 1, as in Vowpal Wabbit.

Probabilities are kept beside the log, as the logged propensity of the chosen candidate; where all of them are 1, or 0,
as whoever does not know them writes, there are none. Costs are never kept: they are rewards. The features of the
``shared`` line are the same for all candidates of a step, so that no linear policy can depend on them; they are left
out, but for products: ``cross=[("user", "item")]`` multiplies those of one namespace with those of another, as
``-q ui`` does. The format has no place for episodes, warm-up, timestamps, the float type, and features without a
name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ibcb.io.format import Format, has_suffix
from ibcb.io.opened import first_lines, text_lines
from ibcb.io.sources import OTHER_KINDS, refused
from ibcb.io.sparse import Decision, SparseSource, steps_to_write
from ibcb.io.words import dropped, refusal
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError
from ibcb.log.memory import amount, beyond
from ibcb.log.read_options import ReadOptions
from ibcb.numerics.printable import shown

_ESCAPES = {"%": "%25", " ": "%20", "\t": "%09", "\n": "%0A", "\r": "%0D", "\0": "%00", ":": "%3A", "|": "%7C"}
_CHARACTERS = {code: character for character, code in _ESCAPES.items()}
_NO_NAME = "%_"
#: what the last part of a label is called, to leave it out
_PROBABILITY = "probability"
_MOST_CACHED = 100_000
#: names that text of other kinds may have, too
_UNSURE = (".txt", ".dat", ".data", ".txt.gz", ".dat.gz", ".data.gz")


class _Line(NamedTuple):
    number: int
    label: str
    features: dict[str, float]


class VWSource(SparseSource):
    """Steps from Vowpal Wabbit text; see `Source`.

    With ``options.choices=False`` blocks need no label; ``chosen`` is 0 where there is none. ``options.drop`` may name
    ``probability``, that of the labels.
    """

    separator, _shared_words = "^", "the features of the shared lines"
    _own_keys = (_PROBABILITY,)
    _without_propensities = dropped(_PROBABILITY)
    _no_choice = (
        "no candidate of the block that begins here is labelled; the line of the chosen one begins with "
        "action:cost:probability and a space, as in '0:1:0.5 |a x:2'",
        "blocks",
    )

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        if options.sort:
            raise refusal("vw-sort")
        self._names: dict[str, dict[str, str]] = {}
        super().__init__(path, options)

    def _read(self) -> Iterator[Decision]:
        """A decision of every block: the lines between blank ones."""
        block: list[_Line] = []
        size, memory = 0, self._options.memory
        for number, raw in text_lines(self._opened, memory):
            line = self._line(number, raw)
            if line is not None:
                block.append(line)
                # A line makes a dict, and every few characters an entry of it.
                size += 8 * (1000 + 20 * len(raw))
                if size > memory:
                    raise beyond(
                        f"line {block[0].number}: the block that begins here has {len(block)} lines or more; "
                        f"with all copies made of them they take {amount(size)}",
                        memory,
                        "blocks are separated by blank lines: are they missing? Or ",
                    )
            elif block:
                yield self._decision(block)
                block, size = [], 0
        if block:
            yield self._decision(block)

    def _line(self, number: int, raw: bytes) -> _Line | None:
        """What a line holds; None where it is blank."""
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n").replace("\t", " ")
            head, bar, text = line.partition("|")
            if not bar and head.strip(" "):
                reason = "has no '|'; a line is '[label] |namespace features', as in '0:1:0.5 |a x:2'."
                raise LogFormatError(f"{shown(line, 40)} {reason}")
            return _Line(number, _label(head), self._features(text)) if bar else None
        except UnicodeDecodeError as error:
            raise LogFormatError(f"line {number}: byte {error.start} is not UTF-8; save the file as UTF-8.") from None
        except LogFormatError as error:
            raise LogFormatError(f"line {number}: {error}") from None

    def _decision(self, block: list[_Line]) -> Decision:
        first, *others = block
        if late := next((line for line in others if line.label == "shared"), None):
            raise refusal("shared-late", line=late.number)
        shared = first.features if first.label == "shared" else {}
        candidates = others if first.label == "shared" else block
        if not candidates:
            raise refusal("shared-alone", line=first.number)
        labelled = [place for place, line in enumerate(candidates) if line.label]
        if len(labelled) > 1:
            other = " Every line is labelled, as in --cb, with a line per step; ibcb reads --cb_adf."
            raise refusal(
                "label-twice",
                line=candidates[labelled[1]].number,
                first=first.number,
                more=other if len(labelled) == len(block) else "",
            )
        chosen, logged = labelled[0] if labelled else None, {}
        if chosen is not None and _PROBABILITY not in self._options.drop and self._options.choices:
            logged = {chosen: float(candidates[chosen].label.rpartition(":")[2])}
        self._remember(self._shared, shared)
        each = [line.features for line in candidates]
        return Decision(f"line {first.number}", each, chosen, shared=shared, propensities=logged)

    def _features(self, text: str) -> dict[str, float]:
        """Names and values of all namespaces of a line; ``text`` is what follows the first bar."""
        result: dict[str, float] = {}
        for section in text.split("|"):
            first, *tokens = section.split(" ")
            namespace, colon, scale = first.partition(":")
            weight = _number(scale) if colon else 1.0
            if (colon and not namespace) or weight is None or weight - weight != 0:
                raise refusal("no-namespace", first=shown(first, 40))
            names = self._names.setdefault(namespace, {})
            for token in tokens:
                if not token:
                    continue
                raw, colon, written = token.partition(":")
                value = _number(written) if colon else 1.0
                if value is not None:
                    value *= weight
                    if value - value != 0:
                        raise LogFormatError(
                            f"the value of {shown(token, 40)} is not finite; impute it or leave the step out."
                        )
                elif raw and written and written[0] not in "+-.0123456789" and ":" not in written:
                    raw, value = f"{raw}^{written}", 1.0
                else:
                    raise LogFormatError(f"{shown(token, 40)} is not a feature; expected name or name:number.")
                name = names.get(raw)
                if name is None:
                    if not raw:
                        raise LogFormatError(f"{shown(token, 40)} is a value without a name; name every feature.")
                    name = "^".join(_unescaped(part) for part in (namespace, raw) if part)
                    if len(names) < _MOST_CACHED:
                        names[raw] = name
                result[name] = result[name] + value if name in result else value
        return result


def _label(head: str) -> str:
    """What stands before the first bar, without a tag: "", "shared" or action:cost:probability."""
    words = [word for word in head.split(" ") if word]
    touching = not head.endswith(" ")
    if words and (touching or words[-1].startswith("'")):
        tag = words.pop()
        if touching and re.fullmatch(r"shared|\d+(:[^:]*){1,2}", tag):
            raise refusal("label-a-tag", tag=tag)
    label = " ".join(words)
    parts = label.split(":")
    is_cost = len(parts) == 3 and parts[0] not in ("", "shared") and None not in map(_number, parts[1:])
    if label in ("", "shared") or (is_cost and len(words) == 1):
        return label
    if words[0] in OTHER_KINDS:
        raise LogFormatError(f"{shown(label, 40)} {refused(words[0])}")
    costs = " It is one of cost-sensitive classification (csoaa_ldf), where no candidate was chosen."
    is_costs = re.fullmatch(r"\d+:[^: ]+", label)
    raise refusal("label-unknown", label=shown(label, 40), more=costs if is_costs else "")


def write_vw(parts: Iterable[tuple[int, BehaviorLog]], path: str | os.PathLike[str]) -> None:
    """Write a log, part by part, so that the same names, numbers and choices are read back.

    The label's probability is the logged propensity of the chosen candidate, and 1 where none was logged; its cost 0 is
    a placeholder, since a log has no rewards. Numbers are written as the shortest text that is the same double. The
    first candidate has all features, so that their order comes back; the others leave out those that are 0, as is
    usual. Characters that the format cannot hold are written as %20 and the like.
    """
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        columns: dict[str, tuple[str, str]] = {}
        for _, part, step, candidates in steps_to_write(parts):
            columns = columns or {name: _column(name) for name in candidates[0]}
            chosen = int(part.chosen[step])
            logged = 1.0 if part.propensities is None else float(part.propensities[part.step_offsets[step] + chosen])
            # The shortest text that is the same number, 1 where there is none.
            label = f"{chosen + 1}:0:{'1' if np.isnan(logged) or logged == 1 else repr(logged)} "
            for index, candidate in enumerate(candidates):
                file.write(f"{label if index == chosen else ''}{_written(columns, candidate)}\n")
            file.write("\n")


def looks_like_vw(path: str | os.PathLike[str]) -> bool:
    """Whether the first line that is not blank could be one of a block."""
    lines = (line.decode("utf-8-sig", errors="ignore") for line in first_lines(Path(path), 100, 65_536))
    line = next((line for line in lines if line.strip()), "")
    number = r"[\d.eE+-]+"
    label = rf"(shared|{'|'.join(OTHER_KINDS)})\s[^|]*|([\w-]+(:{number}){{1,2}}\s+|{number}\s+)+"
    return re.match(rf"\s*({label})?('\S*\s*|[\w./#-]*)\|", line) is not None


def _written(columns: dict[str, tuple[str, str]], candidate: dict[str, float]) -> str:
    """One candidate's features, those of a namespace together."""
    pieces: list[str] = []
    current: str | None = None
    for name, value in candidate.items():
        namespace, feature = columns[name]
        if namespace != current:
            pieces.append(f"|{namespace}")
            current = namespace
        pieces.append(f"{feature}:{value!r}")
    return " ".join(pieces) or "|"


def _column(name: str) -> tuple[str, str]:
    """Namespace and feature of a name, as they are written."""
    namespace, _, feature = name.partition("^")
    return (_escaped(namespace), _escaped(feature)) if namespace and feature else ("", _escaped(name))


def _escaped(name: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in name) or _NO_NAME


def _unescaped(raw: str) -> str:
    if "%" not in raw:
        return raw
    if raw == _NO_NAME:
        return ""
    return re.sub("%(25|20|09|0A|0D|00|3A|7C)", lambda match: _CHARACTERS[match[0]], raw)


def _number(text: str) -> float | None:
    """The number that a text is, if it is one. Python's 1_000 is none."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


FORMAT = Format(
    name="Vowpal Wabbit text",
    open=VWSource,
    suffixes=(".vw", ".vw.gz", ".ldf", ".ldf.gz"),
    looks_like=lambda source: has_suffix(source, *_UNSURE) and looks_like_vw(source),
    write=write_vw,
    loses="episodes, warm-up, times, ids, the float type, missing feature names, propensities of candidates that were "
    "not chosen, and how the features were made",
)
