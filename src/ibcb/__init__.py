"""Recover what a learning decision-maker values from a log of its choices, without its rewards.

>>> import ibcb
>>> run = ibcb.simulate("synthetic", expert="sbucb", noise=0.03, n_episodes=6, batch_size=300, seed=0)
>>> model = ibcb.IBCB(expert="sbucb", l2=0.3).fit(run.log)
>>> ibcb.metrics.bt_fitness(model, run) > 0.8
True
"""

from __future__ import annotations

import os
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

from ibcb.version import __version__ as __version__

if TYPE_CHECKING:
    from ibcb import io, plots, report
    from ibcb.deciders import SBTS, SBUCB, EGreedy, FixedPolicy, Softmax, TopK
    from ibcb.estimators.choice_model import ChoiceModel
    from ibcb.estimators.ibcb import IBCB
    from ibcb.estimators.models import load_model, save_model
    from ibcb.inverse.evolution import EpisodeDiagnosis
    from ibcb.inverse.solvers import InfeasibleError, SolverError
    from ibcb.io import open_log, read_log, write_log
    from ibcb.log import BehaviorLog, LogFormatError
    from ibcb.log.validation import validate
    from ibcb.log.validation.updates import find_updates
    from ibcb.paper import metrics
    from ibcb.paper.rivals import BICB, BIRL, Averaged, BaseSVC
    from ibcb.paper.simulation import Run, simulate
    from ibcb.report.explaining import explain

#: where public names live; each is imported when somebody asks for it, so that `import ibcb` is quick
_LIVING = {
    "ibcb.deciders": ("SBTS", "SBUCB", "EGreedy", "FixedPolicy", "Softmax", "TopK"),
    "ibcb.estimators.choice_model": ("ChoiceModel",),
    "ibcb.estimators.ibcb": ("IBCB",),
    "ibcb.estimators.models": ("load_model", "save_model"),
    "ibcb.inverse.evolution": ("EpisodeDiagnosis",),
    "ibcb.inverse.solvers": ("InfeasibleError", "SolverError"),
    "ibcb.io": ("open_log", "read_log", "write_log"),
    "ibcb.log": ("BehaviorLog", "LogFormatError"),
    "ibcb.log.validation": ("validate",),
    "ibcb.log.validation.updates": ("find_updates",),
    "ibcb.paper.rivals": ("BICB", "BIRL", "Averaged", "BaseSVC"),
    "ibcb.paper.simulation": ("Run", "simulate"),
    "ibcb.report.explaining": ("explain",),
}
_HOMES = {name: home for home, names in _LIVING.items() for name in names}
_MODULES = {"io": "ibcb.io", "metrics": "ibcb.paper.metrics", "plots": "ibcb.plots", "report": "ibcb.report"}

__all__ = [
    "BICB",
    "BIRL",
    "IBCB",
    "SBTS",
    "SBUCB",
    "Averaged",
    "BaseSVC",
    "BehaviorLog",
    "ChoiceModel",
    "EGreedy",
    "EpisodeDiagnosis",
    "FixedPolicy",
    "InfeasibleError",
    "LogFormatError",
    "Run",
    "Softmax",
    "SolverError",
    "TopK",
    "explain",
    "find_updates",
    "io",
    "load_model",
    "metrics",
    "open_log",
    "plots",
    "read_log",
    "report",
    "save_model",
    "simulate",
    "validate",
    "write_log",
]


# Python gives up on modules that two threads import crosswise, as those of scikit-learn would be.
_importing = RLock()


def _forked() -> None:
    """In a child process: whoever was importing here does not live on there."""
    global _importing
    _importing = RLock()


# Windows has no forks.
getattr(os, "register_at_fork", dict)(after_in_child=_forked)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ibcb' has no attribute {name!r}")
    with _importing:
        value = import_module(_MODULES[name]) if name in _MODULES else getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
