"""Titles of the paper's tables, and what is to be said of ours beside them."""

from __future__ import annotations

__all__ = ["REMARKS", "TITLES"]

TITLES = {
    1: "reward parameters and training time, synthetic",
    2: "policy parameters, synthetic",
    3: "MovieLens 100K",
    4: "fairness, top 2, and training time",
    5: "policy parameters, top 2",
    6: "policy parameters out of distribution",
    7: "reward parameters from the first half of the log",
    8: "policy parameters from the first half of the log",
    9: "fairness, top 3, and training time",
    10: "policy parameters, top 3",
    11: "fairness, top 4, and training time",
    12: "policy parameters, top 4",
    13: "duplicated data: reward parameters",
    14: "duplicated data: policy parameters",
    15: "the choice of alpha: reward parameters and training time",
    16: "the choice of alpha: policy parameters",
    17: "MovieLens 100K, first half of the log",
    18: "MovieLens 100K, the choice of alpha",
    19: "MovieLens 100K, one model per episode, averaged",
    20: "MovieLens 100K, other batch sizes",
}

REMARKS = dict.fromkeys(TITLES, "")
