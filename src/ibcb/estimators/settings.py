"""The parameters of one fit, checked, and what they leave to the log."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ibcb.deciders import KINDS, Kind
from ibcb.engine import Heading
from ibcb.estimators.parameters import Parameters
from ibcb.inverse.solvers import SOLVERS, Solver
from ibcb.numerics.ridge import Frame

#: values of top_k that "auto" chooses from: the fair deciders of the paper's tables
BEST_OF = (2, 3, 4)


class Settings(Parameters):
    """The parameters as they were when fitting began; ``client``: of a Dask cluster, or None."""

    def __init__(self, parameters: dict[str, Any], client: Any) -> None:
        super().__init__(**parameters)
        self._check_parameters()
        self.client = client
        self._rate = float(self.sampling_rate)
        if self.expert == "auto":
            self._kinds = list(KINDS.values())
        else:
            named = [kind for kind in KINDS.values() if kind.name == self.expert]
            self._kinds = [kind for kind in named if kind.setting("draws") in (None, self.draws)]

    @property
    def open(self) -> list[str]:
        """The parameters that the log has to decide."""
        named = {"expert": self.expert}
        if self.learns:
            named["l2"] = str(self.l2)
        if self.expert != "auto" and self._kinds[0].setting("top_k") is not None:
            named["top_k"] = str(self.top_k)
        return [f"{name}='auto'" for name, value in named.items() if value == "auto"]

    @property
    def learns(self) -> bool:
        """Whether the decider may be of a kind that learns."""
        return any(kind.learns for kind in self._kinds)

    def chooses(self, heading: Heading) -> bool:
        """Whether the log is gone through twice: first to choose, or to track a kind that is only tracked."""
        return bool(self.open) or self._doubtful(heading) or not self.learns

    def candidates(self, heading: Heading) -> list[Kind]:
        """The kinds to choose from, with their parameters."""
        kinds, frames = list[Kind](), self._frames(heading)
        for kind in self._kinds:
            if kind.learns:
                kinds += [kind(l2=float(self.l2))] if self.l2 != "auto" else []
                if self.l2 == "auto" or self._doubtful(heading):
                    kinds += [kind(l2=l2, frame=each) for each in frames for l2 in kind.penalties[each.name]]
            elif kind.setting("top_k") is not None:
                best = BEST_OF if self.top_k == "auto" else (int(self.top_k),)
                kinds += [kind(top_k=k, frame=frames[0]) for k in best]
            else:
                kinds.append(kind(frame=frames[0]))
        return [replace(kind, rate=self._rate) for kind in kinds]

    def alone(self, heading: Heading) -> Kind:
        """The kind while there is one episode, which tells nothing of l2: 1, in units of the features, unless given."""
        kind = partial(self._kinds[0], rate=self._rate)
        return kind(frame=self._frames(heading)[0]) if self.l2 == "auto" else kind(l2=float(self.l2))

    def solve_with(self, mode: str) -> Solver:
        """The solver of that name."""
        solver = SOLVERS[mode]
        return partial(solver.solve, **{name: float(getattr(self, name)) for name in solver.takes})

    def _doubtful(self, heading: Heading) -> bool:
        """Whether l2 was given for features whose units differ: the decider may have had them in others."""
        return self.learns and self.l2 != "auto" and self.solver != "paper" and heading.moments.mixed

    def _frames(self, heading: Heading) -> list[Frame]:
        # What was chosen before the log has no known mean.
        past = heading.before.chosen.phi.any()
        return [frame for frame in heading.moments.frames() if not (past and frame.origin.any())]
