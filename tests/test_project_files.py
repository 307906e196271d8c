"""Files around the code say what is so: versions, the workflow, templates, pins."""

import re

import pytest
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
    targets = set(re.findall(r"^make (\w+)", script.read_text(), re.M))
    assert {"docs", "lint", "test"} <= targets


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
