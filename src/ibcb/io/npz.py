"""Logs as NumPy archives (.npz), such as ``numpy.savez("log.npz", contexts=..., chosen=..., episode=...)`` writes.

=================== ========================== ========================================================================
array               shape                      holds
=================== ========================== ========================================================================
contexts            (rows, d) or (steps, M, d) the candidates' features
chosen              (steps,)                   position of the chosen candidate, from 0
step_offsets        (steps + 1,)               with (rows, d): first row of every step, and the number of rows
episode             (steps,)                   label of the step's episode; whole numbers below 0 are the warm-up
episode_offsets     (episodes + 1,)            instead of ``episode``: first step of each, and the number of steps
warmup              ()                         how many leading episodes the policy did not choose
feature_names       (d,)                       text
timestamps          (steps,)                   times, numbers or text
step_ids            (steps,)                   whole numbers or text
candidate_ids       (rows,)                    whole numbers or text: what each candidate is called
propensities        (rows,) or (steps,)        logged probabilities, NaN where none is known; of a step: of the chosen
contexts_columns    (numbers,)                 of a sparse log: the feature of each number in ``contexts`` (numbers,)
contexts_offsets    (rows + 1,)                of a sparse log: the first number of every row, and how many there are
n_features          ()                         of a sparse log
preparation         ()                         text: how the features were made, as JSON
=================== ========================== ========================================================================

All but contexts and chosen may be missing. Other arrays are left out. Nothing is unpickled: arrays of objects are
refused before their data is read. Contexts are read a part at a time, so that an archive may be larger than memory.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ibcb.io.format import Format
from ibcb.io.sources import (
    BATCH_NUMBERS,
    asked_names,
    cuts,
    file_without_columns,
    in_order,
    kept_features,
    same_features,
    some,
)
from ibcb.io.words import dropped, refusal
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import (
    LogFormatError,
    distinct_names,
    first_true,
    offsets_of,
    plural,
    rising_offsets,
    warmup_count,
    whole_numbers,
)
from ibcb.log.choice_propensities import row_propensities
from ibcb.log.disk import short_message
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import Preparation
from ibcb.log.steps import Steps
from ibcb.numerics.contexts import Contexts, is_sparse, ordered

_WHOLE, _NAMES, _TEXT = "whole numbers", "numbers, times or text (dtype 'U')", "text (dtype 'U')"
#: the arrays of a log, the kinds of values that each may hold, how these are called, and what has one entry each; "" is
#: a single value
_ARRAYS = {
    "contexts": ("fiub", "float32 or float64", "number"),
    "chosen": ("iuf", _WHOLE, "step"),
    "step_offsets": ("iuf", _WHOLE, "offset"),
    "episode": ("iufbMUS", _NAMES, "step"),
    "episode_offsets": ("iuf", _WHOLE, "offset"),
    "warmup": ("iu", "a whole number", ""),
    "feature_names": ("U", _TEXT, "feature"),
    "timestamps": ("iufMU", _NAMES, "step"),
    "step_ids": ("iufMU", _NAMES, "step"),
    "candidate_ids": ("iuU", f"whole numbers or {_TEXT}", "row"),
    "propensities": ("f", "floats", "row"),
    "contexts_columns": ("iuf", _WHOLE, "number"),
    "contexts_offsets": ("iuf", _WHOLE, "row"),
    "n_features": ("iu", "a whole number", ""),
    "preparation": ("U", _TEXT, ""),
}
#: what each step must have, where any has it
_KNOWN = {"episode": "episode", "timestamps": "time"}
_SPARSE = ("contexts", "contexts_columns", "contexts_offsets", "n_features")
# NumPy reads headers with Python's own parser of literals.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    SyntaxError,
    tokenize.TokenError,
)
#: bytes of a header that says what an array is; NumPy's own have a few hundred at most
_LONGEST_HEADER = 1 << 16
#: characters of a text that is a name or an id
_LONGEST_TEXT = 1 << 20
_PARSERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
#: NumPy writes arrays without compression or by deflate; others are not worth their risks: bzip2 reads some damage as
#: if it were none
_OTHERS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}


class NpzSource:
    """Steps from a NumPy archive; see `Source`.

    With ``options.choices=False`` the array ``chosen`` may be missing, and is 0 then. ``options.sort`` orders the steps
    by episode and time, in memory.
    """

    notes: tuple[Note, ...] = ()

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        reason = "an archive holds numbers; encode columns before it is written"
        keep = "every feature of an archive is read, whatever its name. Leave it out"
        self._archive = archive = _Archive(file_without_columns(path, options, reason, keep))
        self.name, self._options = archive.path.name, options
        contexts = archive.arrays.get("contexts")
        if contexts is None:
            feedback = "; feedback (see `ibcb.io.to_feedback`) is read from memory: read_log(numpy.load(path))"
            hint = feedback if "action" in archive.others else ""
            raise archive.missing("contexts", f"a log has contexts and chosen{hint}")
        sparse = "contexts_columns" in archive.arrays
        is_streamed = not (sparse or contexts.fortran)
        archive.check_memory(options.memory, with_contexts=not is_streamed or options.sort)
        #: all contexts, where they are not read a part at a time
        self._held: Contexts = None
        if sparse:
            self._held = archive.sparse_contexts()
        shape = contexts.shape if self._held is None else self._held.shape
        if len(shape) not in (2, 3) or 0 in shape:
            raise refusal("contexts-shape-wrong", shape=shape)
        kind, size = contexts.dtype.kind, contexts.dtype.itemsize
        if not (kind == "f" and size in (4, 8)) and (sparse or kind not in "iub"):
            raise LogFormatError(f"contexts has dtype {contexts.dtype}; use float32 or float64.")
        self._d = shape[-1]
        if contexts.fortran:
            self._held = archive.whole(contexts).reshape(-1, self._d)
        counts = archive.counts(shape)
        chosen, rows = self._chosen(counts), int(counts.sum())
        #: everything but the contexts
        self._beside = Steps(
            np.empty((rows, 0)),
            counts,
            chosen,
            self._episode(len(counts)),
            archive.load("step_ids", len(counts)),
            archive.load("timestamps", len(counts)),
            archive.load("candidate_ids", rows),
            self._propensities(counts, chosen),
        )
        self.feature_names, self._columns, self.preparation = self._features()
        if archive.others:
            text = f"arrays left out: {some(archive.others)}."
            self.notes = (Note("arrays-left-out", "info", text, {"arrays": archive.others}),)

    def _chosen(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        values = self._archive.load("chosen", len(counts))
        if values is None and self._options.choices:
            raise self._archive.missing("chosen", "the position of the chosen candidate at each step")
        chosen = np.zeros(len(counts), dtype=np.int64) if values is None else whole_numbers(values, "chosen")
        if (step := first_true((chosen < 0) | (chosen >= counts))) is not None:
            count = plural(int(counts[step]), "candidate")
            raise LogFormatError(f"step {step}: chosen is {chosen[step]} but the step has {count}; indices start at 0.")
        return chosen

    def _episode(self, steps: int) -> NDArray[Any] | None:
        """A label per step; whole numbers below 0 for the warm-up."""
        archive = self._archive
        labels, sizes = archive.load("episode", steps), archive.sizes("episode_offsets", steps, "step")
        if labels is not None and sizes is not None:
            raise LogFormatError("both 'episode' and 'episode_offsets' are there; keep one of them.")
        if sizes is not None:
            if (at := first_true(sizes == 0)) is not None:
                raise LogFormatError(f"episode {at} has no steps; leave it out.")
            labels = np.repeat(np.arange(len(sizes)), sizes)
        warmup = archive.load("warmup")
        if warmup is None:
            return labels
        if labels is None:
            raise LogFormatError("warmup needs the episodes: it tells how many leading ones the policy did not choose.")
        if labels.dtype.kind in "iu" and (labels < 0).any():
            raise refusal("warmup-twice")
        number = offsets_of(labels[1:] != labels[:-1])
        return number - warmup_count(warmup.item(), int(number[-1]) + 1)

    def _propensities(self, counts: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What was logged of every row."""
        if not self._options.choices or "propensities" in self._options.drop:
            return None
        offsets = offsets_of(counts)
        try:
            values = self._archive.load("propensities", int(offsets[-1]), len(counts))
            return row_propensities(values, offsets, chosen, lambda step: f"step {step}")
        except LogFormatError as error:
            raise LogFormatError(f"{error} To read without: {dropped('propensities')}.") from None

    def _features(self) -> tuple[tuple[str, ...] | None, NDArray[np.int64] | None, Preparation | None]:
        """Names of the features to read, their columns (None: all of them), and how they were made, if that is told."""
        options = replace(self._options, drop=[name for name in self._options.drop if name != "propensities"])
        stored, asked, model = self._archive.load("feature_names", self._d), asked_names(options), options.preparation
        names, columns = None if stored is None else distinct_names(stored.tolist(), self._d), None
        every = names
        if names is not None:
            names, columns = kept_features(names, options)
        elif asked is None and not options.drop:
            pass
        elif model is not None and asked is not None and len(asked) == self._d:
            names, columns = asked, None
        else:
            raise refusal("array-names-missing", d=self._d)
        made, text = None, self._archive.load("preparation")
        if text is not None:
            try:
                made = Preparation.from_json(json.loads(str(text.item())))
            except (ValueError, RecursionError):
                raise LogFormatError("array 'preparation' is damaged; write the log again, or leave it out.") from None
            if made.feature_names != every:
                raise LogFormatError("array 'preparation' makes other features than feature_names has; leave it out.")
            made = made.only(names or ())
        if model is not None and (made is None or not made.is_standardized):
            made = model.raw
        return names, columns, made

    def batches(self) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time."""
        return in_order(self._batches(), self._options.memory) if self._options.sort else self._batches()

    def _batches(self) -> Iterator[Steps]:
        most = min(BATCH_NUMBERS, self._options.memory // 64) // self._d
        with contextlib.ExitStack() as stack:
            file = None if self._held is not None else stack.enter_context(self._archive.member("contexts"))
            for steps, rows in cuts(self._beside.counts, most):
                contexts = self._held[rows] if file is None else self._following(file, rows.stop - rows.start)
                kind = contexts.dtype.newbyteorder("=") if contexts.dtype.kind == "f" else np.dtype(np.float64)
                contexts = contexts.astype(kind, copy=False)
                if self._columns is not None:
                    contexts = contexts[:, self._columns]
                    contexts = contexts if is_sparse(contexts) else np.ascontiguousarray(contexts)
                yield self._beside.taken(steps, rows)._replace(contexts=contexts)

    def _following(self, file: IO[bytes], rows: int) -> NDArray[Any]:
        """The next rows of the contexts."""
        size, dtype = rows * self._d, self._archive.arrays["contexts"].dtype
        if 16 * size > self._options.memory:
            what = f"a step has {rows} candidates of {self._d} features, which take {amount(16 * size)} to read"
            raise beyond(what, self._options.memory)
        with _damage("array 'contexts' cannot be read"):
            return np.frombuffer(file.read(size * dtype.itemsize), dtype=dtype).reshape(-1, self._d)


# -- the archive ---------------------------------------------------------------------------------------------------


class _Array(NamedTuple):
    """What the header of an array says, and how many bytes of the file it has."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    header: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Archive:
    """The arrays of a log, of which each is checked by its header before anything else of it is read.

    ``others`` are the names of arrays that no log has.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays: dict[str, _Array] = {}
        others: list[str] = []
        with _damage("not a readable NumPy archive", "write it with numpy.savez"), zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if name in _ARRAYS and info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    how = _OTHERS.get(info.compress_type, f"method {info.compress_type}")
                    raise refusal("array-compressed", name=name, how=how)
                with archive.open(info) as file:  # here the name is compared with what stands at the array
                    if name == info.filename:
                        continue
                    if name in self.arrays or name in others:
                        raise LogFormatError(f"array {name!r} appears twice; save the archive again.")
                    if name in _ARRAYS:
                        self.arrays[name] = _header(name, file, info.file_size)
                    else:
                        others.append(name)
        self.others = tuple(others)

    def missing(self, name: str, what: str) -> LogFormatError:
        there = some([*self.arrays, *self.others], 10) or "no array"
        return LogFormatError(f"array {name!r} is missing: {what}; this file has {there}.")

    def check_memory(self, memory: int, *, with_contexts: bool) -> None:
        """Refuse what does not fit: all arrays but contexts are held, and these too where they are not streamed."""
        held = [array for name, array in self.arrays.items() if name != "contexts" or with_contexts]
        # Numbers of steps and candidates are made on the way.
        size = 2 * sum(array.nbytes for array in held) + 8 * math.prod(self.arrays["contexts"].shape[:1])
        if size > memory:
            largest = max(held, key=lambda array: array.nbytes)
            raise beyond(
                f"the arrays take {amount(size)} to read, most of it {largest.name!r} of shape {largest.shape} and "
                f"dtype {largest.dtype}",
                memory,
                "split the log, ",
            )

    def load(self, name: str, *lengths: int) -> NDArray[Any] | None:
        """A whole array, if it is there: of one of these lengths, any vector without them, or a single value."""
        array = self.arrays.get(name)
        if array is None:
            return None
        kinds, words, unit = _ARRAYS[name]
        if array.dtype.kind not in kinds:
            raise LogFormatError(f"{name} has dtype {array.dtype}; save it as {words}.")
        if len(array.shape) != bool(unit) or (lengths and array.shape[0] not in lengths):
            expected = f"one entry per {unit}{f', ({lengths[0]},)' if lengths else ''}" if unit else "a single one, ()"
            raise LogFormatError(f"{name} has shape {array.shape}; expected {words}: {expected}.")
        if array.dtype.kind in "US" and name != "preparation" and array.dtype.itemsize > 4 * _LONGEST_TEXT:
            raise refusal("array-texts-too-long", name=name, size=array.dtype.itemsize // 4, most=_LONGEST_TEXT)
        values = self.whole(array)
        known = np.isfinite(values) if name in _KNOWN and array.dtype.kind in "fM" else np.True_
        if not known.all():
            step, what = int(np.argmin(known)), _KNOWN[name]
            raise refusal("array-not-known", step=step, what=what, value=values[step], name=name)
        return values

    def whole(self, array: _Array) -> NDArray[Any]:
        with self.member(array.name, 0) as file, _damage(f"array {array.name!r} cannot be read"):
            read: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False, max_header_size=_LONGEST_HEADER)
        values = read.astype(array.dtype.newbyteorder("="), copy=False)
        codes = np.ascontiguousarray(values).reshape(-1).view(np.uint32) if array.dtype.kind == "U" else np.empty(0)
        wrong = (codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))
        if wrong.any():
            raise refusal("array-no-character", name=array.name, code=int(codes[np.argmax(wrong)]))
        return values

    @contextlib.contextmanager
    def member(self, name: str, skipped: int | None = None) -> Iterator[IO[bytes]]:
        """An array as a file, from its data on; where it ends, its checksum is compared."""
        with contextlib.ExitStack() as stack:
            with _damage("not a readable NumPy archive", "has the file changed?"):
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                file = stack.enter_context(archive.open(f"{name}.npy"))
                file.read(self.arrays[name].header if skipped is None else skipped)
            yield file

    def sizes(self, name: str, total: int, unit: str) -> NDArray[np.int64] | None:
        """How many of the ``total`` each has, by offsets that begin with 0 and end with their number."""
        array = self.arrays.get(name)
        if array is not None and array.shape and array.shape[0] > total + 1:
            raise refusal("offsets-too-many", name=name, shape=array.shape, total=plural(total, unit))
        return None if array is None else np.diff(rising_offsets(self.load(name), total, name, f"{unit}s"))

    def counts(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """How many candidates each step has, where contexts have this shape."""
        if len(shape) == 3:
            if "step_offsets" in self.arrays:
                raise refusal("offsets-needless", shape=shape)
            return np.full(shape[0], shape[1], dtype=np.int64)
        counts = self.sizes("step_offsets", shape[0], "row")
        if counts is None:
            raise refusal("offsets-missing", shape=shape)
        if len(counts) == 0:
            raise LogFormatError("The log is empty: step_offsets marks no step.")
        if (step := first_true(counts == 0)) is not None:
            raise LogFormatError(f"step {step} has no candidates; leave it out.")
        return counts

    def sparse_contexts(self) -> Contexts:
        """The contexts of a sparse log, all at once: they take little room."""
        lacking = [name for name in _SPARSE if name not in self.arrays]
        if lacking:
            raise refusal("sparse-array-missing", arrays=", ".join(_SPARSE), lacking=some(lacking))
        data, count = np.asarray(self.load("contexts")), np.asarray(self.load("n_features"))
        places = whole_numbers(self.load("contexts_columns"), "contexts_columns", "the number of a feature")
        starts = rising_offsets(self.load("contexts_offsets"), len(data), "contexts_offsets", "numbers")
        d = int(count)
        if len(places) != len(data) or d < 1 or (len(places) and not (places.min() >= 0 and places.max() < d)):
            raise refusal("sparse-arrays-unlike", numbers=len(data), columns=len(places), d=d)
        return ordered(csr_array((data, places, starts), shape=(len(starts) - 1, d)))


@contextlib.contextmanager
def _damage(what: str, remedy: str = "the file is damaged. Save it again") -> Iterator[None]:
    """Say in our words what could not be read."""
    try:
        yield
    except LogFormatError:
        raise
    except _BROKEN as error:
        raise LogFormatError(f"{what} ({short_message(error)}); {remedy}.") from None


def _header(name: str, file: IO[bytes], size: int) -> _Array:
    """What an array of so many bytes says of itself, if that can be."""
    with _damage(f"the header of array {name!r} cannot be read"):
        # Not from the file: NumPy would first take the memory for what a header says to be its length.
        start = BytesIO(file.read(_LONGEST_HEADER))
        version = np.lib.format.read_magic(start)
        parse = _PARSERS.get(version)
        if parse is None:
            raise ValueError(f"it is in version {version} of NumPy's format")
        shape, fortran, dtype = parse(start, max_header_size=_LONGEST_HEADER)
    array = _Array(name, shape, dtype, fortran, start.tell())
    if dtype.hasobject:
        raise refusal("array-pickled", name=name)
    if size != array.header + array.nbytes or any(length < 0 for length in shape):
        raise refusal(
            "array-size-wrong", name=name, shape=shape, dtype=dtype, size=array.nbytes, held=size - array.header
        )
    return array


# -- writing -------------------------------------------------------------------------------------------------------


def write_npz(parts: Iterable[tuple[int, BehaviorLog]], path: str | os.PathLike[str]) -> None:
    """Write a log, part by part, with nothing lost; `NpzSource` and ``numpy.load`` read it.

    The number of rows stands before the rows, so that contexts wait in a file beside ``path`` until all are there.
    """
    small: dict[str, list[NDArray[Any]]] = {}
    rows, dtype = 0, np.dtype(np.float64)
    with tempfile.TemporaryFile(dir=Path(path).resolve().parent) as waiting:
        for number, part in same_features(parts):
            if rows and part.contexts.dtype != dtype:
                raise LogFormatError(f"episode {number}: contexts are {part.contexts.dtype}, those before {dtype}.")
            rows, dtype, X = rows + part.n_rows, part.contexts.dtype, part.contexts
            columns: dict[str, NDArray[Any]] = {}
            if is_sparse(X):
                columns = {"contexts": X.data, "contexts_columns": X.indices, "contexts_offsets": np.diff(X.indptr)}
            else:
                waiting.write(np.ascontiguousarray(X).data)
            columns |= {"step_offsets": np.diff(part.step_offsets), "chosen": part.chosen}
            columns["episode"] = np.full(part.n_steps, number, dtype=np.int64)
            for name in ("timestamps", "step_ids", "candidate_ids", "propensities"):
                if (values := getattr(part, name)) is not None:
                    columns[name] = _storable(values, name)
            for name, values in columns.items():
                small.setdefault(name, []).append(values)
        arrays = {name: np.concatenate(values) for name, values in small.items()}
        for name in arrays.keys() & {"step_offsets", "contexts_offsets"}:
            arrays[name] = offsets_of(arrays[name])
        if "contexts_offsets" in arrays:
            arrays["n_features"] = np.array(part.n_features)
        else:
            waiting.flush()
            arrays["contexts"] = np.memmap(waiting, dtype, "r", shape=(rows, part.n_features))
        if part.feature_names is not None:
            arrays["feature_names"] = _storable(np.array(part.feature_names, dtype=object), "feature_names")
        if part.preparation is not None:
            arrays["preparation"] = np.array(json.dumps(part.preparation.to_json()))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, values in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, values, allow_pickle=False)


def _storable(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Objects that are texts as an array of text."""
    for value in values.tolist() if values.dtype.kind == "O" else ():
        if not isinstance(value, str) or value.endswith("\0"):
            raise LogFormatError(f"{what} holds {value!r}; npz can hold numbers, times and texts that end in no null.")
    return values.astype(np.str_) if values.dtype.kind == "O" else values


FORMAT = Format(name="NumPy archive", open=NpzSource, suffixes=(".npz",), write=write_npz, keeps_sparse=True)
