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

import numpy as np

from ibcb.io.columns import dropped
from ibcb.io.files import binary
from ibcb.io.format import Format, has_suffix
from ibcb.io.sources import OTHER_KINDS, refuse_roles, refused, same_features, shared_features, unlabelled_steps
from ibcb.io.sparse import Decision, SparseSource, names_to_write
from ibcb.log import BehaviorLog
from ibcb.log.arrays import LogFormatError, shown
from ibcb.log.disk import DAMAGE
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.steps import ReadOptions
from ibcb.numerics.contexts import dense

__all__ = ["FORMAT", "VWSource", "looks_like_vw", "write_vw"]

_ESCAPES = {"%": "%25", " ": "%20", "\t": "%09", "\n": "%0A", "\r": "%0D", "\0": "%00", ":": "%3A", "|": "%7C"}
_CHARACTERS = {code: character for character, code in _ESCAPES.items()}
_NO_NAME = "%_"
#: what the last part of a label is called, to leave it out
_PROBABILITY = "probability"
_MOST_CACHED = 100_000
#: names that text of other kinds may have, too
_UNSURE = (".txt", ".dat", ".data", ".txt.gz", ".dat.gz", ".data.gz")


class VWSource(SparseSource):
    """Steps from Vowpal Wabbit text; see `Source`.

    With ``options.choices=False`` blocks need no label; ``chosen`` is 0 where there is none. ``options.drop`` may name
    ``probability``, that of the labels.
    """

    separator = "^"

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        refuse_roles(options, Path(path).name)
        if options.sort:
            raise LogFormatError(
                f"{Path(path).name}: Vowpal Wabbit text holds neither times nor episodes to sort by; read it without "
                "sort."
            )
        self._names: dict[str, dict[str, str]] = {}
        self._shared: dict[str, None] = {}
        self._unlabelled = 0
        super().__init__(path, options)

    def _remarks(self) -> list[Note]:
        left_out = unlabelled_steps(self._unlabelled)
        if not self._shared or self._with_shared:
            return [*left_out]
        first = next(iter(self._shared)).partition("^")[0]
        other = next((name for name in self._columns), "item").partition("^")[0]
        return [shared_features(self._shared, "the features of the shared lines", (first, other)), *left_out]

    def _decisions(self) -> Iterator[Decision]:
        block: list[tuple[int, str]] = []
        self._unlabelled = 0
        size = 0
        for number, raw in self._lines():
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n").replace("\t", " ")
            except UnicodeDecodeError as error:
                raise self._error(
                    f"line {number}", f"byte {error.start} is not UTF-8; save the file as UTF-8."
                ) from None
            if line.strip(" "):
                block.append((number, line))
                # A line makes a dict, and every few characters an entry of it.
                size += 1000 + 20 * len(raw)
                if 8 * size > self._options.memory:
                    raise beyond(
                        f"{self.name}, line {block[0][0]}: the block that begins here has {len(block)} lines or more; "
                        f"with all copies made of them they take {amount(8 * size)}",
                        self._options.memory,
                        "blocks are separated by blank lines: are they missing? Or ",
                    )
            elif block:
                yield from self._decision(block)
                block, size = [], 0
        if block:
            yield from self._decision(block)

    def _decision(self, block: list[tuple[int, str]]) -> Iterator[Decision]:
        """The decision of a block, unless it has no label and such are to be left out."""
        first = f"line {block[0][0]}"
        candidates: list[dict[str, float]] = []
        shared: dict[str, float] = {}
        chosen: int | None = None
        logged: dict[int, float] = {}
        for index, (number, line) in enumerate(block):
            place = f"line {number}"
            head, bar, features = line.partition("|")
            if not bar:
                raise self._error(
                    place,
                    f"{_short(line)} has no '|'; a line is '[label] |namespace features', as in '0:1:0.5 |a x:2'.",
                )
            label = self._label(head, place)
            if label == "shared":
                if index > 0:
                    raise self._error(
                        place,
                        "a shared line within a block; it must be the first. Blocks are separated by blank lines: is "
                        "one missing before it?",
                    )
                shared = self._features(features, place)
                self._shared.update((name, None) for name in shared if len(self._shared) < 1000)
                continue
            if label:
                if chosen is not None:
                    heads = [self._label(line.partition("|")[0], place) for _, line in block]
                    every = all(heads) and "shared" not in heads
                    other = " Every line is labelled, as in --cb, with a line per step; ibcb reads --cb_adf."
                    raise self._error(
                        place,
                        f"a second labelled candidate in the block that begins at {first}; one is chosen at each step. "
                        f"Blocks are separated by blank lines: is one missing?{other if every else ''}",
                    )
                chosen = len(candidates)
                if _PROBABILITY not in self._options.drop and self._options.choices:
                    logged = {chosen: float(label.rpartition(":")[2])}
            candidates.append(self._features(features, place))
        if not candidates:
            raise self._error(first, "a shared line without candidates; a block needs a line for each of them.")
        if chosen is None and self._options.choices:
            if self._options.skip_unlabelled:
                self._unlabelled += 1
                return
            raise self._error(
                first,
                "no candidate of the block that begins here is labelled; the line of the chosen one begins with "
                "action:cost:probability and a space, as in '0:1:0.5 |a x:2'. Leave such blocks out with "
                "skip_unlabelled=True (--skip-unlabelled).",
            )
        yield Decision(first, candidates, chosen or 0, shared=shared, propensities=logged)

    def _own_keys(self) -> tuple[str, ...]:
        return (_PROBABILITY,)

    @property
    def _without_propensities(self) -> str:
        return dropped(_PROBABILITY)

    def _label(self, head: str, place: str) -> str:
        """What stands before the first bar, without a tag: "", "shared" or a label."""
        words = head.split(" ")
        touching = words[-1]
        words = [word for word in words if word]
        if words and (touching or words[-1].startswith("'")):
            tag = words.pop()
            if touching and (tag == "shared" or re.fullmatch(r"\d+(:[^:]*){1,2}", tag)):
                raise self._error(
                    place,
                    f"{shown(tag)} touches the '|', so Vowpal Wabbit takes it for a tag; put a space between them.",
                )
        if not words:
            return ""
        if words == ["shared"]:
            return "shared"
        if words[0] in OTHER_KINDS:
            raise self._error(place, f"{_short(' '.join(words))} {refused(words[0])}")
        if len(words) == 1 and re.fullmatch(r"[^:]+:[^:]+:[^:]+", words[0]):
            action, cost, probability = words[0].split(":")
            if action != "shared" and _number(cost) is not None and _number(probability) is not None:
                return words[0]
        costs = len(words) == 1 and re.fullmatch(r"\d+:[^:]+", words[0])
        what = (
            " It is one of cost-sensitive classification (csoaa_ldf), where no candidate was chosen." if costs else ""
        )
        raise self._error(
            place,
            f"{_short(' '.join(words))} is not a label; expected nothing, 'shared', or action:cost:probability for the "
            f"chosen candidate.{what}",
        )

    def _features(self, text: str, place: str) -> dict[str, float]:
        """Names and values of all namespaces of a line; ``text`` is what follows the first bar."""
        result: dict[str, float] = {}
        for section in text.split("|"):
            namespace, weight = "", 1.0
            tokens = section.split(" ")
            if tokens[0]:
                namespace, weight = self._namespace(tokens[0], place)
            names = self._names.setdefault(namespace, {})
            for token in tokens[1:]:
                if not token:
                    continue
                raw, colon, text_value = token.partition(":")
                value = weight
                if colon:
                    number = _number(text_value)
                    if number is None:
                        raw, value = self._text_value(token, raw, text_value, place)
                    else:
                        value = number * weight
                        if value - value != 0:
                            raise self._error(
                                place,
                                f"the value of {_short(token)} is not finite; impute it or leave the step out.",
                            )
                name = names.get(raw)
                if name is None:
                    if not raw:
                        raise self._error(place, f"{_short(token)} is a value without a name; name every feature.")
                    name = _unescaped(raw) if not namespace else f"{_unescaped(namespace)}^{_unescaped(raw)}"
                    if len(names) < _MOST_CACHED:
                        names[raw] = name
                result[name] = result[name] + value if name in result else value
        return result

    def _namespace(self, token: str, place: str) -> tuple[str, float]:
        namespace, colon, text = token.partition(":")
        weight = _number(text) if colon else 1.0
        if not namespace or weight is None or weight - weight != 0:
            raise self._error(
                place,
                f"{_short(token)} after '|' is not a namespace; expected a name, or name:weight with a finite number. "
                "A space after '|' begins the features of the namespace without a name.",
            )
        return namespace, weight

    def _text_value(self, token: str, raw: str, text: str, place: str) -> tuple[str, float]:
        """The feature that a text as value stands for."""
        if not raw or not text or text[0] in "+-.0123456789" or ":" in text:
            raise self._error(place, f"{_short(token)} is not a feature; expected name or name:number.")
        return f"{raw}^{text}", 1.0


def write_vw(parts: Iterable[tuple[int, BehaviorLog]], path: str | os.PathLike[str]) -> None:
    """Write a log, part by part, so that the same names, numbers and choices are read back.

    The label's probability is the logged propensity of the chosen candidate, and 1 where none was logged; its cost 0 is
    a placeholder, since a log has no rewards. Numbers are written as the shortest text that is the same double. The
    first candidate has all features, so that their order comes back; the others leave out those that are 0, as is
    usual. Characters that the format cannot hold are written as %20 and the like.
    """
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        columns: list[tuple[str, str]] | None = None
        for _, part in same_features(parts):
            every = columns is None
            if columns is None:
                columns = [_column(name) for name in names_to_write(part)]
            start = 0
            logged = np.ones(part.n_steps) if part.propensities is None else part.propensities[part.chosen_rows]
            labels = [f"{chosen + 1}:0:{_probability(p)} " for chosen, p in zip(part.chosen, logged, strict=True)]
            choices = zip(part.chosen.tolist(), part.step_offsets[1:].tolist(), labels, strict=True)
            for chosen, end, label in choices:
                for index, row in enumerate(dense(part.contexts[start:end]).tolist()):
                    file.write(f"{label if index == chosen else ''}{_line(columns, row, every)}\n")
                    every = False
                file.write("\n")
                start = end


def looks_like_vw(path: str | os.PathLike[str]) -> bool:
    """Whether the first line that is not blank could be one of a block."""
    try:
        with binary(Path(path)) as file:
            for _ in range(100):
                line = file.readline(65_536).decode("utf-8-sig", errors="ignore")
                if line.strip() or not line:
                    break
    except DAMAGE:
        return False
    number = r"[\d.eE+-]+"
    label = rf"(shared|{'|'.join(OTHER_KINDS)})\s[^|]*|([\w-]+(:{number}){{1,2}}\s+|{number}\s+)+"
    return re.match(rf"\s*({label})?('\S*\s*|[\w./#-]*)\|", line) is not None


def _probability(logged: float) -> str:
    """As labels have it: the shortest text that is the same number, 1 where there is none."""
    return "1" if np.isnan(logged) or logged == 1 else repr(float(logged))


def _line(columns: list[tuple[str, str]], row: list[float], every: bool) -> str:
    """One candidate's features, those of a namespace together; zeros only where ``every`` feature is to be there."""
    pieces: list[str] = []
    current: str | None = None
    for (namespace, feature), value in zip(columns, row, strict=True):
        text = repr(value)
        if text == "0.0" and not every:
            continue
        if namespace != current:
            pieces.append(f"|{namespace}")
            current = namespace
        pieces.append(f"{feature}:{text}")
    return " ".join(pieces) or "|"


def _column(name: str) -> tuple[str, str]:
    """Namespace and feature of a name, as they are written."""
    namespace, _, feature = name.partition("^")
    if not namespace or not feature:
        return "", _escaped(name)
    return _escaped(namespace), _escaped(feature)


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


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


FORMAT = Format(
    name="Vowpal Wabbit text",
    open=VWSource,
    suffixes=(".vw", ".vw.gz", ".ldf", ".ldf.gz"),
    looks_like=lambda source: has_suffix(source, *_UNSURE) and looks_like_vw(source),
    write=write_vw,
    loses="episodes, warm-up, times, ids, the float type, missing feature names, propensities of candidates that were "
    "not chosen, and how the features were made",
)
