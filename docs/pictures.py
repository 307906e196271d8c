"""Draw the pictures of README and documentation: how an expert evolved, and what a report looks like.

python docs/pictures.py    (the report needs a browser: make browser)
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import ibcb

INK, BLUE, GREY = "#1c2530", "#1f6fb4", "#9aa5b1"


def unit(policies: np.ndarray) -> np.ndarray:
    return policies / np.linalg.norm(policies, axis=1, keepdims=True)


DOCS = Path(__file__).parent


def evolution() -> None:
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

    predicted = [entry.predicted for entry in ibcb.report.facts(model, run.log, steps=False).episodes]
    cloned = [clone.score(episode) for episode in run.log]
    right.plot(
        episodes[1:], predicted[1:], color=BLUE, marker="o", markersize=4, label="IBCB, before seeing the episode"
    )
    right.plot(episodes, cloned, color=GREY, marker="o", markersize=4, label="behaviour cloning, after seeing it")
    right.axhline(1 / run.environment.n_candidates, color=GREY, linestyle=":", label="chance")
    right.legend(frameon=False, loc="center right")
    right.set(title="Choices predicted", xlabel="episode", ylabel="share of the episode's steps", ylim=(0, 1.02))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xticks(episodes[::4])
    target = DOCS / "images" / "evolution.png"
    figure.savefig(target, dpi=130, metadata={"Software": None})
    print(target)


def report() -> None:
    """The report of the ten-minute tutorial: first screen, weights and evolution by day, the explorer by night."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "tutorial" / "ten-minutes.md").read_text(), re.M | re.S)
    width, gap = 1024, 24
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)
        exec("\n".join(blocks), {})
        program = os.environ.get("IBCB_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        shots = []
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto(Path("report.html").resolve().as_uri())
            page.locator(".filters label", has_text="Exploration decided").click()
            page.locator("#pick-episode").select_option("1")
            page.evaluate("document.querySelector('.top').style.position = 'static'; scrollTo(0, 0)")
            edges = {name: page.locator(f"#{name}").bounding_box() for name in ("read-today", "prediction", "explorer")}
            height = edges["read-today"]["y"] + 12
            top = 0 if scheme == "light" else edges["explorer"]["y"]
            clip = {"x": 0, "y": top, "width": width, "height": height}
            page.screenshot(path=f"{scheme}.png", clip=clip, full_page=True)
            shots.append(Image.open(f"{scheme}.png").convert("RGB"))
        browser.close()
    whole = Image.new("RGB", (2 * width + gap, min(shot.height for shot in shots)), "white")
    whole.paste(shots[0], (0, 0))
    whole.paste(shots[1], (width + gap, 0))
    target = DOCS / "images" / "report.png"
    whole.quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
    print(target)


if __name__ == "__main__":
    evolution()
    report()
