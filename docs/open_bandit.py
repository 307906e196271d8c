"""docs/cases/open-bandit.md: what the choices of a production Thompson sampler tell, and its own propensities beside.

    python docs/open_bandit.py obd/bts/men obd/bts/women    (fits the logs, records figures, writes the page; minutes)
    python docs/open_bandit.py                              (writes the page from the figures recorded)

The page is about the first; of others, which may be left out, it only says how likely their choices are.

Figures go to docs/cases/open-bandit.jsonl; of the data itself nothing is kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow.csv as pacsv
from matplotlib.figure import Figure
from numpy.typing import NDArray

import ibcb

DOCS = Path(__file__).parent
RECORDS, PAGE = DOCS / "cases" / "open-bandit.jsonl", DOCS / "cases" / "open-bandit.md"
PICTURE = DOCS / "images" / "open-bandit.svg"

#: choices are judged from here on: before, little is known of the items
LATE = np.timedelta64(48, "h")
#: of the picture; a mean of fewer choices than LEAST is left out
WINDOW, LEAST = np.timedelta64(4, "h"), 5
#: of fading counts: half-lives in hours, and choices spread evenly over the items
FADING = tuple(product((0.5, 1, 2, 4, 8, 16), (3, 10, 30)))

Record = dict[str, Any]
Array = NDArray[Any]


# -- figures -----------------------------------------------------------------------------------------------------------


def figures(folder: Path, *others: Path) -> Iterator[Record]:
    """Fit the logs, and tell what the page is made of."""
    cuts = {"30 minutes": {"episode_every": "30min"}, "6 hours": {"episode_every": "6h"}, "found": {"episodes": "auto"}}
    logs = {cut: _read(folder, **how) for cut, how in cuts.items()}
    models = {cut: ibcb.IBCB(expert="auto").fit(log) for cut, log in logs.items()}
    log, model = logs["30 minutes"], models["30 minutes"]
    days = log.timestamps.astype("M8[D]")
    every_day = np.unique(days)
    yield {
        "what": "log",
        "campaign": folder.name,
        "choices": log.n_steps,
        "items": _items(log),
        "days": [str(day) for day in every_day],
    }
    for cut in logs:
        yield {"what": "fit", "campaign": folder.name, "cut": cut} | _fit(models[cut], logs[cut])
    for other in others:
        its = _read(other, **cuts["30 minutes"])
        yield {"what": "fit", "campaign": other.name, "cut": "30 minutes"} | _fit(
            ibcb.IBCB(expert="auto").fit(its), its
        )

    by = _propensities(model, log)
    in_force = by["in force"].reshape(log.n_steps, -1)
    yield {"what": "moves"} | {f"{hours} h": _variation(in_force, log.timestamps, hours) for hours in (1, 6, 24)}
    positions = _positions(folder)
    yield {"what": "kept"} | _kept(log, positions)
    for item in np.argsort(-np.bincount(log.chosen), kind="stable")[:8].tolist():
        yield {
            "what": "item",
            "item": item,
            "days": [in_force[days == day, item].mean() for day in every_day],
            "positions": _by_position(item, log, positions),
            "over time": _over_time(item, log, by),
        }
    yield from _changes(logs["found"])
    likelihoods = {name: np.log(p[log.chosen_rows]) for name, p in by.items()}
    for day in every_day:
        of_day = {name: p[days == day].mean() for name, p in likelihoods.items()}
        yield {"what": "day", "day": str(day), "choices": int((days == day).sum())} | of_day
    compared = ibcb.report.calibration(model, log)
    assert compared is not None
    for curve in (compared.curve, compared.curve_ahead):
        yield {"what": "calibration", "bins": [[each.recovered, each.logged] for each in curve]}


def _read(folder: Path, **episodes: str) -> ibcb.BehaviorLog:
    """A step per choice and a feature per item."""
    return ibcb.read_log(folder, features=["item_id"], one_hot=["item_id"], **episodes)


def _items(log: ibcb.BehaviorLog) -> int:
    return log.n_rows // log.n_steps


def _fit(model: ibcb.IBCB, log: ibcb.BehaviorLog) -> Record:
    late = log.timestamps >= log.timestamps[0].astype("M8[D]") + LATE
    kinds: dict[str, list[float]] = {}
    for each in sorted(model.evidence_, key=lambda each: (each.out_after > 0, -each.log_likelihood)):
        kinds.setdefault(each.expert, [each.log_likelihood, each.out_after])
    by = {name: np.log(p[log.chosen_rows]) for name, p in _propensities(model, log).items()}
    by |= _rivals(log, late)
    return {
        "kind": model.expert_,
        "motion": model.forecast_model_,
        "verdict": model.verdict(log).headline,
        "kinds": kinds,
        "late": int(late.sum()),
        "likelihood": {name: p[late].mean() for name, p in by.items()},
    }


def _propensities(model: ibcb.IBCB, log: ibcb.BehaviorLog) -> dict[str, Array]:
    """Of every candidate, as logged, and as the model recovered them."""
    return {
        "logged": log.propensities,
        "in force": model.propensities(log),
        "one episode ahead": model.propensities(log, ahead=True),
    }


def _rivals(log: ibcb.BehaviorLog, late: Array) -> dict[str, Array]:
    """Log-probability of each choice by what knows nothing of deciders."""
    items = _items(log)
    uniform = np.full(log.n_steps, -np.log(items))
    last = uniform.copy()
    for now in range(1, len(log)):
        model = ibcb.ChoiceModel(episodes=1, ridge=1.0).fit(log[now - 1])
        last[slice(*log.episode_offsets[now : now + 2])] = _logit(model, log[now])
    hours = (log.timestamps - log.timestamps[0]) / np.timedelta64(1, "h")
    ahead, fresh = (
        max((fading(log.chosen, hours, known, items, *each) for each in FADING), key=lambda p: p[late].mean())
        for known in (np.repeat(log.episode_offsets[:-1], np.diff(log.episode_offsets)), np.arange(log.n_steps))
    )
    return {
        "uniform": uniform,
        "logit, whole log": _logit(ibcb.ChoiceModel(episodes=None).fit(log), log),
        "logit, last episode": last,
        "fading counts": ahead,
        "fading counts, each choice": fresh,
    }


def _logit(model: ibcb.ChoiceModel, log: ibcb.BehaviorLog) -> Array:
    scores = model.decision_function(log).reshape(log.n_steps, -1)
    return scores[np.arange(log.n_steps), log.chosen] - np.log(np.exp(scores).sum(axis=1))


def fading(chosen: Array, hours: Array, known: Array, items: int, half_life: float, even: float) -> Array:
    """Log-probability of each choice by counts of the first ``known``, halved every so often, and ``even`` ones."""
    found = np.empty(len(chosen))
    for step, first in enumerate(known):
        if step == 0 or first != known[step - 1]:
            weights = 0.5 ** ((hours[step] - hours[:first]) / half_life)
            counts = np.bincount(chosen[:first], weights, items) + even / items
        found[step] = np.log(counts[chosen[step]] / counts.sum())
    return found


def _variation(in_force: Array, times: Array, hours: int) -> float:
    """Total variation between the policies in force so many hours apart, on average."""
    later = np.searchsorted(times, times + np.timedelta64(hours, "h"))
    known = later < len(times)
    return float(np.abs(in_force[later[known]] - in_force[known]).sum(axis=1).mean() / 2)


def _positions(folder: Path) -> Array:
    """Of each choice; `ibcb.read_log` leaves them out."""
    (file,) = (path for path in folder.glob("*.csv") if path.name != "item_context.csv")
    only = pacsv.ConvertOptions(include_columns=["position"])
    return pacsv.read_csv(file, convert_options=only)["position"].to_numpy()


def _kept(log: ibcb.BehaviorLog, positions: Array) -> Record:
    """How often an item's logged propensity at a position is the same as at its last choice there, soon and later."""
    order = np.lexsort((np.arange(log.n_steps), positions, log.chosen))
    same = (np.diff(log.chosen[order]) == 0) & (np.diff(positions[order]) == 0)
    minutes = np.diff(log.timestamps[order])[same] / np.timedelta64(1, "m")
    kept = np.diff(log.propensities[log.chosen_rows][order])[same] == 0
    return {f"{a} to {b}": kept[(a <= minutes) & (minutes < b)].mean() for a, b in ((0, 1), (5, 10))}


def _by_position(item: int, log: ibcb.BehaviorLog, positions: Array) -> list[float]:
    """Mean logged propensity of an item's choices at each position."""
    logged = log.propensities[log.chosen_rows]
    return [logged[(log.chosen == item) & (positions == each)].mean() for each in np.unique(positions)]


def _over_time(item: int, log: ibcb.BehaviorLog, by: dict[str, Array]) -> list[list[float | None]]:
    """Day, then mean propensities of an item in windows of some hours: logged, in force, one episode ahead.

    Logged ones are known of choices only; each stands for as many steps as one over it.
    """
    windows = (log.timestamps - log.timestamps[0].astype("M8[D]")) // WINDOW
    logged, *recovered = (p.reshape(log.n_steps, -1)[:, item] for p in by.values())
    found: list[list[float | None]] = []
    for window in np.unique(windows):
        here = windows == window
        own = logged[here & (log.chosen == item)]
        mean = len(own) / (1 / own).sum() if len(own) >= LEAST else None
        found.append([(window + 0.5) * (WINDOW / np.timedelta64(1, "D")), mean, *(p[here].mean() for p in recovered)])
    return found


def _changes(log: ibcb.BehaviorLog) -> Iterator[Record]:
    """Where the policy was found to have changed, and the items whose shares of the choices changed most."""
    shares = np.stack([np.bincount(part.chosen, minlength=_items(log)) / part.n_steps for part in log])
    for number, change in enumerate(np.diff(shares, axis=0), start=1):
        most = {
            name: [int(item), shares[number - 1, item], shares[number, item]]
            for name, item in (("gains", np.argmax(change)), ("loses", np.argmin(change)))
        }
        yield {"what": "change", "time": str(log.timestamps[log.episode_offsets[number]].astype("M8[m]"))} | most


# -- page --------------------------------------------------------------------------------------------------------------


_INTRODUCTION = """# A production Thompson sampler: the Open Bandit Dataset

Generated by `python docs/open_bandit.py obd/bts/men obd/bts/women` from `docs/cases/open-bandit.jsonl`; do not edit.

ZOZOTOWN, a fashion shop, chose which items to show with a Bernoulli Thompson sampler, and logged with which
probability it took each. So what `ibcb` recovers from choices alone can be compared with what the decider itself knew.
**Neither clicks nor logged propensities are used for fitting**: clicks are not read at all, and propensities enter
only the comparison.

## The log

The [Open Bandit Dataset](https://research.zozo.com/data.html) (Saito, Aihara, Matsutani and Narita 2020, *Open Bandit
Dataset and Pipeline*, [arXiv:2008.07146](https://arxiv.org/abs/2008.07146)) has some 26 million rows of a week in
November 2019. This page is about the sample of it, 10,000 rows for each campaign and policy, in the folder `obd` of
[st-tech/zr-obp](https://github.com/st-tech/zr-obp/tree/master/obd), the repository of the package `obp`. The
repository is under the Apache License 2.0; the dataset's own page has the terms of the whole. None of it comes with
`ibcb`.
"""
_READ = """
Each row is one item shown at one of three positions. The sampler knew only how often each item had been
clicked; so the only feature of a candidate is which item it is. It is not known how often the sampler was updated. With
episodes of half an hour:

    ibcb fit obd/bts/men --features item_id --one-hot item_id --episode-every 30min --expert auto -o model.safetensors
    ibcb propensities model.safetensors obd/bts/men --ahead -o propensities.parquet
    ibcb validate obd/bts/men --model model.safetensors
    ibcb report model.safetensors --log obd/bts/men -o report.html

The last two compare with the logged propensities. [Read a log as it is](../howto/read-logs.md) has the options.
"""
_LIKELIHOOD = {
    "logged": "logged by the decider itself",
    "in force": "recovered, policy in force (knows the whole log, these choices too)",
    "one episode ahead": "**recovered, one episode ahead**",
    "fading counts": "fading counts one episode ahead, best in hindsight",
    "fading counts, each choice": "fading counts up to the choice before, best in hindsight",
    "logit, last episode": "conditional logit of the episode before",
    "logit, whole log": "conditional logit of the whole log (knows these choices too)",
    "uniform": "uniform",
}
#: how a policy moves, by the first word of `forecast_model_`
_MOTIONS = {
    "reverting": "scores wander from half hour to half hour, and are drawn back to a long-run mean",
    "restless": "scores wander from half hour to half hour, always as much",
    "settling": "scores wander ever less, as of a decider that has nearly learned",
    "still": "scores stay as they are",
    "walk": "scores wander from half hour to half hour",
    "learner": "scores move as rewards are learned",
}


def text(found: list[Record]) -> str:
    """The page as Markdown."""
    (log,) = _of(found, "log")
    fits = {(record["campaign"], record["cut"]): record for record in _of(found, "fit")}
    fit, coarse = (fits[log["campaign"], cut] for cut in ("30 minutes", "found"))
    items = _of(found, "item")
    return "\n".join(
        [
            _INTRODUCTION,
            f"Campaign {log['campaign']}, {log['days'][0]} to {log['days'][-1]}: "
            f"{log['choices']:,} choices among {log['items']} items.",
            _READ,
            *_kind(fit),
            *_gains(items, _of(found, "moves")[0], log["days"]),
            *_when(_of(found, "change"), _of(found, "kept")[0], coarse),
            *_likelihoods([each for each in fits.values() if each["cut"] != "found"], fit),
            *_days(_of(found, "day")),
            *_calibration(*(record["bins"] for record in _of(found, "calibration"))),
            *_limits(items, fit),
        ]
    )


def _of(found: list[Record], what: str) -> list[Record]:
    return [record for record in found if record["what"] == what]


def _table(header: list[str], rows: list[list[str]], *, left: int = 1) -> list[str]:
    rule = "|" + "---|" * left + "--:|" * (len(header) - left)
    head, *body = (f"| {' | '.join(row)} |" for row in (header, *rows))
    return [head, rule, *body, ""]


def _kind(fit: Record) -> list[str]:
    rows = []
    for kind, (value, out) in fit["kinds"].items():
        how = f"given up after {out} episodes" if out else "chosen" if kind == fit["kind"] else ""
        rows.append([kind, how, f"{value:.3f}"])
    motion = _MOTIONS[fit["motion"].split("(")[0]]
    return [
        "## What kind of decider\n",
        '`expert="auto"` tries every kind, and judges it by how likely the choices are under its propensities, '
        "predicted one episode ahead. Among kinds that are about as likely, it takes the one that assumes "
        f"least. `model.expert_` is `{fit['kind']}`, and `model.forecast_model_` is `{fit['motion']}`: {motion}.\n",
        *_table(["kind", "", "log-likelihood per choice"], rows, left=2),
        "For kinds that were given up: the figure up to then.\n",
        "It was a Thompson sampler, which draws a click rate for each item and shows the best. `sbts` is one whose "
        "beliefs are as wide as the choices of the log leave them. This one had learned for a month before, from all "
        "impressions and not from a sample of them; and what it shows at the second and third position need not be its "
        "best. What the choices show is that items are drawn anew each time, the better the oftener, by "
        "scores that move; `softmax` adds that they move as a learner's do, which is not seen, and `other` does not.\n",
        f"The verdict on the fit is *{fit['verdict']}* It judges whether single choices and preferences can be "
        "predicted. For a decider that draws among dozens of items they hardly can; how good the probabilities are is "
        "another question, answered below.\n",
    ]


def _gains(items: list[Record], moves: Record, days: list[str]) -> list[str]:
    gains, loses = (
        f"item {record['item']} ({record['days'][0]:.3f} to {record['days'][-1]:.3f})"
        for record in (choose(items, key=lambda r: r["days"][-1] - r["days"][0]) for choose in (max, min))
    )
    rows = [[str(record["item"]), *(f"{share:.3f}" for share in record["days"])] for record in items]
    return [
        "## Which items gain and lose\n",
        "Recovered propensity, mean of the day, of the items chosen most often; policy in force:\n",
        *_table(["item", *days], rows),
        f"Of these, {gains} gains most from the first day to the last, and {loses} loses most. This is not a slow "
        f"drift: policies an hour apart differ by a total variation of {moves['1 h']:.2f} on average, six hours apart "
        f"by {moves['6 h']:.2f}, a day apart by {moves['24 h']:.2f}. The documentation of the dataset takes the policy "
        "for converged and fixed. Its choices say otherwise, and so do its logged propensities:\n",
        "![Recovered and logged propensities of four items over the week](../images/open-bandit.svg)\n",
        "Means of four hours. Logged propensities are known of chosen items only; each stands for as many steps as one "
        "over it, and windows with fewer than five choices of the item have no point. *One episode ahead* knows no "
        "choice of the same half hour, nor a later one.\n",
    ]


def _when(changes: list[Record], kept: Record, coarse: Record) -> list[str]:
    rows = [
        [
            change["time"].replace("T", " "),
            *(f"{item} ({before:.2f} to {after:.2f})" for item, before, after in (change["gains"], change["loses"])),
        ]
        for change in changes
    ]
    return [
        "## When the policy changes\n",
        f"`--episodes auto` looks for times at which the choices change. It finds {len(changes)}; the items are those "
        "whose shares of the choices change most, from before to after:\n",
        *_table(["found (UTC)", "gains most", "loses most"], rows, left=3),
        "These are large changes only. Logged propensities change every few minutes: of choices of the same item at "
        f"the same position, {kept['0 to 1']:.0%} have the same one if less than a minute apart, "
        f"{kept['5 to 10']:.0%} if five to ten. The sample has too few choices to show that. Yet propensities are "
        "better predicted from short episodes than from those found, whose log-likelihood one episode ahead is "
        f"{coarse['likelihood']['one episode ahead']:.3f} by the measure below.\n",
    ]


def _likelihoods(fits: list[Record], fit: Record) -> list[str]:
    rows = [[words, *(f"{each['likelihood'][name]:.3f}" for each in fits)] for name, words in _LIKELIHOOD.items()]
    of = fit["likelihood"]
    told = {name: f"{(value - of['uniform']) / (of['logged'] - of['uniform']):.0%}" for name, value in of.items()}
    half_lives = sorted({half_life for half_life, _ in FADING})
    return [
        "## Logged and recovered propensities\n",
        f"Log-likelihood per choice, after the first 48 hours (campaign {fit['campaign']}: {fit['late']:,} choices):\n",
        *_table(["propensities", *(f"{each['campaign']}, {each['cut']}" for each in fits)], rows),
        "Of what logged propensities tell beyond uniform ones, those recovered one episode ahead tell "
        f"{told['one episode ahead']}, and those of the policy in force {told['in force']}. The latter have seen the "
        "choice in question, so they look better than they are: use them to weight a log, and the former to judge a "
        f"model. One logit over the log, often used where propensities are missing, tells {told['logit, whole log']}, "
        "and knows these choices, too.\n",
        f"Fading counts halve what a choice counts every {half_lives[0]:g} to {half_lives[-1]:g} hours, and add some "
        "even counts; the table has the best of all settings, chosen by these very choices. For a decider without "
        f"context they are a strong rival: {of['fading counts']:.3f} with what the recovered ones know, and "
        f"{of['fading counts, each choice']:.3f} with the choices of the same half hour, too.\n",
    ]


def _days(days: list[Record]) -> list[str]:
    names = ("logged", "in force", "one episode ahead")
    rows = [[day["day"], f"{day['choices']:,}", *(f"{day[name]:.3f}" for name in names)] for day in days]
    return ["Day by day, with episodes of half an hour:\n", *_table(["day", "choices", *names], rows)]


def _calibration(in_force: list[list[float]], ahead: list[list[float]]) -> list[str]:
    rows = [[f"{p:.4f}" for p in (*one, *other)] for one, other in zip(in_force, ahead, strict=True)]
    return [
        "## Calibration\n",
        "Choices in tenths by their recovered propensity: its mean, and that of the logged ones, each counted as many "
        "times as one over the logged.\n",
        *_table(["in force", "logged", "one episode ahead", "logged"], rows, left=0),
    ]


def _limits(items: list[Record], fit: Record) -> list[str]:
    positions = (f"item {r['item']} {', '.join(f'{p:.2f}' for p in r['positions'])}" for r in items[:3])
    gap = fit["likelihood"]["logged"] - fit["likelihood"]["one episode ahead"]
    return [
        "## Limits\n",
        f"- The gap of {gap:.2f} to the logged propensities has causes that these choices do not show: the sampler's "
        "beliefs drift with clicks, and with impressions of which the sample has few. How much of it a better model "
        "could close is not known.",
        "- Logged propensities depend on the position, recovered ones do not. Means over choices at positions 1, 2 and "
        f"3: {'; '.join(positions)}.",
        "- Logged propensities are estimates, too, by simulation from the sampler's parameters. Those of items that "
        "were not chosen are not logged, so that no total variation can be given.",
        "- Half an hour, and the motion `reverting`, were settled on with campaign men in view; campaign women was "
        "looked at afterwards.",
        "",
    ]


def picture(found: list[Record], path: Path) -> None:
    """Four items over the week."""
    styles = {"logged": ("0.6", 3.0), "recovered, in force": ("C0", 1.3), "recovered, one episode ahead": ("C1", 1.3)}
    with mpl.rc_context({"svg.hashsalt": "ibcb", "svg.fonttype": "path", "font.size": 9}):
        figure = Figure(figsize=(9, 4.8), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True, sharey=True)
        for axis, record in zip(axes.flat, _of(found, "item"), strict=False):
            day, *propensities = np.array(record["over time"], dtype=float).T
            for p, (label, (colour, width)) in zip(propensities, styles.items(), strict=True):
                axis.plot(day, p, color=colour, linewidth=width, marker="o", ms=width, label=label)
            axis.set_title(f"item {record['item']}", loc="left")
            axis.grid(color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
        for axis in axes[1]:
            axis.set_xlabel("days since the log began")
        for axis in axes[:, 0]:
            axis.set_ylabel("propensity")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, loc="outside upper center", ncols=3)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", help="such as obd/bts/men; without one nothing is fitted")
    folders = parser.parse_args().folders
    if folders:
        RECORDS.write_text("".join(json.dumps(_rounded(record)) + "\n" for record in figures(*folders)))
    found = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    PAGE.write_text(text(found))
    picture(found, PICTURE)
    print(PAGE, PICTURE, sep="\n")


def _rounded(value: Any) -> Any:
    """To five digits: what is behind them differs from machine to machine."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(float(value), 5) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
