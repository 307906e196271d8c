"""The notebook under docs/ runs from top to bottom, and shows what a notebook can show. Needs no Jupyter."""

import ast
import json

import numpy as np
import pytest
from documents import ROOT

import ibcb
from ibcb.report.verdict import Verdict

NOTEBOOK = ROOT / "docs" / "tutorial" / "notebook.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def run_cell(source, names):
    """Execute a cell; the value of its last line, or None where that is a statement or ends in a semicolon."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) and not source.endswith(";") else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Names after the last cell, what the cells showed, and the folder in which they ran."""
    folder, names = tmp_path_factory.mktemp("notebook"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shown = [run_cell("".join(cell["source"]), names) for cell in CELLS if cell["cell_type"] == "code"]
    return names, [value for value in shown if value is not None], folder


def test_it_recovers_what_customers_want_and_writes_the_report(ran):
    names, _, folder = ran
    truth = names["value"] * names["scale"]
    np.testing.assert_allclose(names["share"], truth / np.abs(truth).sum(), atol=0.03)
    assert names["verdict"].supported
    assert "price in cents" in (folder / "report.html").read_text(encoding="utf-8")


def test_log_validation_model_and_verdict_are_shown_as_html(ran):
    _, shown, _ = ran
    kinds = [ibcb.BehaviorLog, type(ibcb.validate(shown[0])), ibcb.IBCB, Verdict]
    for kind in kinds:
        (value,) = (value for value in shown if isinstance(value, kind))
        html = value._repr_html_()
        assert html.lstrip().startswith("<")
        assert html.count("<div") == html.count("</div")


def test_the_html_of_a_verdict_says_all_of_it_and_escapes_names(ran):
    verdict = ran[0]["verdict"]
    html = verdict._repr_html_()
    assert verdict.level in html
    odd = Verdict("poor", "<b>", ("<i>1 & 2</i>",), "<u>", None)._repr_html_()
    assert "&lt;i&gt;1 &amp; 2&lt;/i&gt;" in odd
    assert not any(tag in odd for tag in ("<b>", "<i>", "<u>"))
    assert html.count("<li>") == len(verdict.reasons)


def test_no_output_is_stored():
    """Stored outputs would grow stale; the tests see fresh ones."""
    for cell in CELLS:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
