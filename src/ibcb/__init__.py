"""Recover what a learning decision-maker values from a log of its choices, without its rewards.

>>> import ibcb
>>> run = ibcb.simulate("synthetic", expert="sbucb", noise=0.03, n_episodes=6, batch_size=300, seed=0)
>>> model = ibcb.IBCB(expert="sbucb", l2=0.3).fit(run.log)
>>> ibcb.metrics.bt_fitness(model, run) > 0.8
True
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ibcb import io, metrics
from ibcb.baselines import BICB, BIRL, Averaged, BaseSVC, ChoiceModel
from ibcb.estimator import IBCB
from ibcb.evolution import EpisodeDiagnosis
from ibcb.experts import SBTS, SBUCB, TopK
from ibcb.io import open_log, read_log, write_log
from ibcb.log import BehaviorLog, LogFormatError
from ibcb.models import load_model, save_model
from ibcb.simulate import Run, simulate
from ibcb.solvers import InfeasibleError, SolverError
from ibcb.thinking import explain
from ibcb.validation import validate
from ibcb.version import __version__ as __version__

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
    "EpisodeDiagnosis",
    "InfeasibleError",
    "LogFormatError",
    "Run",
    "SolverError",
    "TopK",
    "explain",
    "io",
    "load_model",
    "metrics",
    "open_log",
    "read_log",
    "save_model",
    "simulate",
    "validate",
    "write_log",
]


def __getattr__(name: str) -> Any:
    # Pictures and pages are loaded when somebody asks for them.
    if name in ("plots", "report"):
        return import_module(f"ibcb.{name}")
    raise AttributeError(f"module 'ibcb' has no attribute {name!r}")
