"""Files around the code say what is so: versions, the workflow, templates, pins."""

import re

import mutants
import pytest
import versions
from documents import ROOT

import ibcb

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def test_the_citation_has_the_version_of_the_library():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"(?m)^version: (\S+)$", text)[1] == ibcb.__version__


def test_the_workflow_runs_what_developers_run_on_every_python_that_is_promised():
    text = WORKFLOW.read_text(encoding="utf-8")
    promised = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert re.findall(r'"(3\.\d+)"', text) == promised
    assert "run: .ci/run" in text
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    targets = set(re.findall(r"^make ([\w-]+)", script.read_text(), re.M))
    assert {"docs", "lint", "test", "test-versions"} <= targets
    assert f"lowest:{promised[0]} newest:newest" in script.read_text()


def test_every_mutant_changes_a_text_that_stands_once_and_names_its_tests():
    listed = mutants.mutants()
    assert len(listed) >= 40
    rooms = ("deciders", "estimators", "inverse", "numerics", "report", "tracking")
    assert {mutant.file.partition("/")[0] for mutant in listed} >= {*rooms}


def test_workflow_templates_and_citation_are_valid_yaml():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: forge files are NOT parsed")
    for path in [*(ROOT / ".github").glob("**/*.yml"), ROOT / "CITATION.cff"]:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert isinstance(found, dict), path
        if path.parent.name == "ISSUE_TEMPLATE" and path.name != "config.yml":
            assert {"name", "description", "body"} <= set(found)
            identifiers = [part["id"] for part in found["body"]]
            assert len(set(identifiers)) == len(identifiers)


def test_pins_are_names_and_versions_alone():
    for line in (ROOT / "pins.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line


def test_the_security_policy_speaks_of_every_kind_of_file():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for kind in ("A log", "A model file", "A checkpoint", "A report", "A Dask cluster"):
        assert f"**{kind}**" in text


def test_every_dependency_of_users_has_a_lowest_version_that_is_tested():
    """And the environments of the tests lie where git does not look."""
    extras = versions.PROJECT["optional-dependencies"]
    users = [*versions.PROJECT["dependencies"], *(each for name in versions.EXTRAS for each in extras[name])]
    assert set(versions.lowest()) == {re.split(r"[>=!]", each)[0] for each in users}
    assert all((ROOT / path).exists() for path in versions.SUBSET)
    assert f"/{versions.FOLDER.name}/" in (ROOT / ".gitignore").read_text().splitlines()
    assert f"ibcb[{versions.TOOLS}]" in extras["test"]


def test_pins_are_no_lower_than_the_lowest_versions():
    pins = dict(line.lower().split("==") for line in (ROOT / "pins.txt").read_text().splitlines())
    for name, least in versions.lowest().items():
        assert versions._numbers(pins[name]) >= versions._numbers(least), name


def test_a_version_without_a_wheel_gives_way_to_the_next_and_other_failures_do_not():
    said = "satisfies the requirement numpy==2.0 (from versions: 1.9, 2.1.0rc1, 2.1.0, 2.1.1)\nERROR: No matching "
    assert versions._next_wheel(f"{said}distribution found for numpy==2.0", {"numpy": "2.0"}) == ("numpy", "2.1.0")
    for other in (
        "no network",
        f"{said}distribution found for numpy==2.0".replace("1.9, 2.1.0rc1, 2.1.0, 2.1.1", "none"),
    ):
        with pytest.raises(versions.UnbuiltError):
            versions._next_wheel(other, {"numpy": "2.0"})
