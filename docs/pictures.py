"""Draw the picture of the README: how an expert evolved, and how much of it the log gives away.

python docs/pictures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import ibcb

INK, BLUE, GREY = "#1c2530", "#1f6fb4", "#9aa5b1"


def unit(policies: np.ndarray) -> np.ndarray:
    return policies / np.linalg.norm(policies, axis=1, keepdims=True)


def main() -> None:
    run = ibcb.simulate("synthetic", expert="sbucb", noise=0.03, seed=3)
    model = ibcb.IBCB(expert="sbucb", l2=0.3).fit(run.log)
    clone = ibcb.BaseSVC().fit(run.log)
    episodes = np.arange(len(run.log))
    mine, its = unit(model.policy_coefs_), unit(run.policy_coefs[:-1])

    plt.rcParams.update({"font.size": 10, "axes.edgecolor": GREY, "text.color": INK, "axes.labelcolor": INK})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for feature in range(its.shape[1]):
        left.plot(episodes, its[:, feature], color=GREY, linewidth=3.5, alpha=0.6, label="the expert's own")
        left.plot(episodes, mine[:, feature], color=BLUE, linewidth=1.2, label="recovered by IBCB")
    left.legend(
        *[part[:2] for part in left.get_legend_handles_labels()],
        frameon=False,
        loc="center right",
        bbox_to_anchor=(1, 0.8),
    )
    left.set(title="Policy weights, episode by episode", xlabel="episode", ylabel="weight (unit length)")

    foreseen = [entry.next_agreement for entry in model.diagnostics_]
    cloned = [clone.score(episode) for episode in run.log]
    right.plot(
        episodes[1:], foreseen[1:], color=BLUE, marker="o", markersize=4, label="IBCB, before seeing the episode"
    )
    right.plot(episodes, cloned, color=GREY, marker="o", markersize=4, label="behaviour cloning, after seeing it")
    right.axhline(1 / run.environment.n_candidates, color=GREY, linestyle=":", label="chance")
    right.legend(frameon=False, loc="center right")
    right.set(title="Choices predicted", xlabel="episode", ylabel="share of the episode's steps", ylim=(0, 1.02))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xticks(episodes[::4])
    target = Path(__file__).parent / "images" / "evolution.png"
    figure.savefig(target, dpi=130, metadata={"Software": None})
    print(target)


if __name__ == "__main__":
    main()
