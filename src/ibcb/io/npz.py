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
import shutil
import sys
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
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
    existing,
    in_order,
    kept_features,
    refuse_keep,
    refuse_one_hot,
    refuse_roles,
    same_features,
    some,
)
from ibcb.io.words import dropped
from ibcb.log import BehaviorLog
from ibcb.log.array_checks import LogFormatError, distinct_names, plural, rising_offsets, warmup_count, whole_numbers
from ibcb.log.choice_propensities import row_propensities
from ibcb.log.disk import short_message
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.read_options import ReadOptions
from ibcb.log.recipe import Preparation
from ibcb.log.steps import Steps
from ibcb.numerics.contexts import Contexts, is_sparse, ordered

_INDEX = ("iuf", "whole numbers")
_LABEL = ("iufMU", "numbers, times or text (dtype 'U')")
#: the arrays of a log, the kinds of values that each may hold, and how these are called
_ARRAYS = {
    "contexts": ("fiub", "float32 or float64"),
    "chosen": _INDEX,
    "step_offsets": _INDEX,
    "episode": ("iufbMUS", _LABEL[1]),
    "episode_offsets": _INDEX,
    "warmup": ("iu", "a whole number"),
    "feature_names": ("U", "text (dtype 'U')"),
    "timestamps": _LABEL,
    "step_ids": _LABEL,
    "candidate_ids": ("iuU", "whole numbers or text (dtype 'U')"),
    "propensities": ("f", "floats"),
    "contexts_columns": _INDEX,
    "contexts_offsets": _INDEX,
    "n_features": ("iu", "a whole number"),
    "preparation": ("U", "text (dtype 'U')"),
}
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


class _Array(NamedTuple):
    """What the header of an array says, and how many bytes of the file it has."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] = np.dtype(np.float64)
    fortran: bool = False
    header: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class NpzSource:
    """Steps from a NumPy archive; see `Source`.

    With ``options.choices=False`` the array ``chosen`` may be missing, and is 0 then. ``options.sort`` orders the steps
    by episode and time, in memory.
    """

    name: str
    preparation: Preparation | None
    feature_names: tuple[str, ...] | None
    notes: tuple[Note, ...]

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions) -> None:
        self._path = existing(path)
        self.name = self._path.name
        self._memory = options.memory
        refuse_roles(options, self.name)
        refuse_one_hot(options, "an archive holds numbers; encode columns before it is written")
        refuse_keep(options, "every feature of an archive is read, whatever its name. Leave it out")
        arrays = self._arrays = _headers(self._path)
        contexts = arrays.get("contexts")
        if contexts is None:
            feedback = "; feedback (see `ibcb.io.to_feedback`) is read from memory: read_log(numpy.load(path))"
            hint = feedback if "action" in arrays else ""
            raise _missing("contexts", f"a log has contexts and chosen{hint}", arrays)
        sparse = "contexts_columns" in arrays
        self._is_streamed, self._is_sorted = not (sparse or contexts.fortran), options.sort
        self._check_memory(math.prod(contexts.shape[:1]))
        self._sparse = self._read_sparse() if sparse else None
        shape = contexts.shape if self._sparse is None else self._sparse.shape
        if len(shape) not in (2, 3) or 0 in shape:
            raise LogFormatError(
                f"contexts has shape {shape}; expected (rows, features) with step_offsets, or (steps, "
                "candidates, features), and none of them 0."
            )
        half = contexts.dtype == np.float16
        if (
            half
            or contexts.dtype.kind not in ("f" if sparse else "fiub")
            or contexts.dtype.itemsize not in (1, 2, 4, 8)
        ):
            raise LogFormatError(f"contexts has dtype {contexts.dtype}; use float32 or float64.")
        self._d = shape[-1]
        counts = self._read_counts(shape)
        chosen = self._read_chosen(counts, options)
        steps, rows = len(counts), int(counts.sum())
        #: everything but the contexts
        self._beside = Steps(
            np.empty((rows, 0)),
            counts,
            chosen,
            self._read_episode(steps),
            self._load("step_ids", "step", steps),
            _known("time", "timestamps", self._load("timestamps", "step", steps)),
            self._load("candidate_ids", "row", rows),
            self._read_propensities(counts, chosen, options),
        )
        options = replace(options, drop=[name for name in options.drop if name != "propensities"])
        self.feature_names, self._columns = self._features(options)
        stored = self._read_preparation()
        if options.preparation is not None and (stored is None or not stored.is_standardized):
            stored = options.preparation.raw
        self.preparation = stored
        others = tuple(name for name in arrays if name not in _ARRAYS)
        text = f"arrays left out: {some(others)}."
        self.notes = (Note("arrays-left-out", "info", text, {"arrays": others}),) if others else ()

    # -- all but the contexts --------------------------------------------------------------------------------------

    def _check_memory(self, steps: int) -> None:
        """Refuse what does not fit: all arrays but contexts are held, and these too where they are not streamed."""
        held = [self._arrays[name] for name in _ARRAYS if name in self._arrays]
        held = [array for array in held if array.name != "contexts" or not self._is_streamed or self._is_sorted]
        # Numbers of steps and candidates are made on the way.
        size = 2 * sum(array.nbytes for array in held) + 8 * steps
        if size > self._memory:
            largest = max(held, key=lambda array: array.nbytes)
            raise beyond(
                f"the arrays take {amount(size)} to read, most of it {largest.name!r} of shape {largest.shape} and "
                f"dtype {largest.dtype}",
                self._memory,
                "split the log, ",
            )

    def _load(self, name: str, unit: str = "", length: int | None = None) -> NDArray[Any] | None:
        """A whole array, if it is there: a single value, or one entry per ``unit``, of which there are ``length``.

        What its header says is checked before anything else of it is read; without a length it is any vector that fits.
        """
        array = self._arrays.get(name)
        if array is None:
            return None
        kinds, words = _ARRAYS[name]
        if array.dtype.kind not in kinds:
            raise LogFormatError(f"{name} has dtype {array.dtype}; save it as {words}.")
        expected = "a single one, ()" if not unit else f"one entry per {unit}" + (f", ({length},)" if length else "")
        if array.shape != (length,) if length is not None else len(array.shape) != bool(unit):
            raise LogFormatError(f"{name} has shape {array.shape}; expected {words}: {expected}.")
        if array.dtype.kind in "US" and name != "preparation" and array.dtype.itemsize > 4 * _LONGEST_TEXT:
            raise LogFormatError(
                f"{name} holds texts of {array.dtype.itemsize // 4} characters; a name or an id has at most "
                f"{_LONGEST_TEXT}. Shorten them, or is the file damaged?"
            )
        return self._whole(array)

    def _whole(self, array: _Array) -> NDArray[Any]:
        with _member(self._path, array.name) as file, _damage(f"array {array.name!r} cannot be read"):
            read: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False, max_header_size=_LONGEST_HEADER)
        values = read.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype.kind == "U" and array.nbytes:
            codes = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
            wrong = (codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))
            if wrong.any():
                raise LogFormatError(
                    f"array {array.name!r} holds {int(codes[np.argmax(wrong)]):#x} where a character should be, which "
                    "is none; the file is damaged. Save it again."
                )
        return values

    def _offsets(self, name: str, total: int, unit: str) -> NDArray[np.int64] | None:
        """How many of the ``total`` each has, by offsets that begin with 0 and end with their number."""
        array = self._arrays.get(name)
        if array is None:
            return None
        if array.shape and array.shape[0] > total + 1:
            raise LogFormatError(
                f"{name} has shape {array.shape}, but there are {plural(total, unit)}; write it again."
            )
        return np.diff(rising_offsets(self._load(name, "offset"), total, name, f"{unit}s"))

    def _read_counts(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """How many candidates each step has."""
        if len(shape) == 3:
            if "step_offsets" in self._arrays:
                raise LogFormatError(
                    f"contexts has shape {shape}, the same number of candidates at each step; leave out step_offsets, "
                    "or give contexts as (rows, features)."
                )
            return np.full(shape[0], shape[1], dtype=np.int64)
        counts = self._offsets("step_offsets", shape[0], "row")
        if counts is None:
            raise LogFormatError(
                f"contexts has shape {shape}, but array 'step_offsets' is missing: the first row of every step, and "
                "the number of rows."
            )
        if len(counts) == 0:
            raise LogFormatError("The log is empty: step_offsets marks no step.")
        if (counts == 0).any():
            raise LogFormatError(f"step {int(np.argmax(counts == 0))} has no candidates; leave it out.")
        return counts

    def _read_chosen(self, counts: NDArray[np.int64], options: ReadOptions) -> NDArray[np.int64]:
        values = self._load("chosen", "step", len(counts))
        if values is None:
            if not options.choices:
                return np.zeros(len(counts), dtype=np.int64)
            raise _missing("chosen", "the position of the chosen candidate at each step", self._arrays)
        chosen = whole_numbers(values, "chosen")
        wrong = (chosen < 0) | (chosen >= counts)
        if wrong.any():
            step = int(np.argmax(wrong))
            count = plural(int(counts[step]), "candidate")
            raise LogFormatError(f"step {step}: chosen is {chosen[step]} but the step has {count}; indices start at 0.")
        return chosen

    def _read_episode(self, steps: int) -> NDArray[Any] | None:
        """A label per step; whole numbers below 0 for the warm-up."""
        labels = _known("episode", "episode", self._load("episode", "step", steps))
        sizes, warmup = self._offsets("episode_offsets", steps, "step"), self._load("warmup")
        if labels is not None and sizes is not None:
            raise LogFormatError("both 'episode' and 'episode_offsets' are there; keep one of them.")
        if sizes is not None:
            if (sizes == 0).any():
                raise LogFormatError(f"episode {int(np.argmax(sizes == 0))} has no steps; leave it out.")
            labels = np.repeat(np.arange(len(sizes)), sizes)
        if warmup is None:
            return labels
        if labels is None:
            raise LogFormatError("warmup needs the episodes: it tells how many leading ones the policy did not choose.")
        if labels.dtype.kind in "iu" and (labels < 0).any():
            raise LogFormatError(
                "warmup is given and some episodes are below 0, which also says warm-up; keep one of them."
            )
        number = np.cumsum(np.concatenate([[0], (labels[1:] != labels[:-1]).astype(np.int64)]))
        return number - warmup_count(warmup.item(), int(number[-1]) + 1)

    def _read_propensities(
        self, counts: NDArray[np.int64], chosen: NDArray[np.int64], options: ReadOptions
    ) -> NDArray[np.float64] | None:
        """What was logged of every row."""
        array = self._arrays.get("propensities")
        if array is None or "propensities" in options.drop or not options.choices:
            return None
        offsets = np.concatenate([[0], np.cumsum(counts)])
        unit = ("step", len(counts)) if array.shape == (len(counts),) else ("row", int(offsets[-1]))
        try:
            return row_propensities(self._load("propensities", *unit), offsets, chosen, lambda step: f"step {step}")
        except LogFormatError as error:
            raise LogFormatError(f"{error} To read without: {dropped('propensities')}.") from None

    def _features(self, options: ReadOptions) -> tuple[tuple[str, ...] | None, NDArray[np.int64] | None]:
        """Names of the features to read, and their columns; None: all of them."""
        names, asked = self._load("feature_names", "feature", self._d), asked_names(options)
        if names is not None:
            every = distinct_names(names.tolist(), self._d)
            return kept_features(every or (), options)
        if options.preparation is not None and asked is not None and len(asked) == self._d:
            return asked, None
        if asked is not None or options.drop:
            raise LogFormatError(
                f"features were asked for by name, but array 'feature_names' is missing; add it, with {self._d} names."
            )
        return None, None

    def _read_preparation(self) -> Preparation | None:
        """How the features were made, if that was stored."""
        stored, names = self._load("preparation"), self._load("feature_names", "feature", self._d)
        if stored is None:
            return None
        try:
            result = Preparation.from_json(json.loads(str(stored.item())))
        except (ValueError, RecursionError):
            raise LogFormatError("array 'preparation' is damaged; write the log again, or leave it out.") from None
        if names is None or result.feature_names != tuple(names.tolist()):
            raise LogFormatError("array 'preparation' makes other features than feature_names has; leave it out.")
        return result.only(self.feature_names or ())

    # -- contexts --------------------------------------------------------------------------------------------------

    def _read_sparse(self) -> Contexts:
        """The contexts of a sparse log, all at once: they take little room."""
        lacking = [name for name in _SPARSE if name not in self._arrays]
        if lacking:
            raise LogFormatError(
                f"a sparse log has {', '.join(_SPARSE)}, but {some(lacking)} is missing; write it again."
            )
        data, count = np.asarray(self._load("contexts", "number")), np.asarray(self._load("n_features"))
        places = whole_numbers(self._load("contexts_columns", "number"), "contexts_columns", "the number of a feature")
        starts = rising_offsets(self._load("contexts_offsets", "row"), len(data), "contexts_offsets", "numbers")
        d = int(count)
        if len(places) != len(data) or d < 1 or (len(places) and not (places.min() >= 0 and places.max() < d)):
            raise LogFormatError(
                f"contexts has {plural(len(data), 'number')} and contexts_columns {len(places)}, of {d} features; they "
                "do not match. Write the log again."
            )
        return ordered(csr_array((data, places, starts), shape=(len(starts) - 1, d)))

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time."""
        return in_order(self._batches(), self._memory) if self._is_sorted else self._batches()

    def _batches(self) -> Iterator[Steps]:
        most = min(BATCH_NUMBERS, self._memory // 64) // self._d
        with self._contexts() as read:
            for steps, rows in cuts(self._beside.counts, most):
                yield self._beside.taken(steps, rows)._replace(contexts=self._made(read(rows)))

    @contextlib.contextmanager
    def _contexts(self) -> Iterator[Callable[[slice], Contexts]]:
        """What gives rows of the contexts, asked for in order: from the file, or of all in memory."""
        array, d = self._arrays["contexts"], self._d
        if not self._is_streamed:
            contexts = self._whole(array).reshape(-1, d) if self._sparse is None else self._sparse
            yield contexts.__getitem__
            return

        def following(rows: slice) -> NDArray[Any]:
            size = (rows.stop - rows.start) * d
            if 16 * size > self._memory:
                raise beyond(
                    f"a step has {rows.stop - rows.start} candidates of {d} features, which take {amount(16 * size)} "
                    "to read",
                    self._memory,
                )
            with _damage("array 'contexts' cannot be read"):
                return np.frombuffer(file.read(size * array.dtype.itemsize), dtype=array.dtype).reshape(-1, d)

        with _member(self._path, "contexts") as file:
            file.read(array.header)
            yield following

    def _made(self, contexts: Contexts) -> Contexts:
        """The features to read of some rows, as floats."""
        kind = contexts.dtype.newbyteorder("=") if contexts.dtype.kind == "f" else np.dtype(np.float64)
        contexts = contexts.astype(kind, copy=False)
        if self._columns is None:
            return contexts
        contexts = contexts[:, self._columns]
        return contexts if is_sparse(contexts) else np.ascontiguousarray(contexts)


def _missing(name: str, what: str, arrays: Iterable[str]) -> LogFormatError:
    return LogFormatError(f"array {name!r} is missing: {what}; this file has {some(arrays, 10) or 'no array'}.")


def _known(what: str, name: str, values: NDArray[Any] | None) -> NDArray[Any] | None:
    """The values of steps, of which each must have one."""
    if values is None or values.dtype.kind not in "fM" or np.isfinite(values).all():
        return values
    step = int(np.argmin(np.isfinite(values)))
    raise LogFormatError(
        f"step {step}: the {what} is {values[step]}; give the step its {what}, or leave it out. Or leave out the array "
        f"{name}."
    )


# -- the archive ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _damage(what: str, remedy: str = "the file is damaged. Save it again") -> Iterator[None]:
    """Say in our words what could not be read."""
    try:
        yield
    except LogFormatError:
        raise
    except _BROKEN as error:
        raise LogFormatError(f"{what} ({short_message(error)}); {remedy}.") from None


@contextlib.contextmanager
def _member(path: Path, name: str) -> Iterator[IO[bytes]]:
    """An array in an archive as a file; where it ends, its checksum is compared."""
    with contextlib.ExitStack() as stack:
        with _damage("not a readable NumPy archive", "has the file changed?"):
            archive = stack.enter_context(zipfile.ZipFile(path))
            file = stack.enter_context(archive.open(f"{name}.npy"))
        yield file


def _headers(path: Path) -> dict[str, _Array]:
    """What every array of the archive says of itself; none of their data is read."""
    arrays: dict[str, _Array] = {}
    with _damage("not a readable NumPy archive", "write it with numpy.savez"), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in _ARRAYS and info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                how = _OTHERS.get(info.compress_type, f"method {info.compress_type}")
                raise LogFormatError(
                    f"array {name!r} is compressed by {how}; NumPy's archives use deflate or nothing. Write it again "
                    "with numpy.savez_compressed or numpy.savez."
                )
            with archive.open(info) as file:  # here the name is compared with what stands at the array
                if name == info.filename:
                    continue
                if name in arrays:
                    raise LogFormatError(f"array {name!r} appears twice; save the archive again.")
                arrays[name] = _header(name, file, info.file_size) if name in _ARRAYS else _Array(name)
    return arrays


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
        raise LogFormatError(
            f"array {name!r} holds Python objects, which only pickle can read, and a pickle can execute anything; it "
            "is not read. Save it as numbers, times or text (dtype 'U')."
        )
    if size != array.header + array.nbytes or any(length < 0 for length in shape):
        raise LogFormatError(
            f"array {name!r} says it has shape {shape} of {dtype}, {array.nbytes} bytes, but holds "
            f"{size - array.header}; the file is damaged. Save it again."
        )
    return array


# -- writing -------------------------------------------------------------------------------------------------------


def write_npz(parts: Iterable[tuple[int, BehaviorLog]], path: str | os.PathLike[str]) -> None:
    """Write a log, part by part, with nothing lost; `NpzSource` and ``numpy.load`` read it.

    The number of rows stands before the rows, so that contexts wait in a file beside ``path`` until all are there.
    """
    small: dict[str, list[NDArray[Any]]] = {}
    names: tuple[str, ...] | None = None
    preparation: Preparation | None = None
    rows, d, dtype = 0, 0, np.dtype(np.float64)
    with tempfile.TemporaryFile(dir=Path(path).resolve().parent) as waiting:
        for number, part in same_features(parts):
            if rows and part.contexts.dtype != dtype:
                raise LogFormatError(f"episode {number}: contexts are {part.contexts.dtype}, those before {dtype}.")
            names, d, dtype = part.feature_names, part.n_features, part.contexts.dtype
            preparation, sparse = part.preparation, is_sparse(part.contexts)
            waiting.write(np.ascontiguousarray(part.contexts.data if sparse else part.contexts).data)
            rows += part.n_rows
            episode = np.full(part.n_steps, number, dtype=np.int64)
            columns: dict[str, NDArray[Any]] = {}
            if sparse:
                columns = {"contexts_columns": part.contexts.indices, "sizes": np.diff(part.contexts.indptr)}
            columns |= {"counts": np.diff(part.step_offsets), "chosen": part.chosen, "episode": episode}
            for name in ("timestamps", "step_ids", "candidate_ids", "propensities"):
                values = getattr(part, name)
                columns |= {} if values is None else {name: _storable(values, name)}
            for name, values in columns.items():
                small.setdefault(name, []).append(values)
        arrays = {name: np.concatenate(values) for name, values in small.items()}
        arrays["step_offsets"] = np.concatenate([[0], np.cumsum(arrays.pop("counts"))])
        shape: tuple[int, ...] = (rows, d)
        if "sizes" in arrays:
            arrays["contexts_offsets"] = np.concatenate([[0], np.cumsum(arrays.pop("sizes"), dtype=np.int64)])
            arrays["n_features"], shape = np.array(d), (len(arrays["contexts_columns"]),)
        if names is not None:
            arrays["feature_names"] = _storable(np.array(names, dtype=object), "feature_names")
        if preparation is not None:
            arrays["preparation"] = np.array(json.dumps(preparation.to_json()))
        waiting.seek(0)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            with archive.open(zipfile.ZipInfo("contexts.npy"), "w", force_zip64=True) as file:
                descr = np.lib.format.dtype_to_descr(dtype)
                np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
                shutil.copyfileobj(waiting, file, 2**22)
            for name, values in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, values, allow_pickle=False)


def _storable(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Objects that are texts as an array of text."""
    if values.dtype.kind != "O":
        return values
    for value in values.tolist():
        if not isinstance(value, str) or value.endswith("\0"):
            raise LogFormatError(f"{what} holds {value!r}; npz can hold numbers, times and texts that end in no null.")
    return values.astype(np.str_)


FORMAT = Format(name="NumPy archive", open=NpzSource, suffixes=(".npz",), write=write_npz, keeps_sparse=True)
