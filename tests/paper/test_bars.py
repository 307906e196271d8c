"""What the project promises of its defaults on the paper's data; `benchmarks/accuracy.py` prints the whole table."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import paper_run

import ibcb


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
@pytest.mark.parametrize("noise", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
@pytest.mark.parametrize("l2", [0.3, pytest.param(1.0, marks=pytest.mark.slow)])
def test_the_default_imitates_the_final_expert(expert, noise, l2):
    """Whether or not the decider's ridge parameter is known."""
    runs = [paper_run(expert, seed, noise) for seed in range(11, 15)]
    found = [ibcb.metrics.bt_fitness(ibcb.IBCB(expert=expert, l2=l2).fit(run.log), run) for run in runs]
    assert np.mean(found) >= 0.985


@pytest.mark.slow
def test_all_bars_beside_the_papers_figures():
    script = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
    found = subprocess.run([sys.executable, script, "--seeds", "5"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
