"""Findings about single features: what varies, in which units, and what depends on what."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from ibcb.log.arrays import plural
from ibcb.log.validation.report import Finding
from ibcb.log.validation.scan import Scan
from ibcb.numerics.contexts import LARGEST

__all__ = ["collinear", "constant", "leaks", "scales", "unmoved"]

Mask = NDArray[np.bool_]

#: rounding of one number
_EPS = {"float32": 1.2e-7, "float64": 2.3e-16}
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
#: steps below which shares say little
_FEW_STEPS = 50


def _sd(scan: Scan) -> NDArray[np.float64]:
    """Spread of each feature within the steps in which it varies."""
    sd: NDArray[np.float64] = np.sqrt(np.diag(scan.scatter) / np.maximum(scan.varies, 1))
    return sd


def _peak(scan: Scan) -> NDArray[np.float64]:
    peak: NDArray[np.float64] = np.maximum(np.abs(scan.low), np.abs(scan.high))
    return peak


def constant(scan: Scan) -> Mask:
    """Features that are the same for all candidates of every step, up to rounding."""
    still: Mask = _sd(scan) <= 4 * _EPS.get(str(scan.dtype), 0.0) * _peak(scan)
    return still


def _names(scan: Scan, which: Mask) -> tuple[str, ...]:
    return scan.names(np.flatnonzero(which))


def unmoved(scan: Scan, still: Mask) -> Iterator[Finding]:
    """Features that never, or hardly ever, tell candidates apart."""
    if scan.single.count == scan.steps:
        yield Finding(
            "error",
            "no-alternatives",
            "Every step has one candidate: nothing was chosen, so nothing can be learned from the choices.",
            None,
            "Log all the candidates that the decider could have taken, not only the one it took.",
        )
        return
    if still.all():
        yield Finding(
            "error",
            "nothing-varies",
            f"All {scan.d} features are the same for all candidates of each step: no choice can depend on them.",
            None,
            "Give features in which the candidates of a step differ; check how candidates and features were joined.",
            scan.names(list(range(scan.d))),
        )
        return
    fixed = still & (scan.low == scan.high)
    if fixed.any():
        zero = bool((scan.high[fixed] == 0).all())
        yield Finding(
            "note",
            "constant-feature",
            f"{_count(fixed, scan)} the same in the whole log{' (0)' if zero else ''}: such a feature changes no "
            "choice, and its weight means nothing.",
            None,
            f"Drop {'it' if np.count_nonzero(fixed) == 1 else 'them'}"
            + ("." if zero else ", unless the decider's own model had it: an intercept widens the bonus."),
            _names(scan, fixed),
        )
    shared = still & ~fixed
    if shared.any():
        yield Finding(
            "warning",
            "constant-within-steps",
            f"{_count(shared, scan)} the same for all candidates of each step: such a feature cancels when candidates "
            "are compared, so the choices do not reveal its weight.",
            None,
            "Read nothing into these weights. If preferences differ with such features (a user's, say), add their "
            "products with features that vary: cross=[('user_*', 'item_*')] (--cross 'user_*,item_*').",
            _names(scan, shared),
        )
    rare = ~still & (scan.varies < _FEW_STEPS_VARYING) & (scan.contests >= 10 * _FEW_STEPS_VARYING)
    if rare.any():
        least = int(scan.varies[rare].min())
        yield Finding(
            "note",
            "rarely-varying",
            f"{_count(rare, scan, 'differs', 'differ')} between candidates in fewer than {_FEW_STEPS_VARYING} of "
            f"{scan.contests} steps (the rarest in {least}): a weight that rests on so few choices is uncertain.",
            None,
            "Merge rare categories, or do not lean on these weights.",
            _names(scan, rare),
        )


def _count(which: Mask, scan: Scan, one: str = "is", more: str = "are") -> str:
    number = int(np.count_nonzero(which))
    return f"{number} of {plural(scan.d, 'feature')} {one if number == 1 else more}"


def scales(scan: Scan, varying: Mask) -> Iterator[Finding]:
    """Units that are far apart, and differences that drown in rounding."""
    sd, peak, dtype = _sd(scan), _peak(scan), str(scan.dtype)
    if scan.overflows:
        worst = int(peak.argmax())
        yield Finding(
            "error",
            "overflow",
            f"{scan.name(worst)} reaches {peak[worst]:.3g}: sums of squares, which every fit needs, overflow.",
            None,
            "Give the feature in larger units.",
            _names(scan, peak > LARGEST),
        )
        return
    columns = np.flatnonzero(varying)
    small, large = int(columns[sd[columns].argmin()]), int(columns[sd[columns].argmax()])
    ratio = sd[large] / sd[small]
    if ratio > _LARGEST_SPREAD_RATIO:
        usual = float(np.median(sd[columns]))
        odd = varying & ((sd > 100 * usual) | (sd < usual / 100))
        odd[[small, large]] = True
        yield Finding(
            "note",
            "scales",
            f"Within steps {scan.name(large)} varies by {sd[large]:.2g} and {scan.name(small)} by {sd[small]:.2g}, "
            f"{ratio:.1g} times less: an l2 given as a number cannot suit both.",
            None,
            "Leave l2 at 'auto', which is in units of the features; a number must be the decider's, in these units.",
            _names(scan, odd),
        )
    offset = np.where(varying, peak / np.where(varying, sd, 1.0), 0.0)
    lost = offset > _MOST_OFFSET.get(dtype, np.inf)
    if lost.any():
        worst = int(offset.argmax())
        # Gram matrices square what float64 holds; float32 has lost it before.
        digits = -np.log10(_EPS[dtype]) - (2 if dtype == "float64" else 1) * np.log10(offset[worst])
        yield Finding(
            "warning",
            "precision",
            f"{scan.name(worst)} reaches {peak[worst]:.3g} but varies only by {sd[worst]:.2g} within steps: in {dtype} "
            f"about {max(digits, 0):.0f} digits are left of the difference between candidates.",
            None,
            "Subtract a constant from such features before they are stored, as the decider did; or store float64.",
            _names(scan, lost),
        )


def collinear(scan: Scan, varying: Mask) -> Iterator[Finding]:
    """Features whose weights cannot be told apart."""
    columns = np.flatnonzero(varying)
    # With fewer rows there would be relations by chance.
    if scan.overflows or scan.rows - scan.steps < 2 * len(columns):
        return
    relations = _relations(scan.scatter[np.ix_(columns, columns)])
    for members, weights, variance in relations[:_RELATIONS_SHOWN]:
        names = scan.names(columns[members])
        if np.ptp(weights) <= 1e-4 * np.abs(weights).max() and variance <= _EXACT:
            yield Finding(
                "note",
                "sums-to-constant",
                f"These {len(names)} features add up to the same number for all candidates of a step, as the columns "
                "of a one-hot code do: only differences between their weights mean something.",
                None,
                "Compare their weights with each other only, or drop one of them.",
                names,
            )
            continue
        if variance <= _EXACT:
            found = f"Within steps these {len(names)} features depend linearly on each other"
        else:
            found = (
                f"Within steps these {len(names)} features all but depend linearly on each other ({variance:.1g} of "
            )
            found += "their variance is free)"
        labels = [scan.name(int(columns[member])) for member in members]
        yield Finding(
            "warning",
            "collinear",
            f"{found}: {_relation(labels, weights)} is the same for all candidates. The choices tell their joint "
            "effect, not their single weights.",
            None,
            "Drop one of them, or read only their joint effect.",
            names,
        )
    rest = relations[_RELATIONS_SHOWN:]
    if rest:
        members = np.unique(np.concatenate([members for members, _, _ in rest]))
        yield Finding(
            "warning",
            "collinear",
            f"There are {len(rest)} more linear relations among these {len(members)} features.",
            None,
            "Drop features until none is left, or read only joint effects.",
            scan.names(columns[members]),
        )


def _relations(scatter: NDArray[np.float64]) -> list[tuple[NDArray[np.int64], NDArray[np.float64], float]]:
    """Linear relations of features within steps: members, weights, and how much variance is left.

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
    relations = []
    for weights in basis:
        members = np.flatnonzero(np.abs(weights) > 1e-2 * np.abs(weights).max())
        variance = float(weights @ correlation @ weights / (weights @ weights))
        raw = weights[members] / sd[members]
        relations.append((members, raw / np.abs(raw).max(), max(variance, 0.0)))
    return sorted(relations, key=lambda relation: int(relation[0][0]))


def _relation(labels: list[str], weights: NDArray[np.float64]) -> str:
    """Such as "price + 2 tax - total"."""
    least, most = np.abs(weights).min(), np.abs(weights).max()
    weights = np.sign(weights[0]) * weights / (least if most <= 100 * least else most)
    terms = []
    for label, weight in zip(labels[:6], weights.tolist(), strict=False):
        factor = f"{abs(weight):.3g}"
        terms.append(f"{'-' if weight < 0 else '+'} {label if factor == '1' else f'{factor} {label}'}")
    return " ".join(terms).removeprefix("+ ") + (" ..." if len(labels) > 6 else "")


def leaks(scan: Scan, varying: Mask) -> Iterator[Finding]:
    """Features that may have been written after the choice."""
    if scan.contests < _FEW_STEPS:
        return
    share = np.maximum(scan.largest, scan.smallest) / scan.contests
    # Missing values that were imputed are all alike; a flag has but one value for the chosen, and is a leak.
    outcomes = varying & (scan.rest_low == scan.rest_high) & (scan.varies >= _FEW_STEPS)
    outcomes &= (share < 0.99) | ((scan.low < scan.rest_low) & (scan.high > scan.rest_high))
    if outcomes.any():
        first = int(np.flatnonzero(outcomes)[0])
        yield Finding(
            "warning",
            "outcome",
            f"{_count(outcomes, scan)} the same for every candidate that was not chosen ({scan.name(first)}: "
            f"{scan.rest_low[first]:g}), but not for the chosen ones: filled in after the choice, as rewards are.",
            None,
            "Drop it: a feature must be known of all candidates before the choice.",
            _names(scan, outcomes),
        )
    suspects = varying & ~outcomes & (share >= 0.99)
    others = varying & ~suspects & ~outcomes
    if suspects.any() and others.any() and share[others].max() < 0.9:
        worst = int(np.flatnonzero(suspects)[share[suspects].argmax()])
        end = "largest" if scan.largest[worst] >= scan.smallest[worst] else "smallest"
        yield Finding(
            "warning",
            "leak",
            f"The chosen candidate alone has the {end} {scan.name(worst)} in {share[worst]:.2%} of the steps; other "
            f"features reach {share[others].max():.0%}. It may be the choice itself: a flag or a score written after "
            "the decision.",
            None,
            "Drop it if it was not known before the choice. If the decider goes by it alone, other weights cannot be "
            "told.",
            _names(scan, suspects),
        )
