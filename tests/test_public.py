"""What the outside world relies on: public names, layers, the README, the wheel."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from documents import ROOT, python_blocks, run_page

import ibcb


def test_public_names_are_pinned():
    assert sorted(ibcb.__all__) == sorted([
        "BICB", "BIRL", "IBCB", "SBTS", "SBUCB", "Averaged", "BaseSVC", "BehaviorLog", "ChoiceModel",
        "EpisodeDiagnosis", "InfeasibleError", "LogFormatError", "Run", "SolverError", "TopK", "explain", "io",
        "load_model", "metrics", "open_log", "plots", "read_log", "report", "save_model", "simulate", "validate",
        "write_log",
    ])  # fmt: skip
    for name in ibcb.__all__:
        home = ibcb._MODULES.get(name) or f"{ibcb._HOMES[name]}.{name}"
        found = getattr(ibcb, name)
        assert getattr(found, "__name__", name).rpartition(".")[2] == home.rpartition(".")[2]


def test_imports_point_down_and_imitators_cannot_see_rewards():
    found = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
    assert "2 kept, 0 broken" in found.stdout


def test_importing_ibcb_loads_nothing_heavy():
    # scikit-learn imports pandas if it can: here it cannot, and nothing of ours may.
    heavy = ("ibcb.report", "matplotlib", "polars", "duckdb", "typer", "dask", "pooch", "mabwiser", "vowpalwabbit")
    code = (
        "import sys; sys.modules['pandas'] = None; import ibcb; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_readme_example_runs(capsys):
    (block,) = python_blocks(ROOT / "README.md")
    names = run_page(ROOT / "README.md")
    assert 0 <= names["choice"] < 7
    assert "(20, 10)" in capsys.readouterr().out
    assert names["model"].score(names["run"].test_log) > 0.97
    assert len([line for line in block.splitlines() if line and not line.startswith(("#", "import"))]) <= 10


def test_the_readme_commands_exist():
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^    make (\w+)", text, re.M))
    makefile = (ROOT / "Makefile").read_text()
    assert targets == {"demo", "test"}
    assert all(f"\n{target}:" in makefile for target in targets)
    for line in re.findall(r"^    ibcb (.*)$", text, re.M):
        verb, *words = line.split()
        found = subprocess.run(
            [sys.executable, "-m", "ibcb", verb, "--help"], capture_output=True, text=True, check=True
        )
        assert all(option in found.stdout for option in words if option.startswith("--"))


def test_links_in_documents_lead_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
def test_the_wheel_installs_and_imports_outside_the_tree(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT], check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert "ibcb/py.typed" in inside
    assert "ibcb/paper/tables/paper.csv" in inside
    assert {"ibcb/report/page.html", "ibcb/report/page.css", "ibcb/report/page.js"} <= set(inside)
    assert not [name for name in inside if name.startswith("tests")]
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel]
    subprocess.run(pip, check=True, cwd=tmp_path, capture_output=True)
    code = "import ibcb, pathlib; print(pathlib.Path(ibcb.__file__).parent); ibcb.simulate(n_episodes=2, batch_size=9)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(site / "ibcb")
