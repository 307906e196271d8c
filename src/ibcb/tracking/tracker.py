"""The tracker: what is believed of a decider's policy, episode by episode, by every model of how it moves.

A `Track` is all that is known so far. It is never changed: `Track.after` gives the next one. An episode is taken in
three steps: the models' predictions are compared with its choices, they learn from what its choices say of the policy
(`ibcb.deciders`), and the policy moves on by the update after it (`ibcb.tracking.motions`). Which model is believed is
in `ibcb.tracking.preference`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np

from ibcb.deciders import FIRST_STRAY, Believed, Kind, Share
from ibcb.engine import ALL, Episode, candidate_moments
from ibcb.numerics.arrays import Matrix, Stored, Vector, changed, lazy
from ibcb.numerics.checks import gram_matrix
from ibcb.numerics.gaussians import Beliefs, Site, condition, symmetric_inverse
from ibcb.numerics.ridge import Chosen
from ibcb.tracking.calibration import Exploration, no_evidence, share_of
from ibcb.tracking.context_sample import ContextSample, picked
from ibcb.tracking.families import Families
from ibcb.tracking.look import Look, Passed, Tracked, look_at
from ibcb.tracking.motions import Update, models_of
from ibcb.tracking.preference import asked, leaders, preferred, weights, without_hopeless
from ibcb.tracking.reward_fit import RewardFit
from ibcb.tracking.units import unit_of

#: numbers of the episodes passed that are kept, 16 MB; not tuned
_KEPT_NUMBERS = 1 << 21


class Predicted(NamedTuple):
    """One episode as it was predicted from the episodes before.

    Attributes
    ----------
    model : str
        The model then believed.
    log_likelihood : float
        Per choice, of those that were compared.
    agreement : float
        Share of these choices that were the most probable.
    stray : float
        Share of what its choices say that went against the rest, once it was seen; see `Observed`.
    """

    model: str
    log_likelihood: float
    agreement: float
    stray: float


@dataclass(frozen=True)
class Track:
    """All that is known of a decider's policy so far. Policies are per unit of what the kind has them in, as alpha.

    Attributes
    ----------
    kind : Kind
    chosen : Chosen
        The contexts chosen so far, as far as they count in its past.
    stored : int
        Episodes so far, the warm-up's counted.
    predicted : tuple of Predicted
        One entry per episode that the policy chose.
    ahead : ndarray of shape (N, d)
        What each episode's policy was predicted to be, from the episodes before it; zeros of the first.
    added : ndarray of shape (N, k)
        So the weights of the columns that the kind's rule adds.
    policies : ndarray of shape (N, d)
        What was believed of each episode's policy once it was seen.
    own_moves : tuple of float
        How much of the way from each policy to the next is expected to be the decider's own move: the rest is error of
        the estimates. Of kinds that are not learners.
    now : Tracked or None
        None before the first episode that the policy chose.
    first : Chosen or None
        The contexts chosen before that episode.
    passed : tuple of Passed or None
        The policy's episodes as they were learned from, for whoever looks back at them with the whole log seen; None
        where that would take too much room.
    """

    kind: Kind
    chosen: Chosen
    stored: int
    predicted: tuple[Predicted, ...]
    ahead: Annotated[Matrix, Stored("N d")]
    added: Annotated[Matrix, Stored("N k")]
    policies: Annotated[Matrix, Stored("N d")]
    own_moves: tuple[float, ...]
    now: Tracked | None
    first: Chosen | None = None
    passed: tuple[Passed, ...] | None = ()

    @classmethod
    def begin(cls, kind: Kind, gram: Matrix) -> Track:
        """Before anything is seen; ``gram`` is of the contexts chosen before the log, zeros if there were none."""
        none = np.empty((0, len(gram)))
        return cls(kind, Chosen.before_the_log(gram), 0, (), none, np.empty((0, len(kind.added))), none, (), None)

    @property
    def d(self) -> int:
        """How many features there are."""
        return len(self.chosen.phi)

    # -- learning --------------------------------------------------------------------------------------------------

    def after(self, episode: Episode) -> Track:
        """One more episode.

        Of a long one the first block is enough: its policy made the others too. One that the policy did not choose only
        taught the decider.
        """
        if not episode.by_policy:
            return replace(self, chosen=episode.after.by(self.kind.past), stored=self.stored + 1)
        return self.given(self.look(episode), episode)

    def look(self, episode: Episode, *, sampled: bool = True) -> Look:
        """Look at an episode that the policy chose: at its first block; draw from it unless somebody else has."""
        before = self.kind.ridge(episode.before)
        now = _begun(self, episode) if self.now is None else self.now
        lead = leaders(self.models, now, len(self.predicted))
        speaking = [self.models.place_of(*model) for model in enumerate(lead)]
        kernel = partial(
            look_at,
            kind=self.kind,
            stray=now.stray,
            before=before,
            believed=Believed(
                self.belief(now.families, now.best),
                tuple(self.belief(now.families, place) for place in speaking),
                asked(self.models, now, lead),
            ),
            states=np.concatenate([family.mean[:, : self.observed] for family in now.families]),
            ahead=None if self.now is None or not before.phi.any() else self.next_belief,
            share=self.random_share(len(self.predicted)),
            sample=partial(picked, most=now.sample.bar, episode=len(self.predicted)) if sampled else None,
        )
        return Look(now, *episode.rows.head(kernel))

    def given(self, look: Look, episode: Episode, sample: ContextSample | None = None) -> Track:
        """The episode learned from, and the policy moved on; ``sample``: as it has grown, where the look drew none."""
        now, seen, models, number = look.now, look.seen, self.models, len(self.predicted)
        families, gained = _learned(now.families, seen.sites)
        fading = self.kind.motions.fading
        if number == 0 and fading < 1:
            # Nothing was predicted of the first episode.
            gained = np.zeros_like(gained)
        last = tuple(family.of_first(self.observed) for family in families)
        known: dict[str, Any] = {
            "families": families,
            "last": last,
            "evidence": fading * now.evidence + gained,
            "whole_evidence": now.whole_evidence + gained,
            "information": now.information + seen.sites[-1].information[: self.d, : self.d],
            "stray": seen.stray,
            "sample": now.sample.extend(look.sample) if sample is None else sample,
            "steps": len(episode.lesson.counts),
        }
        if number > now.blank:
            # Nothing could be predicted of an episode whose policy is the first that had learned anything.
            known |= {
                "compared": now.compared + len(look.hits),
                "hits": now.hits + look.hits.sum(axis=0),
                "apart": now.apart + look.hits.T.astype(np.int64) @ ~look.hits,
                "random_share": now.random_share + look.share_likelihoods,
            }
        if seen.at_random is not None and now.exploration is not None and number >= now.blank:
            known["exploration"] = now.exploration.after(seen.at_random)
        learned = changed(now, **known)
        best = preferred(models, learned, number + 1)
        believed = self.believed_of(learned, last, best)
        policy = _per_unit(self, believed, best)
        rewards = _rewarding(self, learned, best, believed, policy, episode)
        learned = changed(learned, best=best, rewards=rewards)
        own_moves = self.own_moves
        if number and not self.kind.learns:
            own_moves = (*own_moves, _own_move(self, now, learned, policy))
        told_by = models.names[now.best] if self.now is None else self.model
        if number:
            learned = without_hopeless(models, learned)
            models = models.of(learned.models)
        update = _update(self, episode)
        pairs = zip(models.motions, learned.families, strict=True)
        moved = tuple(motion.move(beliefs, now.unit, update) for motion, beliefs in pairs)
        nothing = self.now is None
        track = Track(
            self.kind,
            first=self.chosen if nothing else self.first,
            passed=_kept(self.passed, Passed.of(seen.sites, update)),
            chosen=episode.after.by(self.kind.past),
            stored=self.stored + 1,
            predicted=(
                *self.predicted,
                Predicted(told_by, float(look.likelihoods.mean()), look.agreement, float(seen.stray)),
            ),
            ahead=_with_row(self.ahead, np.zeros(self.d) if nothing else self.next_policy),
            added=_with_row(self.added, np.zeros(len(self.kind.added)) if nothing else self.next_added),
            policies=_with_row(self.policies, policy),
            own_moves=own_moves,
            now=changed(learned, families=moved),
        )
        # Nobody need name them again.
        track.__dict__["models"] = models
        return track

    # -- models ----------------------------------------------------------------------------------------------------

    @lazy
    def models(self) -> Families:
        """The models that are tracked."""
        return Families(self.kind, models_of(self.kind, self.d) if self.now is None else self.now.models)

    @property
    def observed(self) -> int:
        """Entries of a state that choices depend on: the policy, and the weights of the added columns."""
        return self.d + len(self.kind.added)

    def belief(self, families: tuple[Beliefs, ...], place: int) -> Beliefs:
        """What one model believes of the policy, and of the weights of the added columns."""
        return self.models.belief_of(families, place, self.observed)

    def believed_of(self, now: Tracked, families: tuple[Beliefs, ...], place: int) -> Beliefs:
        """What is believed of these: by one model, or by those of its family as far as evidence supports each."""
        if not self.kind.tempering:
            return self.belief(families, place)
        family, _ = self.models.model_at(place)
        return families[family].of_first(self.observed).mixed(weights(self.models, now, place))

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def seen(self) -> Tracked:
        """What has been learned; raises before the first episode."""
        if self.now is None:
            raise ValueError("nothing has been tracked yet: the policy has chosen no episode.")
        return self.now

    @property
    def model(self) -> str:
        """The model believed of what comes."""
        return self.models.names[self.believed_place]

    @property
    def believed_place(self) -> int:
        """Of a decider whose policy stays that of the model that is still, whichever was likeliest."""
        return int(np.argmax(self.models.still)) if self.kind.motions.stays else self.seen.best

    @property
    def next_policy(self) -> Vector:
        """The policy of the coming episode, shape (d,)."""
        return _per_unit(self, self.next_belief, self.believed_place)

    @property
    def next_added(self) -> Vector:
        """What is expected of the weights of the added columns, in the unit of `next_policy`. Shape (k,)."""
        believed = self.next_belief
        return believed.mean[0, self.d :] / unit_of(self.models, believed, self.believed_place)

    @lazy
    def next_belief(self) -> Beliefs:
        """What is believed of the policy of the coming episode, and of the weights of the added columns."""
        return self.believed_of(self.seen, self.seen.families, self.believed_place)

    def random_share(self, episode: int) -> float:
        """The share of an episode's choices that were made at random, by what is known now."""
        told = self.epsilon(episode)
        if told is not None:
            return told.mean
        return share_of(self.kind, no_evidence() if self.now is None else self.now.random_share)

    def epsilon(self, episode: int) -> Share | None:
        """How often the decider chose at random in an episode; None of kinds that do not, and before the first."""
        if self.now is None or self.now.exploration is None:
            return None
        return self.now.exploration.share(max(0, episode - self.now.blank))

    # -- storing ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ValueError where this cannot be the track of its kind."""
        d, episodes, kind, now = self.d, len(self.policies), self.kind, self.now
        gram_matrix("gram", self.chosen.phi, d)
        # Raises where what was chosen cannot be weighed against l2.
        kind.regularization.ridge(self.chosen)
        if {len(self.predicted), len(self.ahead), len(self.added)} != {episodes} or (now is None) != (episodes == 0):
            raise ValueError(f"{episodes} policies do not go with {len(self.predicted)} predictions")
        if now is None:
            return
        own, added, passed = d + len(kind.added), len(kind.added), self.passed
        if self.added.shape[1] != added:
            raise ValueError(f"{kind.name} adds {added} columns, not {self.added.shape[1]}")
        now.check_of(kind, episodes)
        if self.first is None or not {site.root.shape[0] for each in passed or () for site in each.sites} <= {own}:
            raise ValueError("what it passed is not of its features")
        counts = {len(each.sites) for each in passed or ()}
        if passed is not None and (len(passed) != episodes or not counts <= {len(kind.motions.families)}):
            raise ValueError(f"{episodes} episodes do not go with {len(passed)} passed")


# -- steps of an episode -----------------------------------------------------------------------------------------------


def _begun(track: Track, episode: Episode) -> Tracked:
    """What is believed before the first episode that the policy chose."""
    kind, candidates, before = track.kind, episode.rows.head(candidate_moments), track.kind.ridge(episode.before)
    unit = kind.unit(candidates)
    models = models_of(kind, len(unit))
    # Scales of whole scores are shared among the features that show.
    shared = 1 if kind.scales.per_feature else max(1, int(np.count_nonzero(candidates.shown)))
    total = kind.regularization.total(track.chosen)
    families = tuple(motion.start(unit / shared, before, total) for motion in track.models.motions)
    K, d = sum(len(family) for family in families), len(unit)
    return Tracked(
        unit=unit,
        within=candidates.within,
        shared=shared,
        models=models,
        families=families,
        last=(),
        evidence=np.zeros(K),
        whole_evidence=np.zeros(K),
        hits=np.zeros(K, dtype=np.int64),
        apart=np.zeros((K, K), dtype=np.int64),
        compared=0,
        best=models[0].index(kind.motions.families[0].early),
        blank=int(not before.phi.any()),
        information=np.zeros((d, d)),
        stray=FIRST_STRAY,
        sample=ContextSample.empty(d),
        steps=0,
        rewards=None,
        random_share=no_evidence(),
        exploration=Exploration.begin() if kind.makes_random_choices else None,
    )


def _learned(families: tuple[Beliefs, ...], sites: tuple[Site, ...]) -> tuple[tuple[Beliefs, ...], Vector]:
    """The families after the site of each, at once where it is the same, and the log-likelihood under each model."""
    if all(site is sites[0] for site in sites):
        posteriors, likelihoods = condition(families, sites[0])
        return tuple(posteriors), likelihoods
    each, likely = zip(*(family.given(site) for family, site in zip(families, sites, strict=True)), strict=True)
    return each, np.concatenate(likely)


def _with_row(rows: Matrix, row: Vector) -> Matrix:
    return np.concatenate([rows, row[None]])


def _rewarding(
    track: Track, now: Tracked, best: int, believed: Beliefs, policy: Vector, episode: Episode
) -> RewardFit | None:
    """The fit of the rewards with the policy of one more episode, as it was learned; None of kinds that learn in no way
    that is known.
    """
    if not track.kind.learns:
        return None
    d, before, (family, member) = track.d, track.kind.ridge(episode.before), track.models.model_at(best)
    taught = track.models.motions[family].taught(now.families[family][member : member + 1], d)
    if taught is not None:
        believed, policy = taught, _per_unit(track, taught, best)
    known = track.kind.regularization.total(track.chosen)
    total = np.zeros(d) if known is None else known
    if now.rewards is None:
        return RewardFit.begin(policy, before, total, now.within, now.unit)
    covariance = believed.covariance[0, :d, :d] / unit_of(track.models, believed, best) ** 2
    return now.rewards.after(policy, covariance, before, total, now.within, now.unit)


def _per_unit(track: Track, believed: Beliefs, place: int) -> Vector:
    """The policy per unit, as the belief of the model at a place has it. Shape (d,)."""
    return believed.mean[0, : track.d] / unit_of(track.models, believed, place)


def _own_move(track: Track, before: Tracked, after: Tracked, policy: Vector) -> float:
    """The entry of ``own_moves``: the decider's own move over what the estimate is expected to have changed by.

    What the episode took off the covariance of its policy is the covariance of the estimate's change, which holds the
    decider's own move and what was learned of where it had been. Only what is across the policy changes choices.
    """
    family, member = track.models.model_at(after.best)
    lengths = track.models.motions[family].lengths(len(track.predicted))
    if lengths is None:
        return 1.0
    d = len(policy)
    known = before.families[family].covariance[member, :d, :d] - after.last[family].covariance[member, :d, :d]
    S = symmetric_inverse(before.unit)
    along = S @ policy
    change = float(np.sum(S * known)) - float(along @ known @ along) / (float(policy @ along) or 1.0)
    return float(min(1.0, float(lengths[member]) * np.sqrt((d - 1) / change))) if change > 0 else 1.0


def _update(track: Track, episode: Episode) -> Update:
    """What moves the policy on after an episode."""
    past, before = track.kind.past, track.kind.ridge(episode.before)
    if past == ALL:
        lesson = episode.lesson.of_chosen(before.origin)
        assert lesson.total is not None
        return Update(episode.number + 1, before.psi, lesson.phi, lesson.total)
    # Of another past: what each episode counts for beyond the share of it that is kept.
    number = episode.number
    gains = past.weights(number + 1) - past.kept * np.append(past.weights(number), 0.0)
    d, origin, after = track.d, before.origin, episode.after
    phi, total, noise = np.zeros((d, d)), np.zeros(d), np.zeros((d, d))
    for gain, lesson in zip(gains.tolist(), after.lessons or (), strict=True):
        if gain:
            own = lesson.phi if origin is None else lesson.about(origin)
            shift = 0.0 if origin is None else lesson.count * origin
            assert lesson.total is not None
            phi, total, noise = phi + gain * own, total + gain * (lesson.total - shift), noise + gain**2 * own
    return Update(number + 1, before.psi, phi, total, past.kept, track.kind.ridge(after).psi, noise)


def _kept(passed: tuple[Passed, ...] | None, last: Passed) -> tuple[Passed, ...] | None:
    """With one more episode, as long as all of them take little room: one takes about as much as another."""
    if passed is None or (len(passed) + 1) * last.size > _KEPT_NUMBERS:
        return None
    return (*passed, last)
