"""The words of every finding of `ibcb.validate`: how grave it is, what it says, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ibcb.log.validation.findings import Finding, Severity
from ibcb.log.validation.first_episode import RANDOM_START

_MORE_EPISODES = "Add episodes; if the log spans several updates, cut it where the policy was updated."
_WITHOUT_PROPENSITIES = "read the log without them: drop=[...] (--drop) with the name of their column."
#: by code and, behind a slash, which of several: "severity: message -> remedy"
_WORDS = {
    "empty": "error: The log has no steps. -> Check the file, or the query behind it.",
    # Episodes.
    "few-episodes/none": f"error: All episodes are warm-up: the policy chose none. -> {_MORE_EPISODES}",
    "few-episodes/one": "error: The log has one episode and nothing before it: without a history it gives no "
    f"constraints on the rewards. -> {_MORE_EPISODES} Or give its past: a warm-up, or prior_gram=.",
    "few-episodes": "note: The log has {episodes}.{before} It takes three or more to see how a policy evolves. -> "
    f"{_MORE_EPISODES}",
    "small-episodes": "note: {small} of {episodes} have fewer steps with a choice to make than there are features "
    "that vary, {needed} (the least {least}): alone they do not determine a policy, and the answer leans on the "
    "episodes before. -> Join episodes between which the policy was not updated, or use fewer features.",
    "unequal-episodes": "note: Episodes have {least} to {most} steps: the large ones weigh more, and odd sizes can "
    "mean wrong edges. -> Check that each episode ends where the policy was updated.",
    # Features.
    "no-alternatives": "error: Every step has one candidate: nothing was chosen, so nothing can be learned from the "
    "choices. -> Log all the candidates that the decider could have taken, not only the one it took.",
    "nothing-varies": "error: All {d} features are the same for all candidates of each step: no choice can depend on "
    "them. -> Give features in which the candidates of a step differ; check how candidates and features were joined.",
    "constant-feature": "note: {many} the same in the whole log{value}: such a feature changes no choice, and its "
    "weight means nothing. -> Drop {them}{unless}.",
    "constant-within-steps": "warning: {many} the same for all candidates of each step: such a feature cancels when "
    "candidates are compared, so the choices do not reveal its weight. -> Read nothing into these weights. If "
    "preferences differ with such features (a user's, say), add their products with features that vary: "
    "cross=[('user_*', 'item_*')] (--cross 'user_*,item_*').",
    "rarely-varying": "note: {many} between candidates in fewer than {few} of {contests} steps (the rarest in "
    "{least}): a weight that rests on so few choices is uncertain. -> Merge rare categories, or do not lean on these "
    "weights.",
    "overflow": "error: {feature} reaches {peak:.3g}: sums of squares, which every fit needs, overflow. -> Give the "
    "feature in larger units.",
    "scales": "note: Within steps {large} varies by {largest:.2g} and {small} by {smallest:.2g}, {ratio:.1g} times "
    "less: an l2 given as a number cannot suit both. -> Leave l2 at 'auto', which is in units of the features; a "
    "number must be the decider's, in these units.",
    "precision": "warning: {feature} reaches {peak:.3g} but varies only by {sd:.2g} within steps: in {dtype} about "
    "{digits:.0f} digits are left of the difference between candidates. -> Subtract a constant from such features "
    "before they are stored, as the decider did; or store float64.",
    "sums-to-constant": "note: These {number} features add up to the same number for all candidates of a step, as the "
    "columns of a one-hot code do: only differences between their weights mean something. -> Compare their weights "
    "with each other only, or drop one of them.",
    "collinear": "warning: Within steps these {number} features {nearly}depend linearly on each other{free}: "
    "{relation} is the same for all candidates. The choices tell their joint effect, not their single weights. -> "
    "Drop one of them, or read only their joint effect.",
    "collinear/more": "warning: There are {more} more linear relations among these {number} features. -> Drop "
    "features until none is left, or read only joint effects.",
    "outcome": "warning: {many} the same for every candidate that was not chosen ({feature}: {value:g}), but not for "
    "the chosen ones: filled in after the choice, as rewards are. -> Drop it: a feature must be known of all "
    "candidates before the choice.",
    "leak": "warning: The chosen candidate alone has the {end} {feature} in {share:.2%} of the steps; other features "
    "reach {others:.0%}. It may be the choice itself: a flag or a score written after the decision. -> Drop it if it "
    "was not known before the choice. If the decider goes by it alone, other weights cannot be told.",
    "propensity-feature": "warning: {feature} sums to 1 over the candidates of every step, and the choices look drawn "
    "with it: it seems to be the probability with which the decider drew, which tells the choices and not what they "
    "are for. -> If so, read it as that: columns={{'propensity': '{name}'}} (--column propensity={name}); or drop it.",
    # Steps.
    "one-candidate": "note: {steps} one candidate, which says nothing about the policy. -> No action needed; if there "
    "were others to choose from, log them.",
    "equal-candidates": "note: In {steps} all candidates have the same features: such steps say nothing about the "
    "policy. -> Add features that tell these candidates apart, if the decider had them.",
    "twin-candidates": "note: {steps} candidates with equal features; {chosen}. -> Remove candidates that were listed "
    "twice; if they differ, add the features in which they do.",
    "repeated-steps": "note: {steps} repeat the step before, candidates and choice; steps that lie far apart are "
    "equal in {chance} cases. Logged twice, a step counts twice. -> If they were logged twice, remove the copies; if "
    "the decider met the same step again, as in repeat purchases, leave them.",
    "same-position": "note: The chosen candidate is at position {position} in {share} of the steps: the order of the "
    "candidates gives the choice away (sorted by score, or the chosen one first?). -> ibcb does not use positions, "
    "but ties go to the first candidate: shuffle the candidates of each step before you measure agreement.",
    # Times.
    "missing-times": "note: {steps} have no timestamp; the order of the others was checked. -> No action needed if "
    "the steps are in the right order.",
    "unsorted-times": "warning: In {steps} time runs backwards within an episode: the steps are not in the order in "
    "which they happened, and may be in wrong episodes. -> Sort the log by time, then cut it into episodes.",
    "overlapping-episodes": "warning: {steps} happened before an earlier episode had ended: the policy cannot have "
    "been updated between them. -> Cut the episodes by time; keep logs of deciders that learned apart from each other "
    "in separate files.",
    # The start.
    "warmup-not-random": "note: The choices of {episodes} are not drawn evenly from the candidates. They enter the "
    "decider's experience and are not taken as evidence of its policy. -> Right for a start under other rules; if the "
    "policy chose them, mark fewer episodes as warm-up.",
    "unmarked-warmup": "note: The choices of the {which} look random: even over positions and features, which later "
    f"ones are not. -> {RANDOM_START}",
    "starts-in-the-middle": "note: The first episode's choices are neither random nor those of a decider that knows "
    "nothing yet. Either the log starts in the middle of its life, or it drew its parameters once for the whole "
    "episode. -> In the first case add the earlier episodes, or pass prior_gram= (S'S of the contexts chosen before).",
    # Logged propensities.
    "propensity-sums": "warning: In {off} of {steps} with logged propensities of all candidates these do not sum to "
    "1: in the first to {total:.4g}. Above 1 they are scores, or of several choices at once; below it candidates are "
    f"missing. -> Correct them, log the candidates that are missing, or {_WITHOUT_PROPENSITIES}",
    "certain-propensities": "note: The logged propensities of all {choices} are 1: the decider drew nothing, or "
    "nobody knew. Importance weights made of them would all be equal. -> If they are placeholders, "
    f"{_WITHOUT_PROPENSITIES}",
    "even-propensities": "warning: By the logged propensities every candidate was as likely as any other at every "
    "step: the choices were drawn at random and say nothing about a policy. A fit would follow chance. -> Fit the log "
    "of the policy that learned; this one serves to evaluate others.",
    "even-start": "note: By the logged propensities the choices of the {which} were drawn evenly from the candidates. "
    "-> Mark that random start: warmup={total} (--warmup {total}).",
    "missing-propensities": "note: {choices} of {steps} {have} no logged propensity; comparisons are of the others. "
    "-> No action needed, unless they were lost.",
    "propensities-not-drawn": "warning: By the logged propensities the choices are {deviations:.0f} standard "
    "deviations {how} likely than choices drawn with them: the decider did not draw with these. -> Check that "
    "propensities and candidates belong together, in order, and that they are those of the choice, not of a later "
    "model.",
    # The policy.
    "unexplained": "warning: In none of {episodes} do the choices lean towards any feature: they look drawn at "
    "random{though}. A fit would follow chance. -> Check that candidates and choices belong together, and that "
    "positions count from 0.",
    "episode-edges": "warning: The policy should change between episodes only, but it seems to change inside {broken} "
    "of {tested} episodes, most clearly in episode {worst} near step {step} of {steps} (by chance 1 in 10^{p:.0f}). "
    "At the edges between episodes a change shows in {at_edges} of {edges}. -> {proposal}Check where episodes begin "
    "and end: the episode column, --episode-every or --episode-size. If the policy was updated more often, cut them "
    "shorter. A decider that learns at every step does not fit the method.",
    "no-change": "note: No change of policy shows {where}: the decider hardly learned, or had learned before, or its "
    "candidates changed too much to compare. -> Where it did not learn, a model of the choices alone does as well: "
    "ibcb.ChoiceModel(episodes=None).",
}


def says(
    case: str, /, place: str | None = None, *, warns: bool = False, features: Iterable[str] = (), **figures: Any
) -> Finding:
    """A finding of the table; ``warns`` where a note is a warning."""
    severity, words = _WORDS[case].split(": ", 1)
    message, remedy = (text.format(**figures) for text in words.split(" -> "))
    grave = "warning" if warns else cast(Severity, severity)
    return Finding(grave, case.partition("/")[0], message, place, remedy, tuple(features))
