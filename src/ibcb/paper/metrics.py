"""How well an imitator did, against the truth that a simulated run keeps.

Every metric takes a fitted estimator (or an expert) and a `Run`. For a fairness-aware run (top-k) both sides draw from
the softmax of their scores cut to the k best; the scores of an imitator enter with the scale its ``coef_`` has, which
for IBCB is set by ``alpha``.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcb.deciders import draw, top_k_softmax
from ibcb.log import BehaviorLog
from ibcb.paper.environments import Phase, Streams
from ibcb.paper.simulation import Run

__all__ = [
    "bt_average_reward",
    "bt_fitness",
    "cumulative_fairness_regret",
    "evaluate",
    "ol_fitness",
    "train_log_fitness",
]

Split = Literal["test", "ood"]


class Scorer(Protocol):
    """A fitted estimator or an expert: scores candidates, and has reward parameters."""

    @property
    def coef_(self) -> NDArray[np.float64]: ...

    def decision_function(self, log: Any) -> NDArray[Any]: ...


def ol_fitness(model: Scorer, run: Run) -> float:
    """OL-Fitness: let the expert learn again in a world whose rewards are <coef_, s> + intercept_, with the same luck.

    Share of the steps of the log where it chooses what it chose in the real world. Rewards of models without an
    intercept, such as the paper's, have none.
    """
    if not getattr(model, "learns_rewards", True):
        raise ValueError(f"OL-Fitness is undefined for {type(model).__name__}: it learns no reward parameters.")
    if not run.learns:
        expert = f"an expert of the kind {run.expert_settings.kind!r}"
        raise ValueError(f"OL-Fitness is undefined for {expert}: rewards do not change what it does.")
    again = run.replay(model.coef_, float(getattr(model, "intercept_", 0.0)))
    return float(np.mean(again == run.log.chosen[run.log.policy_steps]))


def bt_fitness(model: Scorer, run: Run, *, split: Split = "test") -> float:
    """BT-Fitness: share of test steps where the imitator chooses as the final expert does, its policy frozen.

    For top-k runs both draw, independently: a perfect imitator then agrees only as often as the expert with itself.
    """
    log, _ = _split(run, split)
    return float(np.mean(_choose(model, run, log) == log.chosen))


def bt_average_reward(model: Scorer, run: Run, *, split: Split = "test") -> float:
    """BT-AR: mean reward of the imitator's choices on the test candidates."""
    log, phase = _split(run, split)
    return float(np.mean(phase.rewards(_choose(model, run, log))))


def cumulative_fairness_regret(model: Scorer, run: Run, *, split: Split = "test") -> float:
    """CFR: Jensen-Shannon divergence of the two choice distributions plus the difference in reward, summed over steps.

    Both draw with common random numbers, so that a perfect imitator has 0. Rewards are real-valued.
    """
    log, phase = _split(run, split)
    mine, its = (top_k_softmax(_scores(each, log), run.top_k) for each in (model, run.expert))
    uniforms = Streams(run.seed)["imitator test draws"].random(len(mine))
    divergence = _jensen_shannon(mine, its)
    apart = np.abs(phase.rewards(draw(mine, uniforms)) - phase.rewards(draw(its, uniforms)))
    return float(np.sum(divergence + apart))


def train_log_fitness(model: Scorer, run: Run) -> float:
    """Share of the log's own steps where the imitator's policy chooses as logged; the random start does not count."""
    log = run.log
    chosen = _scores(model, log).argmax(axis=1)
    return float(np.mean(chosen[log.policy_steps] == log.chosen[log.policy_steps]))


def evaluate(model: Scorer, run: Run) -> dict[str, float | None]:
    """All metrics by name; None where one is undefined."""
    ood: Split | None = "ood" if run.ood_log is not None else None
    return {
        "bt_fitness": bt_fitness(model, run),
        "bt_ar": bt_average_reward(model, run),
        "ol_fitness": ol_fitness(model, run) if run.learns and getattr(model, "learns_rewards", True) else None,
        "train_log_fitness": train_log_fitness(model, run),
        "ood_bt_fitness": bt_fitness(model, run, split=ood) if ood else None,
        "ood_bt_ar": bt_average_reward(model, run, split=ood) if ood else None,
        "cfr": cumulative_fairness_regret(model, run),
    }


def _split(run: Run, split: str) -> tuple[BehaviorLog, Phase]:
    if split == "test":
        return run.test_log, run.world.test
    if split == "ood":
        if run.ood_log is None or run.world.ood is None:
            raise ValueError("this run has no out-of-distribution test; use split='test'.")
        return run.ood_log, run.world.ood
    raise ValueError(f"split={split!r} is unknown; choose 'test' or 'ood'.")


def _scores(model: Scorer, log: BehaviorLog) -> NDArray[Any]:
    assert log.candidates_per_step is not None  # a simulated world has a fixed number of candidates
    return model.decision_function(log).reshape(-1, log.candidates_per_step)


def _choose(model: Scorer, run: Run, log: BehaviorLog) -> NDArray[np.int64]:
    scores = _scores(model, log)
    if run.top_k == 1:
        best: NDArray[np.int64] = scores.argmax(axis=1)
        return best
    return draw(top_k_softmax(scores, run.top_k), Streams(run.seed)["imitator test draws"].random(len(scores)))


def _jensen_shannon(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divergence in nats between the rows of p and q, at most log 2."""
    middle, entropies = (p + q) / 2, []
    for one in (p, q):
        # The mean of two tiny probabilities can round to 0.
        ratio = np.divide(one, middle, out=np.ones_like(one), where=(one > 0) & (middle > 0))
        entropies.append(np.sum(one * np.log(ratio), axis=-1))
    divergence: NDArray[np.float64] = (entropies[0] + entropies[1]) / 2
    return divergence
