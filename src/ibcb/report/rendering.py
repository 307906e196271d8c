"""Facts to a page: one HTML file that needs nothing else. The same facts give the same bytes.

And what a notebook shows of a model, above scikit-learn's table of settings, and of a verdict. A model has no log at
hand, so it shows what needs none; `IBCB.verdict` says how far to rely on it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from ibcb.numerics.metric import direction
from ibcb.report.feature_weights import feature_names, weight_numbers
from ibcb.report.verdict import Verdict, statements
from ibcb.report.writing import count, middle, number, percent

if TYPE_CHECKING:
    from ibcb.report.facts import Facts

#: signs that could end a script element or a line of JavaScript, as JSON writes them harmlessly
_HARMLESS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
#: length of the axes of the calibration curve
_CURVE = 300
#: the script, one idea a file; each uses what stands before it
_SCRIPTS = ("basics.js", "charts.js", "figures.js", "explorer.js", "start.js")
#: what the script draws as it is
_DRAWN = ("n_episodes", "n_steps", "evolution", "lower", "upper", "forecast", "forecast_today")
#: weights that a notebook shows
_MOST = 8


def template(name: str) -> Template:
    """A file of this room to be laid out; what stands in it is escaped."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_read),
    )
    environment.filters |= {"percent": percent, "count": count, "middle": middle, "number": number, "share": _share}
    return environment.get_template(name)


def render(facts: Facts) -> str:
    """The whole page as text."""
    script = '"use strict";\n(() => {\n' + "\n".join(_read(f"scripts/{name}") for name in _SCRIPTS) + "})();\n"
    return template("page.html").render(
        facts=facts,
        kind=facts.kind,
        sparks={} if facts.kind.motions.stays else facts.sparks,
        groups={group.name: group for group in facts.groups},
        numbers=weight_numbers,
        curve=None if facts.calibration is None else _curve(facts),
        misfit_csv=Markup(facts.misfit_csv),
        style=Markup(_read("page.css")),
        script=Markup(script),
        # A browser that honours it runs this script and no other, whatever names and ids hold.
        script_hash=Markup("sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()),
        data=Markup(json_for_script(_data(facts))),
    )


def json_for_script(value: Any) -> str:
    """JSON that can stand in a script element: no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Lone surrogates, which a name may hold, have no place in UTF-8.
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text.translate(_HARMLESS)


def _share(share: float | None) -> str:
    return Markup('<span class="none">\u2013</span>') if share is None else percent(share)


def _read(name: str) -> str:
    return files("ibcb.report").joinpath(name).read_text(encoding="utf-8")


def _data(facts: Facts) -> dict[str, Any]:
    """What the script draws."""
    left_out, shown = {"status", "violated", "explored", "agreed"}, [facts.weights[line] for line in facts.lines]
    # NamedTuples become lists, in the order of their fields: explorer.js names those of steps again.
    sample = [
        {**each._asdict(), "steps": [[int(x) if isinstance(x, bool) else x for x in step] for step in each.steps]}
        for each in facts.sample or ()
    ]
    return {
        **{name: getattr(facts, name) for name in _DRAWN},
        "bonus": facts.kind.per_unit is not None,
        "spread": facts.kind.words.spread,
        "names": [weight.name for weight in shown],
        "told": [facts.determined(weight) for weight in shown],
        "episodes": [
            {name: round(x, 6) if isinstance(x, float) else x for name, x in each.items() if name not in left_out}
            for each in map(vars, facts.episodes)
        ],
        "counts": {**facts.counts._asdict(), "misfits": facts.misfits.total},
        "columns": facts.columns if facts.sample is not None else (),
        "sample": None if facts.sample is None else sample,
    }


def _curve(facts: Facts) -> dict[str, Any]:
    """Places of the calibration curves, on logarithmic axes of equal length, and of their ticks; the episodes shown."""
    calibration: Any = facts.calibration
    lines = {"now": calibration.curve, "ahead": calibration.curve_ahead}
    values = [value for line in lines.values() for each in line for value in (each.recovered, each.logged) if value > 0]
    decades = min(3, max(1, math.ceil(-math.log10(min(values)) - 1e-9)))
    steps = (1, 2, 5) if decades == 1 else (1,)
    ticks = [step * 10.0**power for power in range(-decades, 0) for step in steps] + [1.0]

    def at(value: float) -> float:
        return round(_CURVE * (1 + math.log10(max(value, 10.0**-decades)) / decades), 1)

    shown = {episode.number for episode in facts.episodes}
    return {
        "size": _CURVE,
        "episodes": [episode for episode in calibration.episodes if episode.number in shown],
        "ticks": [(at(tick), _CURVE - at(tick), f"{tick:g}") for tick in ticks],
        "lines": {
            name: [(at(each.recovered), _CURVE - at(each.logged)) for each in line] for name, line in lines.items()
        },
    }


# -- in a notebook -----------------------------------------------------------------------------------------------------


def summary_html(model: Any) -> str:
    """What a fit recovered, as a few lines of HTML; empty before `fit`. Works on any estimator of this library."""
    if not hasattr(model, "next_policy_coef_"):
        return ""
    fitted, said = "", list[str]()
    if hasattr(model, "diagnostics_"):
        steps = sum(entry.steps for entry in model.diagnostics_)
        fitted = f"{len(model.diagnostics_):,} episodes, {steps:,} steps, solver {model.solver_}."
        said = [*statements(model), *map(str, model.notes_), "model.verdict(log) says how far to rely on it."]
    names, scaled = feature_names(model), getattr(model, "direction", direction)
    policy, reward = scaled(model.next_policy_coef_), scaled(model.coef_)
    largest, weights = float(np.abs(policy).max(initial=0.0)) or 1.0, []
    for f in np.argsort(-np.abs(policy), kind="stable")[:_MOST]:
        name = names[f] if len(names[f]) <= 60 else names[f][:59] + "…"
        weights.append((name, f"{policy[f]:+.3g}", f"{reward[f]:+.3g}", f"{7 * abs(policy[f]) / largest:.2f}"))
    rest = len(policy) - len(weights)
    # A macro of the file.
    return str(template("notebook.html").module.model(fitted, said, weights, f"{rest:,}" if rest else ""))  # type: ignore[attr-defined]


def verdict_html(verdict: Verdict) -> str:
    """The level and the headline, then the reasons and what to do next."""
    return str(template("notebook.html").module.verdict(verdict))  # type: ignore[attr-defined]
