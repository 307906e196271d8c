"""What the sums over a log mean for a fit: one function per group of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ibcb.log.arrays import plural
from ibcb.log.validation.features import collinear, constant, leaks, scales, unmoved
from ibcb.log.validation.logged import logged_findings
from ibcb.log.validation.report import Finding, Severity
from ibcb.log.validation.scan import EpisodeScan, Scan
from ibcb.log.validation.updates import Updates

__all__ = ["findings"]

#: steps below which shares say little: their standard error is then up to 7%
_FEW_STEPS = 50
#: log10 of the probability below which a change of policy inside an episode is reported (decision 0006: the
#: worst clean episode seen reached 1e-6), and one at an edge, where one is expected, counted (not tuned)
_CHANGE_INSIDE, _CHANGE_AT_EDGE = -7.0, -3.0
#: log10 of the odds from which another cut is proposed
_BETTER = 2.0


def findings(scan: Scan, find_updates: Callable[[], Updates]) -> tuple[Finding, ...]:
    """All findings, the gravest first; ``find_updates`` is asked where episodes look wrong."""
    if scan.steps == 0:
        empty = Finding("error", "empty", "The log has no steps.", None, "Check the file, or the query behind it.")
        return (empty,)
    still = constant(scan)
    found = [*_episodes(scan, ~still), *unmoved(scan, still)]
    if not still.all():
        found += [*scales(scan, ~still), *collinear(scan, ~still), *leaks(scan, ~still)]
    found += [*_steps(scan), *_times(scan), *_starts(scan), *logged_findings(scan.logged)]
    if not still.all():
        found += _policy(scan, find_updates)
    order: tuple[Severity, ...] = ("error", "warning", "note")
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


# -- steps and episodes --------------------------------------------------------------------------------------------


def _steps(scan: Scan) -> Iterator[Finding]:
    single, equal, twins = scan.single, scan.equal, scan.twins
    if 0 < single.count < scan.steps:
        share = single.count / scan.steps
        yield Finding(
            "warning" if share > 0.5 else "note",
            "one-candidate",
            f"{_steps_have(single.count, share)} one candidate, which says nothing about the policy.",
            single.place,
            "No action needed; if there were others to choose from, log them.",
        )
    if 0 < equal.count < scan.contests:
        share = equal.count / scan.steps
        yield Finding(
            "warning" if share > 0.5 else "note",
            "equal-candidates",
            f"In {plural(equal.count, 'step')} ({_percent(share)}) all candidates have the same features: such steps "
            "say nothing about the policy.",
            equal.place,
            "Add features that tell these candidates apart, if the decider had them.",
        )
    if twins.count > equal.count:
        share, chosen = twins.count / scan.steps, scan.chosen_twins.count / scan.steps
        yield Finding(
            "warning" if chosen > 0.1 else "note",
            "twin-candidates",
            f"{_steps_have(twins.count, share)} candidates with equal features; {_chosen_twins(scan, chosen)}.",
            twins.place,
            "Remove candidates that were listed twice; if they differ, add the features in which they do.",
        )
    if scan.repeats.count > 3 + 3 * scan.chance_repeats:
        share = scan.repeats.count / scan.steps
        yield Finding(
            "warning" if share > 0.05 else "note",
            "repeated-steps",
            f"{plural(scan.repeats.count, 'step')} ({_percent(share)}) repeat the step before, candidates and choice; "
            f"steps that lie far apart are equal in {scan.chance_repeats} cases. Logged twice, a step counts twice.",
            scan.repeats.place,
            "Remove the copies, unless the decider really met the same step again.",
        )
    total = int(scan.positions.sum())
    if total >= _FEW_STEPS and scan.positions.max() >= 0.99 * total:
        position = int(scan.positions.argmax())
        yield Finding(
            "note",
            "same-position",
            f"The chosen candidate is at position {position} in {_percent(scan.positions[position] / total)} of the "
            "steps: the order of the candidates gives the choice away (sorted by score, or the chosen one first?).",
            None,
            "ibcb does not use positions, but ties go to the first candidate: shuffle the candidates of each step "
            "before you measure agreement.",
        )


def _episodes(scan: Scan, varying: NDArray[np.bool_]) -> Iterator[Finding]:
    policy, warmup = scan.policy, len(scan.episodes) - len(scan.policy)
    taught = len(policy) - (0 if warmup else 1)
    remedy = "Add episodes; if the log spans several updates, cut it where the policy was updated."
    if not policy:
        yield Finding("error", "few-episodes", "All episodes are warm-up: the policy chose none.", None, remedy)
        return
    if taught < 1:
        yield Finding(
            "error",
            "few-episodes",
            "The log has one episode and nothing before it: without a history it gives no constraints on the rewards.",
            None,
            remedy + " Or give its past: a warm-up, or prior_gram=.",
        )
    elif taught < 3:
        before = "" if warmup else " Without a history (a warm-up, prior_gram=) the first gives no constraints."
        yield Finding(
            "warning" if taught == 1 else "note",
            "few-episodes",
            f"The log has {plural(len(policy), 'episode')}.{before} It takes three or more to see how a policy "
            "evolves.",
            None,
            remedy,
        )
    needed = int(np.count_nonzero(varying))
    small = [episode for episode in policy if episode.telling < needed]
    if small:
        least = min(small, key=lambda episode: episode.telling)
        yield Finding(
            "warning" if 2 * len(small) > len(policy) else "note",
            "small-episodes",
            f"{len(small)} of {plural(len(policy), 'episode')} have fewer steps with a choice to make than there are "
            f"features that vary, {needed} (the least {least.telling}): alone they do not determine a policy, and the "
            "answer leans on the episodes before.",
            f"episode {least.number}",
            "Join episodes between which the policy was not updated, or use fewer features.",
        )
    # The last one may have been cut off by the end of the log.
    sizes = [episode.steps for episode in (policy[:-1] if len(policy) > 2 else policy)]
    most = max(episode.steps for episode in policy)
    if len(policy) > 1 and most > 10 * min(sizes):
        yield Finding(
            "note",
            "unequal-episodes",
            f"Episodes have {min(sizes)} to {most} steps: the large ones weigh more, and odd sizes can mean wrong "
            "edges.",
            f"episode {policy[sizes.index(min(sizes))].number}",
            "Check that each episode ends where the policy was updated.",
        )


def _times(scan: Scan) -> Iterator[Finding]:
    if scan.untimed.count:
        yield Finding(
            "note",
            "missing-times",
            f"{plural(scan.untimed.count, 'step')} have no timestamp; the order of the others was checked.",
            scan.untimed.place,
            "No action needed if the steps are in the right order.",
        )
    if scan.backward.count:
        yield Finding(
            "warning",
            "unsorted-times",
            f"In {plural(scan.backward.count, 'step')} time runs backwards within an episode: the steps are not in "
            "the order in which they happened, and may be in wrong episodes.",
            scan.backward.place,
            "Sort the log by time, then cut it into episodes.",
        )
    if scan.overlaps.count:
        yield Finding(
            "warning",
            "overlapping-episodes",
            f"{plural(scan.overlaps.count, 'step')} happened before an earlier episode had ended: the policy cannot "
            "have been updated between them.",
            scan.overlaps.place,
            "Cut the episodes by time; keep logs of deciders that learned apart from each other in separate files.",
        )


# -- the policy ----------------------------------------------------------------------------------------------------


def _known(p: float | None) -> float:
    return 1.0 if p is None else p


def _looks_random(episode: EpisodeScan) -> bool | None:
    if episode.random_p is None or episode.telling < _FEW_STEPS:
        return None
    return min(episode.random_p, _known(episode.position_p)) > 1e-3


def _starts(scan: Scan) -> Iterator[Finding]:
    """Is the warm-up what it is said to be?"""
    warmup = [episode for episode in scan.episodes if episode.number < 0]
    uneven = [episode for episode in warmup if min(_known(episode.random_p), _known(episode.position_p)) < 1e-6]
    if uneven:
        yield Finding(
            "note",
            "warmup-not-random",
            f"The choices of {plural(len(uneven), 'warm-up episode')} are not drawn evenly from the candidates. They "
            "enter the decider's experience and are not taken as evidence of its policy.",
            f"episode {uneven[0].number}",
            "Right for a start under other rules; if the policy chose them, mark fewer episodes as warm-up.",
        )
    policy = scan.policy
    lead = 0
    while lead < len(policy) and _looks_random(policy[lead]):
        lead += 1
    later = [episode for episode in policy[lead:] if _looks_random(episode) is False]
    if lead and later:
        pull = float(np.median([episode.pull for episode in later]))
        first = policy[0]
        # Would the later policy have shown in so few steps?
        if pull * first.telling > 20 + 10 * np.sqrt(2 * first.directions):
            total = lead + len(warmup)
            which = "first episode" if lead == 1 else f"first {lead} episodes"
            yield Finding(
                "note",
                "unmarked-warmup",
                f"The choices of the {which} look random: even over positions and features, which later ones are not.",
                f"episode {policy[0].number}",
                f"If that was a random start, mark it: warmup={total} (--warmup {total}).",
            )
            return
    if scan.has_past:
        yield Finding(
            "note",
            "starts-in-the-middle",
            "The first episode's choices are neither random nor those of a decider that knows nothing yet. Either the "
            "log starts in the middle of its life, or it drew its parameters once for the whole episode.",
            f"episode {policy[0].number}",
            "In the first case add the earlier episodes, or pass prior_gram= (S'S of the contexts chosen before).",
        )


def _policy(scan: Scan, find_updates: Callable[[], Updates]) -> Iterator[Finding]:
    judged = [episode for episode in scan.policy if episode.random_p is not None]
    if judged:
        telling, directions = sum(episode.telling for episode in judged), max(episode.directions for episode in judged)
        least = min(_known(episode.random_p) for episode in judged)
        if telling >= max(4 * _FEW_STEPS, 20 * directions) and least * len(judged) > 0.01:
            position = min(_known(episode.position_p) for episode in judged) * len(judged) < 1e-3
            yield Finding(
                "warning",
                "unexplained",
                f"In none of {plural(len(judged), 'episode')} do the choices lean towards any feature: they look drawn "
                f"at random{', though not evenly over positions' if position else ''}. A fit would follow chance.",
                None,
                "Check that candidates and choices belong together, and that positions count from 0.",
            )
            return
    tested = [episode for episode in scan.policy if episode.inside is not None]
    broken = [e for e in tested if e.inside is not None and e.inside.log10_p < _CHANGE_INSIDE]
    if broken:
        yield _wrong_edges(scan, tested, broken, find_updates())
        return
    # Of a log with one episode: inside it.
    only = tested[0].inside if len(scan.policy) == 1 and tested else None
    change, where = (scan.overall, "between the first episode and the last") if only is None else (only, "in the log")
    if change is not None and change.log10_p > -2 and change.steps >= 8 * _FEW_STEPS:
        yield Finding(
            "note",
            "no-change",
            f"No change of policy shows {where}: the decider hardly learned, or had "
            "learned before, or its candidates changed too much to compare.",
            None,
            "Where it did not learn, a model of the choices alone does as well: ibcb.ChoiceModel(episodes=None).",
        )


def _wrong_edges(scan: Scan, tested: list[EpisodeScan], broken: list[EpisodeScan], updates: Updates) -> Finding:
    edges = [episode.edge for episode in scan.policy if episode.edge is not None]
    at_edges = sum(edge.log10_p < _CHANGE_AT_EDGE and abs(edge.at - 0.5) <= 0.1 for edge in edges)
    worst = min(broken, key=lambda episode: episode.inside.log10_p if episode.inside else 0.0)
    assert worst.inside is not None
    step, log10_p = worst.inside.step, worst.inside.log10_p
    return Finding(
        "warning",
        "episode-edges",
        f"The policy should change between episodes only, but it seems to change inside {len(broken)} of "
        f"{len(tested)} episodes, most clearly in episode {worst.number} near step {step} of {worst.steps} (by chance "
        f"1 in 10^{-log10_p:.0f}). At the edges between episodes a change shows in {at_edges} of {len(edges)}.",
        f"episode {worst.number}, step {step}",
        f"{_proposal(updates)}Check where episodes begin and end: the episode column, --episode-every or "
        "--episode-size. If the policy was updated more often, cut them shorter. A decider that learns at every step "
        "does not fit the method.",
    )


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


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or share == 0 else f"{share:.1g} of all"


def _steps_have(count: int, share: float) -> str:
    return f"{plural(count, 'step')} ({_percent(share)}) {'has' if count == 1 else 'have'}"


def _chosen_twins(scan: Scan, share: float) -> str:
    if not scan.chosen_twins.count:
        return "none of them was chosen"
    return (
        f"in {scan.chosen_twins.count} ({_percent(share)}) the chosen one has a twin, so no model can tell which of "
        "them was chosen, and agreement stays below 100%"
    )
