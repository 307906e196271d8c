"""What steps are called, and in which order they must stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ibcb.io.cells import complete, named_by, values_of
from ibcb.log.array_checks import LogFormatError
from ibcb.numerics.printable import shown

#: steps without an episode column are looked for among the last so many, to find one that comes back
_REMEMBERED = 1 << 20
#: the roles of columns that steps are called by, and whether a log can do without
_ROLES = {"episode": False, "step": False, "step_id": True, "timestamp": True}


class Labels(dict[str, NDArray[Any]]):
    """The values of such columns, one per step, by their roles."""

    def of_steps(
        self, roles: Mapping[str, str]
    ) -> tuple[NDArray[Any] | None, NDArray[Any] | None, NDArray[Any] | None]:
        """Episodes, names and times of the steps, as `ibcb.log.steps.Steps` takes them.

        A column called step counts the steps of an episode; any other has names of steps worth keeping.
        """
        names = self.get("step_id", None if roles.get("step") == "step" else self.get("step"))
        return self.get("episode"), names, self.get("timestamp")


def read_labels(rows: pa.Table, roles: Mapping[str, str], row: int, first: pa.Array | None = None) -> Labels:
    """What the steps in some rows are called; ``first`` has the first row of each, where a step has several.

    ``row`` is the number of the first of the rows.
    """
    labels = Labels()
    for role, optional in _ROLES.items():
        if role in roles:
            # What names steps must have kept all its digits.
            read = named_by if role in ("step", "step_id") else complete
            column = read(rows, roles[role], row, optional=optional)
            labels[role] = values_of(column if first is None else column.take(first))
    return labels


class StepOrder:
    """Steps must rise within an episode, or, where that cannot be said of them, not come back."""

    def __init__(self) -> None:
        self._last: tuple[Any, Any] | None = None
        self._seen: set[Any] = set()

    def __call__(self, labels: Labels) -> None:
        steps, episodes = labels["step"], labels.get("episode")
        if episodes is not None and steps.dtype.kind in "iufM":
            self._rising(episodes, steps)
        else:
            self._distinct(episodes, steps)

    def _rising(self, episodes: NDArray[Any], steps: NDArray[Any]) -> None:
        last = self._last or (None, None)
        same = np.concatenate([[episodes[0] == last[0]], episodes[1:] == episodes[:-1]])
        still = np.concatenate([[same[0] and steps[0] <= last[1]], steps[1:] <= steps[:-1]])
        if (same & still).any():
            at = int(np.argmax(same & still))
            raise LogFormatError(
                f"step {steps[at]} of episode {plain_label(episodes[at])} follows step "
                f"{steps[at - 1] if at else last[1]}; sort the rows by episode and step and keep each step together, "
                "or read with sort=True (--sort). Every step needs a number of its own."
            )
        self._last = episodes[-1], steps[-1]

    def _distinct(self, episodes: NDArray[Any] | None, steps: NDArray[Any]) -> None:
        for place, step in enumerate(steps.tolist()):
            episode = None if episodes is None else episodes[place]
            if self._last is not None and episode != self._last[0]:
                self._seen.clear()
            if step in self._seen:
                where = "" if episode is None else f" of episode {plain_label(episode)}"
                raise LogFormatError(
                    f"step {shown(step)}{where} comes back after other steps; keep the rows of a step together and "
                    "give every step a name of its own, or read with sort=True (--sort)."
                )
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen.add(step)
            self._last = episode, step


def plain_label(value: Any) -> str:
    """A label within a sentence: as it is if it is plain and short."""
    text = str(value)
    return text if text.isprintable() and len(text) <= 60 else shown(value)
