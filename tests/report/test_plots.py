"""The figures as matplotlib axes, and what notebooks show."""

import sys

import numpy as np
import pytest
import sklearn
from pages import fitted, hostile

import ibcb
from ibcb.report.rendering import summary_html

matplotlib = pytest.importorskip("matplotlib", exc_type=ImportError)
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _closed():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_every_figure_is_drawn_with_the_model_s_numbers(expert):
    model, run = fitted(expert)
    ax = ibcb.plots.evolution(model)
    drawn = {tuple(line.get_ydata()) for line in ax.lines}
    for column in range(model.n_features_in_):
        expected = model.direction(model.policy_coefs_)[:, column]
        assert any(len(line) == len(expected) and np.allclose(line, expected) for line in drawn)
    ax = ibcb.plots.weights(model)
    bars = ax.patches
    np.testing.assert_allclose(
        sorted(bar.get_width() for bar in bars), np.sort(model.policy_interval(direction=True).estimate)
    )
    assert len(bars) == model.n_features_in_
    assert max(abs(bar.get_width()) for bar in bars) == pytest.approx(abs(bars[0].get_width()))
    drawn = ibcb.plots.agreement(model, run.log).lines
    assert len(drawn) == 3
    shares = [None if np.isnan(share) else share for share in drawn[0].get_ydata()]
    assert shares == [entry.predicted for entry in ibcb.report.facts(model, run.log, steps=False).episodes]
    assert len(ibcb.plots.exploration(model, run.log).lines[0].get_ydata()) == 6


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.filterwarnings("ignore:Matplotlib currently does not support")
def test_figures_go_into_given_axes_and_names_are_no_formulas():
    import matplotlib.pyplot as plt

    model, _ = hostile()
    figure, ax = plt.subplots()
    assert ibcb.plots.evolution(model, ax=ax) is ax
    assert ibcb.plots.weights(model, ax=figure.add_subplot()) in figure.axes
    figure.canvas.draw()


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'ibcb\[report\]'"):
        ibcb.plots.evolution(fitted()[0])


def test_a_fitted_model_says_what_it_was_fitted_to():
    model, run = fitted()
    assert repr(ibcb.IBCB(l2=0.3)) == "IBCB(l2=0.3)"
    assert repr(model) == "IBCB(l2=0.3), fitted: sbucb, 6 episodes, 720 steps, 4 features"
    assert repr(ibcb.BaseSVC().fit(run.log)) == "BaseSVC(), fitted: 4 features"


def test_a_notebook_shows_what_needs_no_log_and_the_largest_weights():
    model, log = hostile()
    shown = model._repr_mimebundle_()["text/html"]
    assert shown.startswith(summary_html(model))
    assert model._repr_html_().startswith(summary_html(model))
    assert "6 episodes, 360 steps" in shown
    assert "model.verdict(log) says how far to rely on it" in shown
    assert "There are reward weights that explain every logged choice exactly." in shown
    # The share of choices predicted is the verdict's to say.
    assert "of choices one episode ahead" not in shown
    largest = int(np.argmax(np.abs(model.next_policy_coef_)))
    assert f"{model.direction(model.next_policy_coef_)[largest]:+.3g}" in shown
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert" in shown
    assert "<img src=x" not in shown
    assert "largest weights" in ibcb.ChoiceModel().fit(log)._repr_html_()
    assert "largest weights" not in ibcb.IBCB()._repr_html_()
    with sklearn.config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
