"""What the outside world relies on: public names, layers, the README, the wheel."""

import ast
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, python_blocks, run_page

import ibcb


def test_public_names_are_pinned():
    assert sorted(ibcb.__all__) == sorted([
        "BICB", "BIRL", "IBCB", "SBTS", "SBUCB", "Averaged", "BaseSVC", "BehaviorLog", "ChoiceModel",
        "EGreedy", "EpisodeDiagnosis", "FixedPolicy", "InfeasibleError", "LogFormatError", "Run", "Softmax",
        "SolverError", "TopK", "explain", "find_updates", "io", "load_model", "metrics", "open_log",
        "plots", "read_log", "report", "save_model", "simulate", "validate", "write_log",
    ])  # fmt: skip
    assert set(ibcb.__all__) <= set(dir(ibcb))


def test_type_checkers_are_told_where_each_public_name_lives():
    """What they read is written down a second time, because public names are imported only when asked for."""
    tree = ast.parse(Path(ibcb.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    told = {(line.module, alias.name) for line in block.body for alias in line.names}
    modules = {tuple(home.rsplit(".", 1)) for home in ibcb._MODULES.values()}
    assert told == modules | {(home, name) for name, home in ibcb._HOMES.items()}
    assert {*ibcb._MODULES, *ibcb._HOMES} == set(ibcb.__all__)


def test_public_names_are_those_of_their_homes_and_can_be_pickled():
    for name, home in ibcb._MODULES.items():
        assert getattr(ibcb, name).__name__ == home
    for name in ibcb._HOMES:
        found = getattr(ibcb, name)
        assert found.__name__ == name
        assert found.__module__.startswith("ibcb.")
        assert pickle.loads(pickle.dumps(found)) is found
    with pytest.raises(AttributeError, match="module 'ibcb' has no attribute 'Nothing'"):
        _ = ibcb.Nothing
    with pytest.raises(ImportError, match="cannot import name 'Nothing' from 'ibcb'"):
        exec("from ibcb import Nothing")


def test_public_names_can_be_asked_for_by_many_threads_at_once():
    code = """
import threading, ibcb
barrier, errors = threading.Barrier(len(ibcb.__all__)), []

def ask(name):
    barrier.wait()
    try:
        getattr(ibcb, name)
    except BaseException as error:
        errors.append((name, error))

threads = [threading.Thread(target=ask, args=(name,)) for name in ibcb.__all__]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(errors)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


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


HEAVY = {"numpy", "scipy", "sklearn", "pyarrow", "safetensors", "threadpoolctl", "tqdm", "osqp", "daqp", "jinja2"}
OPTIONAL = {"pandas", "polars", "duckdb", "matplotlib", "dask", "distributed", "pooch", "mabwiser", "vowpalwabbit"}


def loaded_by(code):
    """Names of the packages, and of our modules, that a fresh process has loaded after some code."""
    code += "\nimport sys; print([n for n in sys.modules if '.' not in n or n.startswith('ibcb.')], file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ast.literal_eval(found.stderr.splitlines()[-1]))


def test_importing_ibcb_loads_next_to_nothing():
    loaded = loaded_by("import ibcb; dir(ibcb); ibcb.__version__")
    assert not loaded & (HEAVY | OPTIONAL | {"typer"})
    assert {name for name in loaded if name.startswith("ibcb")} == {"ibcb", "ibcb.version"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["fit", "--help"], ["fit"]], ids=" ".join)
def test_help_and_bad_usage_load_typer_alone(arguments):
    code = f"from ibcb.cli import app\ntry: app({arguments})\nexcept SystemExit: print()"
    loaded = loaded_by(code.replace("print()", "pass") if arguments != ["fit"] else code)
    assert not loaded & (HEAVY | OPTIONAL)
    assert len([name for name in loaded if name.startswith("ibcb.") and not name.startswith("ibcb.cli")]) < 12


def test_a_verb_loads_no_optional_package(tmp_path):
    verb = ["simulate", str(tmp_path), "--episodes", "2", "--batch-size", "9"]
    loaded = loaded_by(f"from ibcb.cli import app; app({verb}, standalone_mode=False)")
    # scikit-learn and pyarrow import pandas by themselves, where they find it.
    assert not loaded & (OPTIONAL - {"pandas"})
    assert "ibcb.report" not in loaded


def test_the_readme_example_runs(capsys):
    (block,) = python_blocks(ROOT / "README.md")
    names = run_page(ROOT / "README.md")
    assert 0 <= names["choice"] < 7
    assert "(20, 10)" in capsys.readouterr().out
    assert names["model"].score(names["run"].test_log) > 0.97
    assert len([line for line in block.splitlines() if line and not line.startswith(("#", "import"))]) <= 10


def test_the_first_figures_of_the_readme_example_do_not_depend_on_units(capsys):
    (block,) = python_blocks(ROOT / "README.md")
    reads = "each.contexts.reshape(-1, 10, 10)"
    assert reads in block
    printed = []
    for factor in (1, "10.0 ** np.arange(-4, 6)"):
        exec(block.replace(reads, f"{reads} * {factor}"), {})
        printed.append(capsys.readouterr().out.split("]")[0])
    first, scaled = (np.array(text.strip("[").split(), dtype=float) for text in printed)
    assert np.ptp(first) > 0.1
    np.testing.assert_allclose(first, scaled, atol=0.011)


def test_the_readme_says_what_it_is_for_and_for_whom_in_ten_lines():
    beginning = "\n".join((ROOT / "README.md").read_text().splitlines()[:10])
    assert "values" in beginning
    assert "It is for engineers" in beginning
    for level in ("good", "fair", "poor", "unknown"):
        assert f"| **{level}** |" in (ROOT / "README.md").read_text()


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


#: made while the site is built, see docs/site_hooks.py
GENERATED = {ROOT / "docs" / "sample" / "report.html"}


def test_links_in_documents_lead_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            place = (page.parent / target).resolve()
            assert place.exists() or place in GENERATED, f"{page.name} links to {target}"


@pytest.mark.slow
def test_the_wheel_installs_and_imports_outside_the_tree(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT], check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert "ibcb/py.typed" in inside
    assert "ibcb/paper/tables/paper.csv" in inside
    assert {"ibcb/report/page.html", "ibcb/report/page.css", "ibcb/report/parts/overview.html"} <= set(inside)
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
