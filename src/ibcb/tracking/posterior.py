"""What a decider is: how plausible each choice rule is, each motion inside it, and which name they make together.

Two questions, each with evidence of its own. *How it chooses* is asked with a free policy in every episode
(`ibcb.tracking.free_policies`): scores of episodes add up, and are weighed by the Bayesian bootstrap over episodes (Yao
et al. 2018), so that a lead within its own error does not decide. A rule whose policies have a length says more:
logarithms of lengths l_n, known to errors s_n, are drawn around a common mean with a free deviation, which replaces the
free parameter that each had. *How its policy moves* is asked inside a rule, by the evidence of the tracker's models for
whole episodes, averaged over the models of a motion. A motion too small to be seen is no hypothesis: a model that moves
by less than one standard error of its own policy says nothing that standing still does not, unless the choices tell
them apart all the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ibcb.deciders import Kind
from ibcb.numerics.arrays import Matrix, Vector
from ibcb.tracking.free_policies import IMPOSSIBLE, FreeFit, Manner
from ibcb.tracking.tracker import Track

#: weight that all that a name needs must have, for the name to be given
TOLD = 0.9
#: episodes after which manners are given up, and the weight below which they are; not tuned: most are hundreds behind
_RACES, _HOPELESS = (3, 4, 7, 14, 28, 56, 112), 1e-4
#: logarithm of the odds that a name needs
_ODDS = math.log(TOLD / (1 - TOLD))
#: weight from which one is named in a sentence
_SHOWN = 0.05
#: standard errors beyond which one of a hundred checks fails by chance
_PASSED = 2.576
#: draws of the bootstrap; a weight's error is below .01
_BOOTSTRAP = 4000
#: deviations of log lengths that are considered; not tuned
_DEVIATIONS = np.append(0.0, np.geomspace(0.01, 10.0, 31))
#: what says neither which rule nor which motion it is
UNDETERMINED = "undetermined"
#: rules that every decider may choose by, beside those of the kinds
_ALWAYS = (Manner("best"), Manner("softmax", soft=True), Manner("other", soft=True, share=True))


_RULES = {
    "best": "it takes the best",
    "bonus": "it takes the best, with a bonus for what it knows little of",
    "thompson": "it takes the best of a draw from what it believes",
    "egreedy": "it takes the best, and any at random now and then",
    "softmax": "it draws by a softmax of scores",
    "other": "it draws by a softmax of scores, and any at random now and then",
    **{f"topk{k}": f"it draws among its {k} best" for k in (2, 3, 4)},
}
_MOTIONS = {
    "still": "its policy stands still",
    "learner": "it learns as ridge regression does",
    "sampler": "it learns, and draws its policy once an episode",
    "settling": "its policy moves less and less",
    "restless": "its policy keeps wandering",
    "walk": "its policy wanders",
    "reverting": "its policy wanders about a mean",
}


class Check(NamedTuple):
    """Whether choices are as a rule would make them.

    Attributes
    ----------
    name : str
        What was looked at.
    z : float
        How far it is from what the rule expects, in standard errors.
    """

    name: str
    z: float

    @property
    def words(self) -> str:
        """What failed, in a clause."""
        told = {
            "scatter": "the choices do not vary as much as this rule makes them vary, or vary more",
            "strays": "choices that are not the best depend on the scores, so they are not made at random",
        }
        return f"{told[self.name]} ({abs(self.z):.1f} standard errors)"

    @property
    def passed(self) -> bool:
        """Whether chance alone explains it, once in a hundred times otherwise."""
        return abs(self.z) <= _PASSED


class Plausible(NamedTuple):
    """A choice rule, or a motion, and how plausible it is.

    Attributes
    ----------
    name : str
    weight : float
        Of all they add up to 1.
    log_likelihood : float
        Of a rule the score of all episodes: log-likelihood with free policies, less the number of free parameters; of a
        motion its evidence inside the likeliest rule.
    checks : tuple of Check
        Of a rule.
    """

    name: str
    weight: float
    log_likelihood: float
    checks: tuple[Check, ...] = ()


class Conclusion(NamedTuple):
    """What the log tells of a decider.

    Attributes
    ----------
    name : str
        The kind's, or `UNDETERMINED`.
    rules, motions : tuple of Plausible
        The most plausible first; motions inside the likeliest rule.
    """

    name: str
    rules: tuple[Plausible, ...] = ()
    motions: tuple[Plausible, ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether it has a name."""
        return self.name != UNDETERMINED

    @property
    def words(self) -> str:
        """What is plausible, in a sentence."""
        if not self.rules:
            return "No episode has enough choices to tell how it chooses."
        parts = [_listed(self.rules, _RULES), _listed(self.motions, _MOTIONS)]
        failed = "".join(f" But {check.words}." for check in self.rules[0].checks if not check.passed)
        first = "What comes nearest fails a check. " if failed else ""
        return f"{first}{' '.join(part for part in parts if part)}{failed}"


def named(kind: Kind, motions: Sequence[Plausible] = ()) -> Conclusion:
    """A decider whose kind was given."""
    return Conclusion(kind.name, (Plausible(manner_of(kind).name, 1.0, 0.0),), tuple(motions))


def _listed(of: Sequence[Plausible], words: Mapping[str, str]) -> str:
    """The plausible ones, with their weights where there are several."""
    shown = [each for each in of if each.weight >= _SHOWN]
    clauses = [words.get(each.name, f"it chooses as {each.name} does") for each in shown]
    if len(shown) < 2:
        return "".join(f"{clause[0].upper()}{clause[1:]}." for clause in clauses)
    weighed = [f"{clause} ({each.weight:.0%})" for clause, each in zip(clauses, shown, strict=True)]
    return f"The log does not tell whether {', '.join(weighed[:-1])} or {weighed[-1]}."


def manner_of(kind: Kind) -> Manner:
    """How deciders of a kind choose, by what its rule declares."""
    if kind.setting("top_k") is not None:
        return Manner(f"topk{kind.top_k}", top_k=kind.top_k)
    if kind.setting("draws") == "step":
        return Manner("thompson", drawn=True, kind=kind)
    soft = any(each.luck and not each.estimate.by_share for each in kind.parameters)
    share = kind.makes_random_choices or (soft and not _tells_length(kind))
    if kind.added.size:
        return Manner("bonus" if not soft and not share else kind.key, soft, share, kind=kind)
    if soft:
        return Manner("other" if share else "softmax", soft, share)
    return Manner("egreedy" if share else "best", soft, share)


def manners_of(kinds: Sequence[Kind]) -> tuple[Manner, ...]:
    """Of some kinds, each once, after those of every decider."""
    manners = {(manner.name, ""): manner for manner in _ALWAYS}
    # Widths and draws are hardly another by another l2, once anything has been learned, but by another origin.
    for kind in sorted(kinds, key=lambda kind: abs(math.log(kind.l2))):
        manner = manner_of(kind)
        manners.setdefault((manner.name, kind.units if manner.kind else ""), manner)
    return tuple(manners.values())


def _tells_length(kind: Kind) -> bool:
    """Whether the length of its policies is its own: its temperature is told."""
    return any(each.luck and each.estimate.told for each in kind.parameters)


# -- how it chooses ------------------------------------------------------------------------------------------------


def rules(manners: Sequence[Manner], fits: Sequence[FreeFit]) -> tuple[Plausible, ...]:
    """How plausible each choice rule is, the most plausible first; empty where no episode tells."""
    telling = [fit for fit in fits if fit.scores.any()]
    if not telling:
        return ()
    weights, totals = _weights(manners, telling)
    for place, manner in enumerate(manners):
        # A softmax of no temperature takes the best, and so does a draw without spread: what is not likelier than its
        # limit is its limit.
        limit = _limit_of(manner, manners)
        if limit is not None and totals[place] <= totals[limit]:
            weights[limit], weights[place] = weights[limit] + weights[place], 0.0
    misfits, variances = (
        np.array([getattr(fit, name) for fit in telling]).sum(axis=0) for name in ("misfits", "variances")
    )
    plausible = dict[str, Plausible]()
    for place in np.argsort(totals).tolist():
        manner, weight, total = manners[place], float(weights[place]), float(totals[place])
        if total > IMPOSSIBLE:
            weight += plausible[manner.name].weight if manner.name in plausible else 0.0
            checks = tuple[Check, ...]()
            if variances[place] > 0:
                z = float(misfits[place] / math.sqrt(variances[place]))
                checks = (Check("scatter" if manner.soft or manner.drawn else "strays", z),)
            plausible[manner.name] = Plausible(manner.name, weight, total, checks)
    return tuple(sorted(plausible.values(), key=lambda each: -each.weight))


def _weights(manners: Sequence[Manner], telling: Sequence[FreeFit]) -> tuple[Vector, Vector]:
    """Of every manner, its weight and the score of all episodes."""
    scores, lengths, errors = (
        np.array([getattr(fit, name) for fit in telling]) for name in ("scores", "lengths", "errors")
    )
    count, weights, kept = len(telling), np.zeros(len(manners)), scores.min(axis=0) > IMPOSSIBLE
    for place, manner in enumerate(manners):
        if kept[place] and (manner.soft or manner.drawn):
            # Two numbers for all episodes instead of one for each.
            scores[:, place] += 1 + _law_of_lengths(lengths[:, place], errors[:, place]) - 2 / count
    draws = count * np.random.default_rng(0).dirichlet(np.ones(count), _BOOTSTRAP)
    weights[kept] = _softmax(draws @ scores[:, kept]).mean(axis=0)
    return weights, scores.sum(axis=0)


def hopeful(manners: Sequence[Manner], fits: Sequence[FreeFit]) -> list[bool]:
    """Which manners to go on with: all, until enough episodes tell that some have no weight."""
    telling = [fit for fit in fits if fit.scores.any()]
    if len(telling) not in _RACES:
        return [True] * len(manners) if not telling else (telling[-1].scores > IMPOSSIBLE).tolist()
    return [weight >= _HOPELESS for weight in _weights(manners, telling)[0].tolist()]


def _limit_of(manner: Manner, manners: Sequence[Manner]) -> int | None:
    """The place of what a manner is where its policies are so long that no luck is left."""
    if not (manner.soft or manner.drawn):
        return None
    hard = manner._replace(soft=False, drawn=False, kind=manner.kind if manner.adds else None)[1:]
    return next((place for place, each in enumerate(manners) if each[1:] == hard), None)


def _law_of_lengths(lengths: Vector, errors: Vector) -> Vector:
    """Of every episode, the logarithm of the likelihood of its length, over that of the likeliest, by Laplace."""
    variances = np.clip(errors, 1e-3, 1e3) ** 2
    best, likeliest = -np.inf, np.zeros(len(lengths))
    for deviation in _DEVIATIONS.tolist():
        total = deviation**2 + variances
        mean = np.average(lengths, weights=1 / total)
        each = (np.log(variances / total) - (lengths - mean) ** 2 / total) / 2
        if each.sum() > best:
            best, likeliest = float(each.sum()), each
    return likeliest


def _softmax(table: Matrix) -> Matrix:
    weights = np.exp(table - table.max(axis=-1, keepdims=True))
    normal: Matrix = weights / weights.sum(axis=-1, keepdims=True)
    return normal


# -- how its policy moves ------------------------------------------------------------------------------------------


def motions(tracks: Sequence[Track]) -> tuple[Plausible, ...]:
    """How plausible each motion is by the tracks of one choice rule, the most plausible first."""
    evidence = defaultdict[str, list[float]](list)
    for track in tracks:
        for motion, model in _visible(track):
            evidence[motion].append(model)
    if not evidence:
        return ()
    names = list(evidence)
    totals = np.array([_mean(evidence[name]) for name in names])
    weighed = zip(names, _softmax(totals).tolist(), totals.tolist(), strict=True)
    return tuple(sorted((Plausible(*each) for each in weighed), key=lambda each: -each.weight))


def _visible(track: Track) -> list[tuple[str, float]]:
    """Motion and evidence of every model of a track but those that move too little to be seen, and are not seen."""
    now, families, d, visible = track.seen, track.models, track.d, list[tuple[str, float]]()
    # In scores of a step's candidates: a move of 1, and what is not known of each model's last policy.
    move = float(np.sum(now.within * now.unit))
    likeliest_still = float(now.whole_evidence[families.still].max(initial=-np.inf))
    per_family = zip(
        track.kind.motions.families,
        families.motions,
        families.by_family(now.whole_evidence),
        now.last,
        strict=True,
    )
    for family, motion, evidence, last in per_family:
        lengths = motion.lengths(1)
        for member, still in enumerate(motion.still):
            error = float(np.sum(now.within * last.covariance[member, :d, :d]))
            seen = lengths is None or float(lengths[member]) ** 2 * move >= error
            if still or seen or float(evidence[member]) > likeliest_still + _ODDS:
                visible.append(("still" if still else family.motion, float(evidence[member])))
    return visible


def _mean(evidence: Sequence[float]) -> float:
    """Logarithm of the mean of likelihoods."""
    top = max(evidence)
    return top + math.log(np.mean(np.exp(np.array(evidence) - top))) if math.isfinite(top) else top


# -- which name they make ------------------------------------------------------------------------------------------

#: names that stand whatever the choice rule is, by motion
_ANY_RULE = {"still": "stationary", "walk": "other", "restless": "other", "reverting": "other"}


def concluded(
    rules: Sequence[Plausible], by_rule: Mapping[str, Mapping[str, str]], motions: Mapping[str, Sequence[Plausible]]
) -> Conclusion:
    """The name whose row holds nearly all of the weight, if one does, and the likeliest rule passes its checks.

    Parameters
    ----------
    rules : sequence of Plausible
    by_rule : mapping
        Of each rule, the name of a decider that chooses by it by its motion.
    motions : mapping
        Of each rule that has any weight.
    """
    weights = defaultdict[str, float](float)
    for rule in rules:
        for motion in motions.get(rule.name, ()):
            name = _ANY_RULE.get(motion.name) or by_rule.get(rule.name, {}).get(motion.name)
            weights[name or UNDETERMINED] += rule.weight * motion.weight
    name = max(weights, key=weights.__getitem__, default=UNDETERMINED)
    first = tuple(motions.get(rules[0].name, ())) if rules else ()
    is_told = weights[name] >= TOLD and all(check.passed for check in rules[0].checks)
    return Conclusion(name if is_told else UNDETERMINED, tuple(rules), first)
