"""What is looked for in a log: the conditions on the sums over it, one function for each group of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from ibcb.log.array_checks import plural
from ibcb.log.validation.findings import SEVERITIES, Finding, says
from ibcb.log.validation.first_episode import FEW_STEPS, RANDOM_P
from ibcb.log.validation.scan import ROUNDING, EpisodeScan, Scan
from ibcb.log.validation.updates import Updates
from ibcb.numerics.contexts import LARGEST

Mask = NDArray[np.bool_]

#: findings of features that may tell the choice: a model of them may know nothing else
LEAKS = frozenset({"leak", "outcome", "propensity-feature"})
#: largest value of a feature over its spread within steps, beyond which precision is lost: to rounding in single
#: precision, to squaring (Gram matrices) in double; about three digits are left
_MOST_OFFSET = {"float32": 1e4, "float64": 1e6}
#: of the features' spreads, the largest over the smallest: beyond it their squares differ by half the digits of float64
_LARGEST_SPREAD_RATIO = 1e4
#: steps in which a feature varies, below which its weight is called uncertain; not tuned
_FEW_STEPS_VARYING = 20
#: a relation between features holds where its variance, of features with unit variance, is below: it holds to
#: a thousandth of their spread, and to rounding
_COLLINEAR, _EXACT = 1e-6, 1e-12
#: what a reader takes in
_RELATIONS_SHOWN = 8
#: what is said of steps whose time is missing, runs backward, or lies in an earlier episode
_OUT_OF_TIME = {"untimed": "missing-times", "backward": "unsorted-times", "overlaps": "overlapping-episodes"}
#: deviations from which choices are not taken for draws: by chance 1 in a billion
_DEVIATIONS = 6.0
#: log10 of the probability below which a change of policy inside an episode is reported (decision 0006: the
#: worst clean episode seen reached 1e-6), and one at an edge, where one is expected, counted (not tuned)
_CHANGE_INSIDE, _CHANGE_AT_EDGE = -7.0, -3.0
#: log10 of the odds from which another cut is proposed
_BETTER = 2.0


def findings(scan: Scan, find_updates: Callable[[], Updates]) -> tuple[Finding, ...]:
    """All findings, the gravest first; ``find_updates`` is asked where episodes look wrong."""
    if scan.steps == 0:
        return (says("empty"),)
    said = [*_episodes(scan), *_unmoved(scan)]
    varies = bool(scan.varying.any())
    if varies:
        said += [*_scales(scan), *_collinear(scan), *_leaks(scan)]
    said += _steps(scan)
    # Choices lean towards what was written after them, whoever made them: then they tell nothing of a start.
    if not any(finding.code in (*LEAKS, "same-position") for finding in said):
        said += _starts(scan)
    said += _logged(scan)
    if varies:
        said += _policy(scan, find_updates)
    return tuple(sorted(said, key=lambda finding: SEVERITIES.index(finding.severity)))


# -- steps and episodes --------------------------------------------------------------------------------------------


def _episodes(scan: Scan) -> Iterator[Finding]:
    policy, warmup = scan.policy, len(scan.episodes) - len(scan.policy)
    taught = len(policy) - (0 if warmup else 1)
    if not policy:
        yield says("few-episodes/none")
        return
    if taught < 1:
        yield says("few-episodes/one")
    elif taught < 3:
        before = "" if warmup else " Without a history (a warm-up, prior_gram=) the first gives no constraints."
        yield says("few-episodes", warns=taught == 1, episodes=plural(len(policy), "episode"), before=before)
    needed = int(np.count_nonzero(scan.varying))
    small = [episode for episode in policy if episode.telling < needed]
    if small:
        least = min(small, key=lambda episode: episode.telling)
        yield says(
            "small-episodes",
            f"episode {least.number}",
            warns=2 * len(small) > len(policy),
            small=len(small),
            episodes=plural(len(policy), "episode"),
            needed=needed,
            least=least.telling,
        )
    # The last one may have been cut off by the end of the log.
    sizes = [episode.steps for episode in (policy[:-1] if len(policy) > 2 else policy)]
    most = max(episode.steps for episode in policy)
    if len(policy) > 1 and most > 10 * min(sizes):
        place = f"episode {policy[sizes.index(min(sizes))].number}"
        yield says("unequal-episodes", place, least=min(sizes), most=most)


def _steps(scan: Scan) -> Iterator[Finding]:
    def counted(kind: str, noun: str = "") -> dict[str, Any]:
        """How many steps there are of a kind, and where."""
        count = scan.count[kind]
        have = f" {'has' if count == 1 else noun}" if noun else ""
        return {"place": scan.places[kind], "steps": f"{plural(count, 'step')} ({_percent(count / scan.steps)}){have}"}

    kinds = ("single", "equal", "twins", "chosen twins", "repeats")
    single, equal, twins, twins_of_chosen, repeats = (scan.count[kind] for kind in kinds)
    if 0 < single < scan.steps:
        yield says("one-candidate", warns=single > 0.5 * scan.steps, **counted("single", "have"))
    if 0 < equal < scan.contests:
        yield says("equal-candidates", warns=equal > 0.5 * scan.steps, **counted("equal"))
    if twins > equal:
        share = twins_of_chosen / scan.steps
        case = "twin-candidates/chosen" if twins_of_chosen else "twin-candidates"
        figures = counted("twins", "have") | {"chosen": twins_of_chosen, "share": _percent(share)}
        yield says(case, warns=share > 0.1, **figures)
    if repeats > 3 + 3 * scan.chance_repeats:
        warns = repeats > 0.05 * scan.steps
        yield says("repeated-steps", warns=warns, chance=scan.chance_repeats, **counted("repeats"))
    total = scan.positions.total()
    for position, times in scan.positions.most_common(1):
        if total >= FEW_STEPS and times >= 0.99 * total:
            yield says("same-position", position=position, share=_percent(times / total))
    for kind, code in _OUT_OF_TIME.items():
        if scan.count[kind]:
            yield says(code, scan.places[kind], steps=plural(scan.count[kind], "step"))


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or share == 0 else f"{share:.1g} of all"


# -- features ------------------------------------------------------------------------------------------------------


def _names(scan: Scan, which: Any) -> tuple[str, ...]:
    """Names of some features, or their numbers."""
    names = scan.feature_names or range(scan.d)
    return tuple(str(names[column]) for column in np.arange(scan.d)[which].tolist())


def _name(scan: Scan, column: Any) -> str:
    """Name of a feature, within a sentence."""
    return f"feature {column}" if scan.feature_names is None else scan.feature_names[column]


def _many(scan: Scan, which: Mask, one: str = "is", more: str = "are") -> dict[str, Any]:
    """Some features: which, and how many."""
    count = int(np.count_nonzero(which))
    return {
        "features": _names(scan, which),
        "many": f"{count} of {plural(scan.d, 'feature')} {one if count == 1 else more}",
    }


def _unmoved(scan: Scan) -> Iterator[Finding]:
    """Features that never, or hardly ever, tell candidates apart."""
    still = ~scan.varying
    if scan.count["single"] == scan.steps:
        yield says("no-alternatives")
        return
    if still.all():
        yield says("nothing-varies", features=_names(scan, still), d=scan.d)
        return
    fixed = still & (scan.low == scan.high)
    if fixed.any():
        case = "constant-feature" if scan.high[fixed].any() else "constant-feature/zero"
        yield says(case, **_many(scan, fixed), them="it" if np.count_nonzero(fixed) == 1 else "them")
    shared = still & ~fixed
    if shared.any():
        yield says("constant-within-steps", **_many(scan, shared))
    rare = ~still & (scan.varies < _FEW_STEPS_VARYING) & (scan.contests >= 10 * _FEW_STEPS_VARYING)
    if rare.any():
        about = _many(scan, rare, "differs", "differ") | {"least": int(scan.varies[rare].min())}
        yield says("rarely-varying", **about, few=_FEW_STEPS_VARYING, contests=scan.contests)


def _scales(scan: Scan) -> Iterator[Finding]:
    """Units that are far apart, and differences that drown in rounding."""
    about: dict[str, Any]
    sd, peak, varying, dtype = scan.sd, scan.peak, scan.varying, str(scan.dtype)
    if scan.overflows:
        worst = int(peak.argmax())
        yield says("overflow", features=_names(scan, peak > LARGEST), feature=_name(scan, worst), peak=peak[worst])
        return
    columns = np.flatnonzero(varying)
    small, large = int(columns[sd[columns].argmin()]), int(columns[sd[columns].argmax()])
    ratio = sd[large] / sd[small]
    if ratio > _LARGEST_SPREAD_RATIO:
        usual = float(np.median(sd[columns]))
        odd = varying & ((sd > 100 * usual) | (sd < usual / 100))
        odd[[small, large]] = True
        about = {"features": _names(scan, odd), "large": _name(scan, large), "small": _name(scan, small)}
        yield says("scales", **about, largest=sd[large], smallest=sd[small], ratio=ratio)
    offset = np.where(varying, peak / np.where(varying, sd, 1.0), 0.0)
    lost = offset > _MOST_OFFSET.get(dtype, np.inf)
    if lost.any():
        worst = int(offset.argmax())
        # Gram matrices square what float64 holds; float32 has lost it before.
        digits = -np.log10(ROUNDING[dtype]) - (2 if dtype == "float64" else 1) * np.log10(offset[worst])
        about = {"features": _names(scan, lost), "feature": _name(scan, worst), "dtype": dtype}
        yield says("precision", **about, peak=peak[worst], sd=sd[worst], digits=max(digits, 0))


def _collinear(scan: Scan) -> Iterator[Finding]:
    """Features whose weights cannot be told apart."""
    columns = np.flatnonzero(scan.varying)
    # With fewer rows there would be relations by chance.
    if scan.overflows or scan.rows - scan.steps < 2 * len(columns):
        return
    related = _relations(scan.scatter[np.ix_(columns, columns)])
    for relation in related[:_RELATIONS_SHOWN]:
        members, weights, variance = columns[relation.members], relation.weights, relation.variance
        about: dict[str, Any] = {"features": _names(scan, members), "number": len(members)}
        if np.ptp(weights) <= 1e-4 * np.abs(weights).max() and variance <= _EXACT:
            yield says("sums-to-constant", **about)
            continue
        written = relation.written([_name(scan, int(member)) for member in members])
        case = "collinear" if variance <= _EXACT else "collinear/nearly"
        yield says(case, **about, variance=variance, relation=written)
    rest = related[_RELATIONS_SHOWN:]
    if rest:
        members = columns[np.unique(np.concatenate([relation.members for relation in rest]))]
        yield says("collinear/more", features=_names(scan, members), number=len(members), more=len(rest))


class _Relation(NamedTuple):
    """The features of a relation, by position, their weights in it, and how much variance it leaves."""

    members: NDArray[np.int64]
    weights: NDArray[np.float64]
    variance: float

    def written(self, labels: list[str]) -> str:
        """Such as "price + 2 tax - total"."""
        least, most = np.abs(self.weights).min(), np.abs(self.weights).max()
        weights = np.sign(self.weights[0]) * self.weights / (least if most <= 100 * least else most)
        terms = []
        for label, weight in zip(labels[:6], weights.tolist(), strict=False):
            factor = f"{abs(weight):.3g}"
            terms.append(f"{'-' if weight < 0 else '+'} {label if factor == '1' else f'{factor} {label}'}")
        return " ".join(terms).removeprefix("+ ") + (" ..." if len(labels) > 6 else "")


def _relations(scatter: NDArray[np.float64]) -> list[_Relation]:
    """Linear relations of features with this scatter within steps.

    They span the null space of the correlation matrix. A basis of it with the identity in some rows, which pivoted QR
    finds, names few features in each relation: separate groups stay separate.
    """
    sd = np.sqrt(np.diag(scatter))
    correlation = scatter / np.outer(sd, sd)
    values, vectors = np.linalg.eigh(correlation)
    null = vectors[:, values <= _COLLINEAR]
    if null.shape[1] == 0:
        return []
    _, _, pivots = qr(null.T, mode="economic", pivoting=True)
    basis = np.linalg.solve(null[pivots[: null.shape[1]]].T, null.T)
    related = []
    for weights in basis:
        members = np.flatnonzero(np.abs(weights) > 1e-2 * np.abs(weights).max())
        variance = float(weights @ correlation @ weights / (weights @ weights))
        raw = weights[members] / sd[members]
        related.append(_Relation(members, raw / np.abs(raw).max(), max(variance, 0.0)))
    return sorted(related, key=lambda relation: int(relation.members[0]))


def _leaks(scan: Scan) -> Iterator[Finding]:
    """Features that may have been written after the choice, or with it."""
    if scan.contests < FEW_STEPS:
        return
    varying, share = scan.varying, np.maximum(scan.largest, scan.smallest) / scan.contests
    # Missing values that were imputed are all alike; a flag has but one value for the chosen, and is a leak.
    outcomes = varying & (scan.rest_low == scan.rest_high) & (scan.varies >= FEW_STEPS)
    outcomes &= (share < 0.99) | ((scan.low < scan.rest_low) & (scan.high > scan.rest_high))
    if outcomes.any():
        first = int(outcomes.argmax())
        yield says("outcome", **_many(scan, outcomes), feature=_name(scan, first), value=scan.rest_low[first])
    suspects = varying & ~outcomes & (share >= 0.99)
    others = varying & ~suspects & ~outcomes
    if suspects.any() and others.any() and share[others].max() < 0.9:
        worst = int(np.where(suspects, share, 0).argmax())
        end = "largest" if scan.largest[worst] >= scan.smallest[worst] else "smallest"
        shares = {"share": share[worst], "others": share[others].max()}
        yield says("leak", features=_names(scan, suspects), end=end, feature=_name(scan, worst), **shares)
    for column in scan.like_propensities.tolist():
        read = scan.as_propensities[column]
        drawn = not read.count["off"] and read.variance > 0 and abs(read.deviations) <= _DEVIATIONS
        if drawn and read.count["certain"] < read.count["told"] and not all(read.evenly.values()):
            name = _names(scan, [column])
            yield says("propensity-feature", features=name, name=name[0], feature=_name(scan, column))


# -- logged propensities -------------------------------------------------------------------------------------------


def _logged(scan: Scan) -> Iterator[Finding]:
    """What logged propensities are worth as a check."""
    logged, count = scan.logged, scan.logged.count
    if not count["chosen"]:
        return
    if logged.first_off is not None:
        place, total = logged.first_off
        yield says("propensity-sums", place, off=count["off"], steps=plural(count["complete"], "step"), total=total)
    if count["told"] and count["certain"] == count["told"]:
        yield says("certain-propensities", choices=plural(count["told"], "choice"))
        return
    # Even draws say nothing about a policy; at the beginning they are a random start.
    drawn = list(logged.evenly.values())
    if drawn and all(drawn):
        yield says("even-propensities")
    elif drawn and drawn[0]:
        lead = drawn.index(False)
        total = lead + sum(number < 0 for number in logged.episodes)
        yield says("even-start", f"episode {next(iter(logged.evenly))}", which=_leading(lead), total=total)
    missing = count["steps"] - count["chosen"]
    if missing:
        have = "has" if missing == 1 else "have"
        yield says("missing-propensities", choices=plural(missing, "choice"), steps=count["steps"], have=have)
    if abs(logged.deviations) > _DEVIATIONS:
        how = "less" if logged.deviations > 0 else "more"
        yield says("propensities-not-drawn", deviations=abs(logged.deviations), how=how)


def _leading(episodes: int) -> str:
    return "first episode" if episodes == 1 else f"first {episodes} episodes"


# -- the policy ----------------------------------------------------------------------------------------------------


def _starts(scan: Scan) -> Iterator[Finding]:
    """Is the warm-up what it is said to be?"""
    warmup = [episode for episode in scan.episodes if episode.number < 0]
    uneven = [episode for episode in warmup if _least_p(episode) < 1e-6]
    if uneven:
        episodes = plural(len(uneven), "warm-up episode")
        yield says("warmup-not-random", f"episode {uneven[0].number}", episodes=episodes)
    policy = scan.policy
    random = [_looks_random(episode) for episode in policy]
    lead = next((place for place, looks in enumerate(random) if not looks), len(policy))
    later = [episode.pull for episode, looks in zip(policy[lead:], random[lead:], strict=True) if looks is False]
    # Would the later policy have shown in so few steps?
    if lead and later and np.median(later) * policy[0].telling > 20 + 10 * np.sqrt(2 * policy[0].directions):
        yield says("unmarked-warmup", f"episode {policy[0].number}", which=_leading(lead), total=lead + len(warmup))
    elif scan.has_past:
        yield says("starts-in-the-middle", f"episode {policy[0].number}")


def _least_p(episode: EpisodeScan) -> float:
    """The least probability of what its choices show, if they were drawn evenly."""
    return min(1.0 if p is None else p for p in (episode.random_p, episode.position_p))


def _looks_random(episode: EpisodeScan) -> bool | None:
    unknown = episode.random_p is None or episode.telling < FEW_STEPS
    return None if unknown else _least_p(episode) > RANDOM_P


def _policy(scan: Scan, find_updates: Callable[[], Updates]) -> Iterator[Finding]:
    judged = [(episode, episode.random_p) for episode in scan.policy if episode.random_p is not None]
    if judged:
        telling = sum(episode.telling for episode, _ in judged)
        enough = telling >= max(4 * FEW_STEPS, 20 * max(episode.directions for episode, _ in judged))
        if enough and min(p for _, p in judged) * len(judged) > 0.01:
            positions = [episode.position_p for episode, _ in judged if episode.position_p is not None]
            uneven = min(positions, default=1.0) * len(judged) < 1e-3
            though = ", though not evenly over positions" if uneven else ""
            yield says("unexplained", episodes=plural(len(judged), "episode"), though=though)
            return
    tested = [(episode, episode.inside) for episode in scan.policy if episode.inside is not None]
    broken = [pair for pair in tested if pair[1].log10_p < _CHANGE_INSIDE]
    if broken:
        episode, inside = min(broken, key=lambda pair: pair[1].log10_p)
        edges = [each.edge for each in scan.policy if each.edge is not None]
        yield says(
            "episode-edges",
            f"episode {episode.number}, step {inside.step}",
            broken=len(broken),
            tested=len(tested),
            worst=episode.number,
            step=inside.step,
            steps=episode.steps,
            p=-inside.log10_p,
            at_edges=sum(edge.log10_p < _CHANGE_AT_EDGE and abs(edge.at - 0.5) <= 0.1 for edge in edges),
            edges=len(edges),
            proposal=_proposal(find_updates()),
        )
        return
    change, where = scan.overall, "between the first episode and the last"
    if len(scan.policy) == 1 and tested:
        change, where = tested[0][1], "in the log"
    if change is not None and change.log10_p > -2 and change.steps >= 8 * FEW_STEPS:
        yield says("no-change", where=where)


def _proposal(updates: Updates) -> str:
    """The better cut that was found, if one was."""
    if updates.log10_odds is None or updates.log10_odds < _BETTER:
        return ""
    when = f" {updates.schedule}" if updates.schedule else ", at irregular steps"
    return (
        f"Updates{when}: {plural(len(updates.edges), 'episode')} explain the choices better, "
        f"10^{updates.log10_odds:.0f} to 1; read the log with episodes='auto' (--episodes auto), or use "
        "log.recut(ibcb.find_updates(log).edges). "
    )
