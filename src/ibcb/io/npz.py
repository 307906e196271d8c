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
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ibcb.io.columns import dropped
from ibcb.io.format import Format
from ibcb.io.sources import (
    BATCH_NUMBERS,
    asked_names,
    existing,
    kept_features,
    refuse_keep,
    refuse_one_hot,
    refuse_roles,
    same_features,
    some,
    sorted_steps,
)
from ibcb.log import BehaviorLog
from ibcb.log.arrays import LogFormatError, distinct_names, plural, rising_offsets, warmup_count, whole_numbers
from ibcb.log.disk import short_message
from ibcb.log.memory import amount, beyond
from ibcb.log.notes import Note
from ibcb.log.propensities import row_propensities
from ibcb.log.recipe import Preparation
from ibcb.log.steps import ReadOptions, Steps
from ibcb.numerics.checks import WrongTypeError
from ibcb.numerics.contexts import Contexts, dense, is_sparse, ordered

__all__ = ["FORMAT", "NpzSource", "write_npz"]

_ARRAYS = (
    "contexts",
    "chosen",
    "step_offsets",
    "episode",
    "episode_offsets",
    "warmup",
    "feature_names",
    "timestamps",
    "step_ids",
    "candidate_ids",
    "propensities",
    "contexts_columns",
    "contexts_offsets",
    "n_features",
    "preparation",
)
_KINDS = {
    "episode": "iufbMUS",
    "timestamps": "iufMU",
    "step_ids": "iufMU",
    "feature_names": "U",
    "candidate_ids": "iuU",
    "propensities": "f",
}
_SAYS = "; save it as numbers, times or text (dtype 'U')"
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)
#: bytes of a header that says what an array is; NumPy's own have a few hundred at most
_LONGEST_HEADER = 1 << 16
#: characters of a text that is a name or an id
_LONGEST_TEXT = 1 << 20
#: how NumPy writes arrays; the others are not worth their risks: bzip2 reads some damage as if it were none
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_OTHERS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
#: deflate makes nothing smaller than by this factor
_MOST_DEFLATED = 1040


class _Array(NamedTuple):
    """What the header of an array says."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    header: int

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
        try:
            self._arrays = self._headers()
            self._open(options)
        except (LogFormatError, WrongTypeError) as error:
            raise LogFormatError(f"{self.name}: {error}") from None

    def _open(self, options: ReadOptions) -> None:
        """Read everything but the contexts."""
        contexts = self._arrays.get("contexts")
        if contexts is None:
            raise LogFormatError(
                "array 'contexts' is missing; a log has contexts and chosen, this file has "
                f"{some(self._arrays, 10) or 'no array'}."
            )
        self._sparse = self._read_sparse(contexts) if "contexts_columns" in self._arrays else None
        if self._sparse is not None:
            contexts = contexts._replace(shape=self._sparse.shape)
        if len(contexts.shape) not in (2, 3) or 0 in contexts.shape:
            raise LogFormatError(
                f"contexts has shape {contexts.shape}; expected (rows, features) with step_offsets, or (steps, "
                "candidates, features), and none of them 0."
            )
        if contexts.dtype.kind not in "fiub" or (contexts.dtype.kind == "f" and contexts.dtype.itemsize not in (4, 8)):
            raise LogFormatError(f"contexts has dtype {contexts.dtype}; use float32 or float64.")
        self._contexts = contexts
        self._check_memory(options)
        self._counts = self._read_counts()
        steps = len(self._counts)
        self._chosen = self._read_chosen(steps, options)
        self._episode = self._read_episode(steps)
        self._timestamps = self._per_step("timestamps", steps)
        if self._timestamps is not None and self._timestamps.dtype.kind in "fM":
            known = ~np.isnan(self._timestamps)
            if not known.all():
                at = int(np.argmin(known))
                raise LogFormatError(
                    f"step {at}: the time is {self._timestamps[at]}; give the step its time, or leave it out. Or leave "
                    "out the array timestamps."
                )
        self._step_ids = self._per_step("step_ids", steps)
        self._candidate_ids = self._per_step("candidate_ids", int(self._counts.sum()))
        self._propensities = self._read_propensities(options)
        options = replace(options, drop=[name for name in options.drop if name != "propensities"])
        refuse_one_hot(options, "an archive holds numbers; encode columns before it is written")
        refuse_keep(options, "every feature of an archive is read, whatever its name. Leave it out")
        self.feature_names, self._columns = self._features(contexts.shape[-1], options)
        stored = self._read_preparation()
        if options.preparation is not None and (stored is None or not stored.is_standardized):
            stored = options.preparation.raw
        self.preparation = stored
        self._order = sorted_steps(self._episode, self._timestamps) if options.sort else None
        others = [name for name in self._arrays if name not in _ARRAYS]
        text = f"arrays left out: {some(others)}."
        self.notes = (Note("arrays-left-out", "info", text, {"arrays": tuple(others)}),) if others else ()

    # -- headers and small arrays ----------------------------------------------------------------------------------

    def _headers(self) -> dict[str, _Array]:
        """What every array of the archive says of itself; none of their data is read."""
        result: dict[str, _Array] = {}
        try:
            with zipfile.ZipFile(self._path) as archive:
                for info in archive.infolist():
                    name = info.filename.removesuffix(".npy")
                    if name in _ARRAYS:
                        _check_member(info, name, self._path)
                    with archive.open(info) as file:  # here the name is compared with what stands at the array
                        if name == info.filename:
                            continue
                        if name in result:
                            raise LogFormatError(f"array {name!r} appears twice; save the archive again.")
                        if name not in _ARRAYS:
                            result[name] = _Array(name, (), np.dtype(np.float64), False, 0)
                            continue
                        result[name] = _header(name, file)
                    if info.file_size != result[name].header + result[name].nbytes:
                        raise LogFormatError(
                            f"array {name!r} says it has shape {result[name].shape} of {result[name].dtype}, "
                            f"{result[name].nbytes} bytes, but holds {info.file_size - result[name].header}; the file "
                            "is damaged. Save it again."
                        )
        except LogFormatError:
            raise
        # NumPy reads headers with Python's own parser of literals.
        except (*_BROKEN, SyntaxError, tokenize.TokenError) as error:
            raise LogFormatError(
                f"not a readable NumPy archive ({short_message(error)}); write it with numpy.savez."
            ) from None
        return result

    def _check_memory(self, options: ReadOptions) -> None:
        """Refuse what does not fit: all arrays but contexts are held, and these too where they are not in order."""
        contexts = self._contexts
        whole = self._sparse is not None or contexts.fortran or options.sort
        held = [array for name, array in self._arrays.items() if name in _ARRAYS and (whole or name != "contexts")]
        # Numbers of steps and candidates are made on the way.
        size = 2 * sum(array.nbytes for array in held) + 8 * contexts.shape[0]
        if size > self._memory:
            largest = max(held, key=lambda array: array.nbytes)
            raise beyond(
                f"the arrays take {amount(size)} to read, most of it {largest.name!r} of shape {largest.shape} and "
                f"dtype {largest.dtype}",
                self._memory,
                "split the log, ",
            )

    def _load(self, name: str) -> NDArray[Any] | None:
        """One whole array, if it is there."""
        array = self._arrays.get(name)
        if array is None:
            return None
        if array.nbytes > self._memory:
            raise beyond(f"array {name!r} of shape {array.shape} has {amount(array.nbytes)}", self._memory)
        if array.dtype.kind in "US" and name != "preparation" and array.dtype.itemsize > 4 * _LONGEST_TEXT:
            raise LogFormatError(
                f"{name} holds texts of {array.dtype.itemsize // 4} characters; a name or an id has at most "
                f"{_LONGEST_TEXT}. Shorten them, or is the file damaged?"
            )
        with _data(self._path, array) as file:
            data = _exactly(file, array.nbytes, name)
            _exactly(file, 0, name, last=True)
        shape = array.shape[::-1] if array.fortran else array.shape
        result = np.frombuffer(data, dtype=array.dtype).reshape(shape)
        result = result.T if array.fortran else result
        result = result.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype.kind == "U" and array.nbytes:
            codes = np.ascontiguousarray(result).reshape(-1).view(np.uint32)
            wrong = (codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))
            if wrong.any():
                raise LogFormatError(
                    f"array {name!r} holds {int(codes[np.argmax(wrong)]):#x} where a character should be, which is "
                    "none; the file is damaged. Save it again."
                )
        return result

    def _read_counts(self) -> NDArray[np.int64]:
        shape = self._contexts.shape
        offsets = self._load("step_offsets")
        if len(shape) == 3:
            if offsets is not None:
                raise LogFormatError(
                    f"contexts has shape {shape}, the same number of candidates at each step; leave out step_offsets, "
                    "or give contexts as (rows, features)."
                )
            return np.full(shape[0], shape[1], dtype=np.int64)
        if offsets is None:
            raise LogFormatError(
                f"contexts has shape {shape}, but array 'step_offsets' is missing: the first row of every step, and "
                "the number of rows."
            )
        counts = np.diff(rising_offsets(offsets, shape[0], "step_offsets", "rows"))
        if len(counts) == 0:
            raise LogFormatError("The log is empty: step_offsets marks no step.")
        if (counts == 0).any():
            raise LogFormatError(f"step {int(np.argmax(counts == 0))} has no candidates; leave it out.")
        return counts

    def _read_chosen(self, steps: int, options: ReadOptions) -> NDArray[np.int64]:
        values = self._load("chosen")
        if values is None:
            if not options.choices:
                return np.zeros(steps, dtype=np.int64)
            raise LogFormatError(
                f"array 'chosen' is missing: the position of the chosen candidate at each step; this file has "
                f"{some(self._arrays, 10) or 'no array'}."
            )
        chosen = whole_numbers(values, "chosen")
        if len(chosen) != steps:
            raise LogFormatError(f"chosen has {len(chosen)} entries but the contexts have {plural(steps, 'step')}.")
        wrong = (chosen < 0) | (chosen >= self._counts)
        if wrong.any():
            step = int(np.argmax(wrong))
            count = plural(int(self._counts[step]), "candidate")
            raise LogFormatError(f"step {step}: chosen is {chosen[step]} but the step has {count}; indices start at 0.")
        return chosen

    def _read_episode(self, steps: int) -> NDArray[Any] | None:
        """A label per step; whole numbers below 0 for the warm-up."""
        labels, offsets, warmup = self._per_step("episode", steps), self._load("episode_offsets"), self._load("warmup")
        if labels is not None and labels.dtype.kind in "fM" and not np.isfinite(labels).all():
            at = int(np.argmin(np.isfinite(labels)))
            raise LogFormatError(f"step {at}: episode is {labels[at]}; give the step its episode, or leave it out.")
        if labels is not None and offsets is not None:
            raise LogFormatError("both 'episode' and 'episode_offsets' are there; keep one of them.")
        if offsets is not None:
            sizes = np.diff(rising_offsets(offsets, steps, "episode_offsets", "steps"))
            if (sizes == 0).any():
                raise LogFormatError(f"episode {int(np.argmax(sizes == 0))} has no steps; leave it out.")
            labels = np.repeat(np.arange(len(sizes)), sizes)
        if warmup is None:
            return labels
        if warmup.shape != () or labels is None:
            what = f"has shape {warmup.shape}; it is one whole number" if labels is not None else "needs the episodes"
            raise LogFormatError(f"warmup {what}: how many leading episodes the policy did not choose.")
        if labels.dtype.kind in "iu" and (labels < 0).any():
            raise LogFormatError(
                "warmup is given and some episodes are below 0, which also says warm-up; keep one of them."
            )
        number = np.cumsum(np.concatenate([[0], (labels[1:] != labels[:-1]).astype(np.int64)]))
        return number - warmup_count(warmup.item(), int(number[-1]) + 1)

    def _read_propensities(self, options: ReadOptions) -> NDArray[np.float64] | None:
        """What was logged of every row."""
        array, steps, rows = self._arrays.get("propensities"), len(self._counts), int(self._counts.sum())
        if array is None or "propensities" in options.drop or not options.choices:
            return None
        values = self._per_step("propensities", steps if array.shape == (steps,) else rows)
        offsets = np.concatenate([[0], np.cumsum(self._counts)])
        try:
            return row_propensities(values, offsets, self._chosen, lambda step: f"step {step}")
        except LogFormatError as error:
            raise LogFormatError(f"{error} To read without: {dropped('propensities')}.") from None

    def _read_preparation(self) -> Preparation | None:
        """How the features were made, if that was stored."""
        stored, names = self._load("preparation"), self._load("feature_names")
        if stored is None:
            return None
        try:
            result = Preparation.from_json(json.loads(str(stored.item())))
        except (ValueError, RecursionError):
            raise LogFormatError("array 'preparation' is damaged; write the log again, or leave it out.") from None
        if names is None or result.feature_names != tuple(names.tolist()):
            raise LogFormatError("array 'preparation' makes other features than feature_names has; leave it out.")
        return result.only(self.feature_names or ())

    def _per_step(self, name: str, steps: int) -> NDArray[Any] | None:
        array = self._arrays.get(name)
        if array is None:
            return None
        if array.dtype.kind not in _KINDS[name]:
            raise LogFormatError(f"{name} has dtype {array.dtype}{_SAYS}.")
        if array.shape != (steps,):
            unit = "row" if name in ("candidate_ids", "propensities") else "step"
            raise LogFormatError(f"{name} has shape {array.shape}; expected one entry per {unit}, ({steps},).")
        return self._load(name)

    def _read_sparse(self, contexts: _Array) -> Contexts:
        """The contexts of a sparse log, all at once: they take little room."""
        parts = [self._load(name) for name in ("contexts", "contexts_columns", "contexts_offsets", "n_features")]
        if any(part is None for part in parts) or any(part is not None and part.ndim > 1 for part in parts):
            raise LogFormatError(
                "a sparse log has the vectors contexts, contexts_columns and contexts_offsets, and n_features; write "
                "it again."
            )
        data, columns, offsets, count = (np.asarray(part) for part in parts)
        if contexts.dtype.kind != "f" or contexts.dtype.itemsize not in (4, 8):
            raise LogFormatError(f"contexts has dtype {contexts.dtype}; use float32 or float64.")
        places = whole_numbers(columns, "contexts_columns", "the number of a feature")
        starts = rising_offsets(offsets, len(data), "contexts_offsets", "numbers")
        d = int(count) if count.dtype.kind in "iu" and count.ndim == 0 else 0
        if len(places) != len(data) or d < 1 or (len(places) and not (places.min() >= 0 and places.max() < d)):
            raise LogFormatError(
                f"contexts has {plural(len(data), 'number')} and contexts_columns {len(places)}, of {d} features; they "
                "do not match. Write the log again."
            )
        return ordered(csr_array((data, places, starts), shape=(len(starts) - 1, d)))

    def _features(self, d: int, options: ReadOptions) -> tuple[tuple[str, ...] | None, NDArray[np.int64] | None]:
        """Names of the features to read, and their columns; None: all of them."""
        stored, names = self._arrays.get("feature_names"), None
        if stored is not None:
            if stored.dtype.kind not in _KINDS["feature_names"] or len(stored.shape) != 1:
                raise LogFormatError(
                    f"feature_names has dtype {stored.dtype} and shape {stored.shape}; expected ({d},) of text (dtype "
                    "'U')."
                )
            loaded = self._load("feature_names")
            names = None if loaded is None else distinct_names(loaded.tolist(), d)
        asked = asked_names(options)
        if names is None:
            if options.preparation is not None and asked is not None and len(asked) == d:
                return asked, None
            if asked is not None or options.drop:
                raise LogFormatError(
                    f"features were asked for by name, but array 'feature_names' is missing; add it, with {d} names."
                )
            return None, None
        return kept_features(names, options)

    # -- contexts --------------------------------------------------------------------------------------------------

    def batches(self, *, whole: bool = False) -> Iterator[Steps]:
        """All steps from the first on, a few million numbers at a time."""
        try:
            at_once = self._order is not None or self._contexts.fortran or self._sparse is not None
            yield from self._in_memory() if at_once else self._streamed()
        except LogFormatError as error:
            raise LogFormatError(f"{self.name}: {error}") from None

    def _streamed(self) -> Iterator[Steps]:
        array, d = self._contexts, self._contexts.shape[-1]
        offset = 0
        with _data(self._path, array) as file:
            for first, end in self._cuts():
                rows = int(self._counts[first:end].sum())
                if 16 * rows * d > self._memory:
                    raise beyond(
                        f"step {first} has {rows} candidates of {d} features, which take {amount(16 * rows * d)} to "
                        "read",
                        self._memory,
                    )
                data = _exactly(file, rows * d * array.dtype.itemsize, "contexts")
                yield self._steps(
                    np.frombuffer(data, dtype=array.dtype).reshape(rows, d), np.arange(first, end), offset
                )
                offset += rows
            _exactly(file, 0, "contexts", last=True)

    def _in_memory(self) -> Iterator[Steps]:
        """All contexts at once: sorted, or stored column by column."""
        contexts = self._sparse
        if contexts is None:
            loaded = self._load("contexts")
            assert loaded is not None
            contexts = loaded.reshape(-1, loaded.shape[-1])
        starts = np.cumsum(self._counts) - self._counts
        order = np.arange(len(starts)) if self._order is None else self._order
        for first, end in self._cuts(order):
            steps = order[first:end]
            rows = np.concatenate([np.arange(starts[t], starts[t] + self._counts[t]) for t in steps])
            yield self._steps(contexts[rows], steps, None)

    def _cuts(self, order: NDArray[np.int64] | None = None) -> Iterator[tuple[int, int]]:
        """Ranges of consecutive steps with as many rows as make a batch, and one step at least."""
        counts = self._counts if order is None else self._counts[order]
        most = max(1, min(BATCH_NUMBERS, self._memory // 64) // self._contexts.shape[-1])
        ends = np.cumsum(counts)
        first, before = 0, 0
        while first < len(counts):
            end = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
            yield first, end
            first, before = end, int(ends[end - 1])

    def _steps(self, contexts: Contexts, steps: NDArray[np.int64], offset: int | None) -> Steps:
        kind = contexts.dtype.newbyteorder("=") if contexts.dtype.kind == "f" else np.dtype(np.float64)
        contexts = contexts.astype(kind, copy=False)
        if self._columns is not None:
            contexts = contexts[:, self._columns]
            contexts = contexts if is_sparse(contexts) else np.ascontiguousarray(contexts)
        if not np.isfinite(contexts.data if is_sparse(contexts) else contexts).all():
            contexts = dense(contexts)
            bad = ~np.isfinite(contexts)
            row, column = (int(i) for i in np.argwhere(bad)[0])
            step = int(steps[int(np.searchsorted(np.cumsum(self._counts[steps]), row, side="right"))])
            where = "" if offset is None else f", row {offset + row} of contexts"
            feature = column if self.feature_names is None else repr(self.feature_names[column])
            raise LogFormatError(
                f"step {step}{where}: feature {feature} is {contexts[row, column]}; contexts must be finite. Impute "
                "the value or drop the step."
            )
        of_rows = {"candidate_ids": self._candidate_ids, "propensities": self._propensities}
        if any(values is not None for values in of_rows.values()):
            starts = np.cumsum(self._counts) - self._counts
            rows = np.concatenate([np.arange(starts[t], starts[t] + self._counts[t]) for t in steps])
            of_rows = {name: None if values is None else values[rows] for name, values in of_rows.items()}
        return Steps(
            contexts,
            self._counts[steps],
            self._chosen[steps],
            episode=None if self._episode is None else self._episode[steps],
            step_ids=None if self._step_ids is None else self._step_ids[steps],
            timestamps=None if self._timestamps is None else self._timestamps[steps],
            **of_rows,
        )


@contextlib.contextmanager
def _data(path: Path, array: _Array) -> Iterator[IO[bytes]]:
    """The data of an array in an archive, as a file."""
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
            file = stack.enter_context(archive.open(f"{array.name}.npy"))
        except (*_BROKEN, KeyError) as error:
            raise LogFormatError(f"not a readable NumPy archive ({error}); has the file changed?") from None
        _exactly(file, array.header, array.name)
        yield file


def _check_member(info: zipfile.ZipInfo, name: str, path: Path) -> None:
    """Refuse an array that is compressed as NumPy compresses none, or says that it has what cannot be there."""
    if info.compress_type not in _COMPRESSIONS:
        how = _OTHERS.get(info.compress_type, f"method {info.compress_type}")
        raise LogFormatError(
            f"array {name!r} is compressed by {how}; NumPy's archives use deflate or nothing. Write it again with "
            "numpy.savez_compressed or numpy.savez."
        )
    if info.compress_size > path.stat().st_size or info.file_size > _MOST_DEFLATED * (info.compress_size + 64):
        raise LogFormatError(
            f"array {name!r} says it has {info.file_size} bytes, made of {info.compress_size}; the file is damaged. "
            "Save it again."
        )


def _header(name: str, file: IO[bytes]) -> _Array:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise LogFormatError(f"array {name!r} is in version {version} of NumPy's format; save it with numpy.savez.")
    start = file.read(2 if version == (1, 0) else 4)
    length = int.from_bytes(start, "little")
    if length > _LONGEST_HEADER:
        raise LogFormatError(
            f"array {name!r} says its header has {length} bytes, of at most {_LONGEST_HEADER}; the file is damaged. "
            "Save it again."
        )
    # Read by ourselves: NumPy would take the memory for all of it first.
    header = BytesIO(start + file.read(length))
    parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = parse(header, max_header_size=_LONGEST_HEADER)
    if dtype.hasobject:
        raise LogFormatError(
            f"array {name!r} holds Python objects, which only pickle can read, and a pickle can execute anything; it "
            f"is not read{_SAYS}."
        )
    if any(length < 0 for length in shape):
        raise LogFormatError(f"array {name!r} says it has shape {shape}; the file is damaged. Save it again.")
    return _Array(name, shape, dtype, fortran, 8 + len(start) + length)


def _exactly(file: IO[bytes], size: int, name: str, *, last: bool = False) -> bytes:
    """So many bytes; with ``last`` the end of the array, where its checksum is compared."""
    try:
        data = file.read(1 if last else size)
    except _BROKEN as error:
        raise LogFormatError(f"array {name!r} cannot be read ({error}); the file is damaged. Save it again.") from None
    if len(data) != size:
        raise LogFormatError(
            f"array {name!r} does not have the length it declares; the file is damaged. Save it again."
        )
    return data


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
            if sparse:
                small.setdefault("contexts_columns", []).append(part.contexts.indices)
                small.setdefault("sizes", []).append(np.diff(part.contexts.indptr))
            rows += part.n_rows
            small.setdefault("counts", []).append(np.diff(part.step_offsets))
            small.setdefault("chosen", []).append(part.chosen)
            small.setdefault("episode", []).append(np.full(part.n_steps, number, dtype=np.int64))
            for name in ("timestamps", "step_ids", "candidate_ids", "propensities"):
                values = getattr(part, name)
                if values is not None:
                    small.setdefault(name, []).append(_storable(values, name))
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
                header = {"descr": descr, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
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
