"""Facts to a page: one HTML file that needs nothing else. The same facts give the same bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ibcb.report.calibration import Calibration
from ibcb.report.facts import Facts, Weight
from ibcb.report.shown_steps import SampledEpisode

__all__ = ["json_for_script", "render"]

#: signs that could end a script element or a line of JavaScript, as JSON writes them harmlessly
_HARMLESS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


#: length of the axes of the calibration curve
_CURVE = 300


def render(facts: Facts) -> str:
    """The whole page as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": _percent, "count": _count, "short": _short, "number": _number}
    template = environment.from_string(_read("page.html"))
    script = _read("page.js")
    rows, zero, spark_zero = _weight_rows(facts)
    return template.render(
        facts=facts,
        rows=rows,
        zero=zero,
        spark_zero=spark_zero,
        has_intervals=any(weight.low is not None for weight in facts.weights),
        untold=not all(weight.told for weight in facts.weights),
        evolution_rows=_evolution_rows(facts),
        curve=None if facts.calibration is None else _curve(facts.calibration, facts),
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
    return "".join(_HARMLESS.get(sign, sign) for sign in text) if any(sign in text for sign in _HARMLESS) else text


def _read(name: str) -> str:
    return files("ibcb.report").joinpath(name).read_text(encoding="utf-8")


def _data(facts: Facts) -> dict[str, Any]:
    """What the script draws."""
    names = ("number", "predicted", "rival", "chance", "explored")
    episodes = [asdict(episode) for episode in facts.episodes]
    return {
        "bonus": facts.kind.adds_bonus,
        "narrows": facts.kind.narrows,
        "n_episodes": facts.n_episodes,
        "names": [facts.weights[line].name for line in facts.lines],
        "lines": facts.lines,
        "evolution": facts.evolution,
        "forecast": facts.forecast,
        "episodes": [{name: _four(episode[name]) for name in names} for episode in episodes],
        "columns": facts.columns if facts.sample is not None else (),
        "sample": None if facts.sample is None else [_episode(episode) for episode in facts.sample],
    }


def _episode(episode: SampledEpisode) -> dict[str, Any]:
    # NamedTuples become lists, in the order of their fields: page.js names them again.
    return {
        "number": episode.number,
        "features": episode.features,
        "weights": episode.weights,
        "steps": [[int(x) if isinstance(x, bool) else x for x in step] for step in episode.steps],
    }


def _four(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


# -- tables ----------------------------------------------------------------------------------------------------------


def _weight_rows(facts: Facts) -> tuple[list[dict[str, Any]], float, float]:
    """Rows of the table of weights with the places of their bars, and where zero is in bars and small lines."""
    ends = [0.0]
    for weight in facts.weights:
        ends += [x for x in (weight.last, weight.low, weight.high) if x is not None]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    digits = _decimals([weight.last for weight in facts.weights])
    reward_digits = _decimals([weight.reward for weight in facts.weights])

    def at(value: float) -> float:
        return round(100 * (value - low) / span, 3)

    history = [*facts.evolution, *facts.forecast[:1]]
    values = [x for row in history for x in row] or [0.0]
    bottom, top = min(0.0, *values), max(0.0, *values)

    def spark(line: int) -> str:
        return " ".join(
            f"{100 * i / max(1, len(history) - 1):.1f},{_spark_y(row[line], bottom, top):.1f}"
            for i, row in enumerate(history)
        )

    places = {place: line for line, place in enumerate(facts.lines)}
    rows = [
        {
            "name": weight.name,
            "told": weight.told,
            "last": _number(weight.last, digits),
            "policy": _number(weight.policy, digits),
            "reward": _number(weight.reward, reward_digits),
            "left": at(min(0.0, weight.last)),
            "width": round(abs(weight.last) / span * 100, 3),
            **_bounds(weight, digits, at),
            "spark": spark(places[place]) if place in places else "",
        }
        for place, weight in enumerate(facts.weights)
    ]
    return rows, at(0.0), round(_spark_y(0.0, bottom, top), 1)


def _bounds(weight: Weight, digits: int, at: Any) -> dict[str, Any]:
    if weight.low is None or weight.high is None:
        return {"low": "", "high": "", "low_at": None, "span": None}
    return {
        "low": _number(weight.low, digits),
        "high": _number(weight.high, digits),
        "low_at": at(weight.low),
        "span": round(at(weight.high) - at(weight.low), 3),
    }


def _spark_y(value: float, bottom: float, top: float) -> float:
    return 22 - 20 * (value - bottom) / ((top - bottom) or 1.0)


def _evolution_rows(facts: Facts) -> list[tuple[str, list[str]]]:
    digits = _decimals([x for row in (*facts.evolution, *facts.forecast) for x in row])
    labels = [str(episode.number) for episode in facts.episodes]
    ahead = [f"+{count}" for count in range(1, len(facts.forecast) + 1)]
    rows = zip([*labels, *ahead], [*facts.evolution, *facts.forecast], strict=True)
    return [(label, [_number(x, digits) for x in row]) for label, row in rows]


# -- propensities ----------------------------------------------------------------------------------------------------


def _curve(found: Calibration, facts: Facts) -> dict[str, Any]:
    """Places of the calibration curves, on logarithmic axes of equal length, and of their ticks; the episodes shown."""
    lines = {"now": found.curve, "ahead": found.curve_ahead}
    values = [value for line in lines.values() for each in line for value in (each.recovered, each.logged) if value > 0]
    decades = min(3, max(1, math.ceil(-math.log10(min(values)) - 1e-9)))
    steps = (1, 2, 5) if decades == 1 else (1,)
    ticks = [step * 10.0**power for power in range(-decades, 0) for step in steps] + [1.0]

    def at(value: float) -> float:
        return round(_CURVE * (1 + math.log10(max(value, 10.0**-decades)) / decades), 1)

    shown = {episode.number for episode in facts.episodes}
    return {
        "size": _CURVE,
        "episodes": [episode for episode in found.episodes if episode.number in shown],
        "ticks": [(at(tick), _CURVE - at(tick), f"{tick:g}") for tick in ticks],
        "lines": {
            name: [(at(each.recovered), _CURVE - at(each.logged)) for each in line] for name, line in lines.items()
        },
    }


# -- numbers and words -----------------------------------------------------------------------------------------------


def _decimals(values: Sequence[float]) -> int:
    """Decimals that leave four digits to the largest; the same for a whole column, so that points align."""
    most = max((abs(value) for value in values), default=0.0)
    return 3 if most == 0 else min(8, max(0, 3 - math.floor(math.log10(most))))


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "\u2212")


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
