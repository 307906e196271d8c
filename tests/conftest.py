"""Small worlds that many tests share, and helpers to make logs."""

from __future__ import annotations

import functools
import signal

import numpy as np
import pytest
from browser import ARGUMENTS, axe, chromium, missing
from hypothesis import settings

import ibcb
from ibcb.deciders import KINDS

settings.register_profile("ibcb", derandomize=True, deadline=None)
settings.load_profile("ibcb")


@functools.cache
def small_run(expert: str = "sbucb", seed: int = 0, **changes) -> ibcb.Run:
    """A run of a second's fraction with the paper's structure."""
    options = {"n_episodes": 6, "batch_size": 120, "n_candidates": 7, "n_features": 4, "warmup": 200, "noise": 0.03}
    return ibcb.simulate("synthetic", expert=expert, seed=seed, **(options | changes))


@functools.cache
def paper_run(expert: str = "sbucb", seed: int = 0, noise: float = 0.03) -> ibcb.Run:
    """A run of the paper's size."""
    return ibcb.simulate("synthetic", expert=expert, seed=seed, noise=noise)


def heed_interrupts() -> None:
    """In a process to be started: heed SIGINT, which whoever runs the tests in the background has it ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def asked_for(name: str) -> dict[str, str]:
    """The parameters of `IBCB` that name a kind of `ibcb.deciders.KINDS`, or "auto"."""
    if name == "auto":
        return {"expert": name}
    kind = KINDS[name]
    return {"expert": kind.name, "draws": kind.setting("draws") or "step"}


def slow(*values, **given):
    """A case that only `make test-all` runs: another one takes the same path."""
    return pytest.param(*values, **given, marks=pytest.mark.slow)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240229)


def ragged_log(rng: np.random.Generator, *, episodes: int = 4, steps: int = 40, d: int = 3, warmup: int = 1):
    """A log of an SBUCB expert over candidate sets of two to six candidates, all of different kinds of size."""
    truth, expert = rng.normal(size=d), ibcb.SBUCB(d, alpha=0.5, l2=0.7)
    pairs = []
    for number in range(episodes + warmup):
        sets = [rng.normal(size=(rng.integers(2, 7), d)) for _ in range(steps)]
        if number < warmup:
            chosen = [int(rng.integers(len(candidates))) for candidates in sets]
        else:
            chosen = [expert.act(candidates) for candidates in sets]
        S = np.array([candidates[pick] for candidates, pick in zip(sets, chosen, strict=True)])
        expert.update(S, S @ truth + 0.1 * rng.normal(size=steps))
        pairs.append((sets, chosen))
    return ibcb.BehaviorLog.from_episodes(pairs, warmup=warmup)


# Of a module, not the session: Playwright keeps an event loop running as long as it lives.
@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser
        browser.close()


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "test_browser" in report.nodeid]
    if missing() is not None and skipped:
        terminalreporter.section("NOT TESTED IN A BROWSER", sep="!", red=True, bold=True)
        terminalreporter.line(f"{missing()}: nothing has looked at the report's page. `make browser` installs both.")
    elif axe() is None and skipped:
        terminalreporter.section("ACCESSIBILITY NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line("axe-core is not installed: `make browser` fetches it where npm is there.")
