"""The tracker: what is believed of a decider's policy, episode by episode, by every model of how it moves.

A `Track` is all that is known so far. It is never changed: `Track.after` gives the next one. An episode is taken in
three steps: the models' predictions are compared with its choices, they learn from what its choices say of the policy
(`ibcb.deciders`), and the policy moves on by the update after it (`ibcb.tracking.motions`).

The model with the highest evidence is believed, unless others predicted significantly more of the choices: then the
best of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from ibcb.deciders import FIRST_STRAY, Believed, Kind
from ibcb.engine import Rows, candidate_moments, episodes
from ibcb.inverse.constraints import Experience, experienced
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.numerics.gaussians import Beliefs, symmetric_inverse
from ibcb.numerics.lazy import lazy
from ibcb.numerics.ridge import Chosen, Ridge
from ibcb.tracking.calibration import (
    Exploration,
    Share,
    no_evidence,
    share_of,
)
from ibcb.tracking.context_sample import ContextSample, picked
from ibcb.tracking.look import Look, Tracked, look_at
from ibcb.tracking.motions import Learner, Motion, Reverting, Sampler, Update, Walk, models_of, motions_of
from ibcb.tracking.rewards import RewardFit, Rewards

__all__ = ["Model", "Predicted", "Track", "track_log", "update_after"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: alpha is not believed to be less, with a prior deviation of 2: policies are divided by it, and a decider whose
#: choices deny that it explores would have weights beyond all bounds; not tuned
LEAST_ALPHA = 0.01
_LOG_ROOT = 0.5 * np.log(2 * np.pi)
#: standard errors of a sign test at which a model that is less likely, but predicts more, is believed instead
_SIGNIFICANT = 2.0
#: information below this share of the largest, features brought to one scale, is rounding; not tuned
_NOTHING = 1e-9
#: names of models that stand still, or only grow longer and shorter
_STILL = ("still", "walk(q=0)", "settling(q=0)")
#: share of a walk's errors that a learner may make and be projected further than one update (ML-100K, docs/results.md)
_SPARED_ERRORS = 0.75


class Model(NamedTuple):
    """A model: which family, and which of its members."""

    family: int
    member: int


class Predicted(NamedTuple):
    """One episode as it was foreseen from the episodes before.

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
    """All that is known of a decider's policy so far. Policies are per unit alpha.

    Attributes
    ----------
    kind : Kind
    chosen : Chosen
        The contexts chosen so far.
    stored : int
        Episodes so far, the warm-up's counted.
    predicted : tuple of Predicted
        One entry per episode that the policy chose.
    ahead : ndarray of shape (N, d)
        What each episode's policy was predicted to be, from the episodes before it; zeros of the first.
    policies : ndarray of shape (N, d)
        What was believed of each episode's policy once it was seen.
    own_moves : tuple of float
        How much of the way from each policy to the next is expected to be the decider's own move: the rest is error of
        the estimates. Of kinds that are not learners.
    now : Tracked or None
        None before the first episode that the policy chose.
    """

    kind: Kind
    chosen: Chosen
    stored: int
    predicted: tuple[Predicted, ...]
    ahead: Annotated[Matrix, "N d"]
    policies: Annotated[Matrix, "N d"]
    own_moves: tuple[float, ...]
    now: Tracked | None

    @classmethod
    def begin(cls, kind: Kind, gram: Matrix) -> Track:
        """Before anything is seen; ``gram`` is of the contexts chosen before the log, zeros if there were none."""
        none = np.empty((0, len(gram)))
        return cls(kind, Chosen.before_the_log(gram), 0, (), none, none, (), None)

    @property
    def d(self) -> int:
        """How many features there are."""
        return len(self.chosen.phi)

    # -- learning --------------------------------------------------------------------------------------------------

    def after(self, rows: Rows | None, before: Ridge, lesson: Experience) -> Track:
        """One more episode.

        Of a long episode the first block is enough: its policy made the others too.

        Parameters
        ----------
        rows : Rows or None
            The episode's; None if the policy did not choose it: then it only taught the decider.
        before : Ridge
            Of all choices before it.
        lesson : Experience
            What it teaches.
        """
        if rows is None:
            chosen = self.chosen.and_then(len(lesson.chosen), lesson.total, lesson.phi)
            return replace(self, chosen=chosen, stored=self.stored + 1)
        return self.given(self.look(rows, before), before, lesson)

    def look(self, rows: Rows, before: Ridge) -> Look:
        """Look at an episode that the policy chose: at its first block."""
        now = self._begun(rows, before) if self.now is None else self.now
        kernel = partial(
            look_at,
            now=now,
            kind=self.kind,
            before=before,
            believed=self._believed(now),
            states=self._states(now.families),
            ahead=None if self.now is None or not before.phi.any() else self.next_belief,
            share=self.random_share(len(self.predicted)),
            sample=partial(picked, most=now.sample.bar, episode=len(self.predicted)),
        )
        return rows.head(kernel)

    def given(self, look: Look, before: Ridge, lesson: Experience) -> Track:
        """The episode learned from, and the policy moved on."""
        now, hits, seen, number = look.now, look.hits, look.seen, len(self.predicted)
        chosen = self.chosen.and_then(len(lesson.chosen), lesson.total, lesson.phi)
        families, likelihoods = zip(
            *(family.given(site) for family, site in zip(now.families, seen.sites, strict=True)), strict=True
        )
        gained, fading = np.concatenate(likelihoods), self.kind.motions.fading
        if number == 0 and fading < 1:
            # Nothing was predicted of the first episode.
            gained = np.zeros_like(gained)
        believed = self.names[now.best] if self.now is None else self.model
        predicted = Predicted(believed, float(look.likelihoods.mean()), look.agreement, float(seen.stray))
        last = tuple(family.of_first(self._observed) for family in families)
        learned = replace(
            now,
            families=families,
            last=last,
            evidence=fading * now.evidence + gained,
            whole_evidence=now.whole_evidence + gained,
            information=now.information + seen.sites[-1].information[: self.d, : self.d],
            stray=seen.stray,
            sample=now.sample.extend(look.sample),
            steps=len(lesson.counts),
        )
        if number > now.blank:
            # Nothing could be predicted of an episode whose policy is the first that had learned anything.
            learned = replace(
                learned,
                compared=now.compared + len(hits),
                hits=now.hits + hits.sum(axis=0),
                apart=now.apart + hits.T.astype(np.int64) @ ~hits,
                random_share=now.random_share + look.share_likelihoods,
            )
        if seen.at_random is not None and now.exploration is not None and number >= now.blank:
            learned = replace(learned, exploration=now.exploration.after(seen.at_random))
        learned = replace(learned, best=self._choose(learned, number + 1))
        policy = self._policy(self.believed_of(learned, last, learned.best), learned.best)
        learned = replace(learned, rewards=self._rewarding(learned, before))
        own_moves = self.own_moves
        if number and not self.kind.learns:
            own_moves = (*own_moves, self._own_move(now, learned, policy))
        if number:
            learned = self._hopeful(learned)
        update = update_after(number, before, lesson)
        pairs = zip(motions_of(self.kind, learned.models), learned.families, strict=True)
        moved = tuple(motion.move(beliefs, now.unit, update) for motion, beliefs in pairs)
        return replace(
            self,
            chosen=chosen,
            stored=self.stored + 1,
            predicted=(*self.predicted, predicted),
            ahead=np.vstack([self.ahead, np.zeros(self.d) if self.now is None else self.next_policy]),
            policies=np.vstack([self.policies, policy]),
            own_moves=own_moves,
            now=replace(learned, families=moved),
        )

    def _begun(self, rows: Rows, before: Ridge) -> Tracked:
        candidates = rows.head(candidate_moments)
        unit = self.kind.unit(candidates)
        models = models_of(self.kind, len(unit))
        # Scales of whole scores are shared among the features that show.
        shared = 1 if self.kind.scales.per_feature else max(1, int(np.count_nonzero(candidates.shown)))
        families = tuple(motion.start(unit / shared, before, self._total) for motion in self.motions)
        K, d = sum(len(family) for family in families), len(unit)
        return Tracked(
            unit=unit,
            within=candidates.within,
            models=models,
            families=families,
            last=(),
            evidence=np.zeros(K),
            whole_evidence=np.zeros(K),
            hits=np.zeros(K, dtype=np.int64),
            apart=np.zeros((K, K), dtype=np.int64),
            compared=0,
            best=models[0].index(self.kind.motions.families[0].early),
            blank=int(not before.phi.any()),
            information=np.zeros((d, d)),
            stray=FIRST_STRAY,
            sample=ContextSample.empty(d),
            steps=0,
            rewards=None,
            random_share=no_evidence(),
            exploration=Exploration.begin() if self.kind.explores_at_random else None,
        )

    @property
    def _total(self) -> Vector | None:
        """Sum of the contexts chosen so far, measured from the decider's origin; None where it is not known."""
        origin, total = self.kind.regularization.origin, self.chosen.total
        return total if origin is None or total is None else total - self.chosen.count * origin

    def _rewarding(self, now: Tracked, before: Ridge) -> RewardFit | None:
        """The fit of the rewards with the policy of one more episode; of one that was drawn, what it was drawn from."""
        if not self.kind.learns:
            return None
        believed = self.believed_of(now, now.last, now.best)
        family, member = self.model_at(now.best)
        motion = self.motions[family]
        if isinstance(motion, Sampler):
            believed = motion.taught(now.families[family][member : member + 1], self.d)
        policy, unit = self._policy(believed, now.best), self._alpha(believed, now.best)
        total = np.zeros(self.d) if self._total is None else self._total
        second = symmetric_inverse(now.unit)
        if now.rewards is None:
            return RewardFit.begin(policy, before, total, now.within, second)
        covariance = believed.covariance[0, : self.d, : self.d] / unit**2
        return now.rewards.after(policy, covariance, before, total, now.within, second)

    def _hopeful(self, now: Tracked) -> Tracked:
        """Without the models that are much less likely than the best of their family: they would not come back."""
        kept = [np.flatnonzero(each >= each.max() - self.kind.hopeless) for each in self.by_family(now.evidence)]
        if sum(len(each) for each in kept) == len(now.evidence):
            return now
        starts = np.cumsum([0, *(len(each) for each in now.models[:-1])])
        places = np.concatenate([start + each for start, each in zip(starts, kept, strict=True)])
        return replace(
            now,
            models=tuple(tuple(own[place] for place in each) for own, each in zip(now.models, kept, strict=True)),
            families=tuple(family[each] for family, each in zip(now.families, kept, strict=True)),
            last=tuple(family[each] for family, each in zip(now.last, kept, strict=True)),
            evidence=now.evidence[places],
            whole_evidence=now.whole_evidence[places],
            hits=now.hits[places],
            apart=now.apart[np.ix_(places, places)],
            best=int(np.searchsorted(places, now.best)),
        )

    def _believed(self, now: Tracked) -> Believed:
        evidence = self.by_family(now.evidence)
        leaders = [int(np.argmax(each)) for each in evidence]
        if len(self.predicted) < 2:
            # One episode tells no model from another.
            leaders = [
                own.index(family.early) for own, family in zip(now.models, self.kind.motions.families, strict=True)
            ]
        return Believed(
            self.belief(now.families, now.best),
            tuple(
                family[place : place + 1].of_first(self._observed)
                for family, place in zip(now.families, leaders, strict=True)
            ),
            tuple(float(each[place]) for each, place in zip(evidence, leaders, strict=True)),
        )

    def _choose(self, now: Tracked, episodes: int) -> int:
        if self.kind.learns and now.compared == 0:
            # Nothing has been predicted yet. A learner at least knows what the choices so far can have taught.
            return self._place(len(self.motions) - 1, int(np.argmax(self.by_family(now.evidence)[-1])))
        if not self.kind.compares_predictions:
            return int(np.argmax(now.evidence)) if episodes > 1 else now.best
        best = int(np.argmax(now.evidence))
        # A sign test of every model against the likeliest, on the steps that only one of the two predicted.
        lead = now.hits - now.hits[best]
        hopeful = np.concatenate([each >= each.max() - self.kind.hopeless for each in self.by_family(now.evidence)])
        better = hopeful & (lead > _SIGNIFICANT * np.sqrt(now.apart[best] + now.apart[:, best]))
        return int(np.argmax(np.where(better, now.hits, -1))) if better.any() else best

    def _own_move(self, before: Tracked, after: Tracked, policy: Vector) -> float:
        """The entry of ``own_moves``: the decider's own move over what the estimate is expected to have changed by.

        What the episode took off the covariance of its policy is the covariance of the estimate's change, which holds
        the decider's own move and what was learned of where it had been. Only what is across the policy changes
        choices.
        """
        family, member = self.model_at(after.best)
        motion = self.motions[family]
        if not isinstance(motion, Walk | Reverting):
            return 1.0
        d = len(policy)
        known = before.families[family].covariance[member, :d, :d] - after.last[family].covariance[member, :d, :d]
        S = symmetric_inverse(before.unit)
        along = S @ policy
        change = float(np.sum(S * known)) - float(along @ known @ along) / (float(policy @ along) or 1.0)
        move = float(motion.lengths(len(self.predicted))[member])
        return float(min(1.0, move * np.sqrt((d - 1) / change))) if change > 0 else 1.0

    # -- models ----------------------------------------------------------------------------------------------------

    @lazy
    def motions(self) -> tuple[Motion, ...]:
        """The families of models that are tracked."""
        return motions_of(self.kind, models_of(self.kind, self.d) if self.now is None else self.now.models)

    @lazy
    def names(self) -> tuple[str, ...]:
        """Of all models that are tracked."""
        return tuple(name for motion in self.motions for name in motion.names)

    @property
    def _observed(self) -> int:
        """Entries of a state that choices depend on: the policy, and alpha where it is tracked."""
        return self.d + int(self.kind.scales.alpha > 0)

    def _states(self, families: tuple[Beliefs, ...]) -> Matrix:
        """What all models expect of the policy, and of alpha where it is tracked."""
        return np.concatenate([family.mean[:, : self._observed] for family in families])

    def belief(self, families: tuple[Beliefs, ...], place: int) -> Beliefs:
        """What one model believes of the policy, and of alpha where it is tracked."""
        family, member = self.model_at(place)
        return families[family][member : member + 1].of_first(self._observed)

    def believed_of(self, now: Tracked, families: tuple[Beliefs, ...], place: int) -> Beliefs:
        """What is believed of the policy: by one model, or by those of its family as far as evidence supports each."""
        family, _ = self.model_at(place)
        return families[family].of_first(self._observed).mixed(self.weights(now, place))

    def weights(self, now: Tracked, place: int) -> Vector:
        """How far each model in the family of the one at ``place`` is believed; they add up to 1."""
        family, member = self.model_at(place)
        evidence = self.by_family(now.evidence)[family]
        if not (self.kind.tempering and self.kind.moves):
            alone = np.zeros(len(evidence))
            alone[member] = 1.0
            return alone
        told = max(1, int(np.count_nonzero(now.within.diagonal())))
        likely = np.exp((evidence - evidence.max()) / (self.kind.tempering * told))
        found: Vector = likely / likely.sum()
        return found

    def by_family(self, values: Vector) -> list[Vector]:
        """Values of all models by family."""
        ends = np.cumsum([len(motion.names) for motion in self.motions]).tolist()
        return [values[start:end] for start, end in pairwise([0, *ends])]

    def _place(self, family: int, member: int) -> int:
        return sum(len(motion.names) for motion in self.motions[:family]) + member

    def model_at(self, place: int) -> Model:
        """The model at a place, counted through all families."""
        for family, motion in enumerate(self.motions):
            if place < len(motion.names):
                return Model(family, place)
            place -= len(motion.names)
        raise IndexError(place)

    def units(self, family: int) -> Vector:
        """Alpha as each model of a family has it, at the scale of its state: 1, but of samplers."""
        motion = self.motions[family]
        return np.array(motion.spread) if isinstance(motion, Sampler) else np.ones(len(motion.names))

    def _alpha(self, believed: Beliefs, place: int) -> float:
        """The unit of a state's policy: what is expected of alpha, which is above 0 however little is known of it."""
        if not self.kind.scales.alpha:
            family, member = self.model_at(place)
            return float(self.units(family)[member])
        mean, deviation = float(believed.mean[0, -1]), float(np.sqrt(believed.covariance[0, -1, -1]))
        if deviation > 0:
            z = mean / deviation
            mean += deviation * float(np.exp(-0.5 * z * z - _LOG_ROOT - log_ndtr(z)))
        return max(mean, LEAST_ALPHA)

    def _policy(self, believed: Beliefs, place: int) -> Vector:
        """Per unit of alpha, as the belief of the model at a place has it."""
        policy: Vector = believed.mean[0, : self.d] / self._alpha(believed, place)
        return policy

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
        return self.names[self.believed_place]

    @property
    def believed_place(self) -> int:
        """Of a decider whose policy stays that of the model that is still, whichever was likeliest."""
        return self.seen.best if self.kind.moves else self.names.index("still")

    @property
    def believed_policies(self) -> Matrix:
        """The policy of every episode, shape (N, d): of a decider that does not move one and the same."""
        return self.policies if self.kind.moves else np.tile(self.next_policy, (len(self.policies), 1))

    @property
    def learns(self) -> bool:
        """Whether the model believed is a learner, so that later policies differ from the last."""
        return isinstance(self.motions[self.model_at(self.seen.best).family], Learner)

    @property
    def evidence_of_moves(self) -> float:
        """Log-likelihood of all episodes by which the best model beats the one that stands still; infinite where that
        was dropped.
        """
        return float(self.seen.whole_evidence.max()) - self._likeliest(lambda name, _: name in _STILL)

    @property
    def evidence_of_settling(self) -> tuple[float, float]:
        """Log-likelihood of all episodes by which the likeliest motion that settles beats the one that stands still,
        and those that do not settle.
        """
        settles = self._likeliest(lambda name, motion: motion.settles and name not in _STILL)
        still = self._likeliest(lambda name, _: name in _STILL)
        restless = self._likeliest(lambda name, motion: not motion.settles and name not in _STILL)
        return settles - still, settles - restless

    def _likeliest(self, asked: Callable[[str, Motion], bool]) -> float:
        """Log-likelihood of all episodes under the likeliest of some models, asked for by name and motion; minus
        infinity where there is none.
        """
        every = [(name, motion) for motion in self.motions for name in motion.names]
        found = [value for value, each in zip(self.seen.whole_evidence, every, strict=True) if asked(*each)]
        return float(max(found, default=-np.inf))

    @property
    def projects(self) -> bool:
        """Whether it is believed further than one update: of errorless choices, only a learner that is spared a good
        part of the errors of the best walk.
        """
        now = self.seen
        missed = now.compared - now.hits
        walks = len(self.motions[0].names)
        spared = now.compared == 0 or self.kind.draws or missed[now.best] <= _SPARED_ERRORS * missed[:walks].min()
        return self.learns and bool(spared)

    @property
    def next_policy(self) -> Vector:
        """The policy of the coming episode, shape (d,)."""
        return self._policy(self.next_belief, self.believed_place)

    @property
    def next_belief(self) -> Beliefs:
        """What is believed of the policy of the coming episode, and of alpha where it is tracked."""
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

    @property
    def next_beliefs(self) -> tuple[Beliefs, Vector]:
        """What the models of the family believed say of the coming episode's policy, and the evidence for each; at the
        scale of their states.
        """
        family = self.model_at(self.believed_place).family
        return self.seen.families[family].of_first(self.d), self.by_family(self.seen.evidence)[family]

    def rewards(self) -> Rewards | None:
        """theta and c per unit alpha that explain the policies so far; c is measured from the decider's origin.

        None of kinds of which it is not known how they learn.
        """
        fit = self.seen.rewards
        return None if fit is None else fit.solve(self._unit_doubt)

    @property
    def _unit_doubt(self) -> float:
        """Share by which the last policy may be too long or too short: by which its unit, alpha, may be mistaken."""
        now, d = self.seen, self.d
        believed = self.belief(now.last, now.best)
        C, p = believed.covariance[0], believed.mean[0, :d]
        if self.kind.scales.alpha:
            return float(np.sqrt(C[d, d])) / self._alpha(believed, now.best)
        along = now.within @ p
        size = float(p @ along)
        return float(np.sqrt(max(along @ C[:d, :d] @ along, 0.0))) / size if size > 0 else 0.0

    @lazy
    def blind(self) -> tuple[Vector, Matrix]:
        """Units that make features alike, and directions, in these units, of which all episodes told nothing.

        Shapes (d,) and (d, k), the latter orthonormal.
        """
        information = self.seen.information
        unit = np.sqrt(information.diagonal())
        unit[unit == 0] = 1.0
        values, V = np.linalg.eigh(information / unit / unit[:, None])
        return unit, V[:, values <= _NOTHING * max(values[-1], np.finfo(np.float64).tiny)]

    def current_rewards(self) -> tuple[Vector, float] | None:
        """theta and c per unit alpha, as the learner believed has them now; None where no learner is believed.

        Where rewards are not linear these are what it earns of late, and project it forward better than `rewards`.
        c is measured from the decider's origin.
        """
        family, member = self.model_at(self.seen.best)
        motion, beliefs = self.motions[family], self.seen.families[family]
        if not isinstance(motion, Learner):
            return None
        theta, c = motion.rewards(beliefs, member)
        alpha = self._alpha(self.belief(self.seen.families, self.seen.best), self.seen.best)
        return theta / alpha, c / alpha


def update_after(episode: int, before: Ridge, lesson: Experience) -> Update:
    """What moves a policy on after an episode, counted from 0."""
    taught = lesson.of_chosen(before.origin)
    assert taught.total is not None
    return Update(episode + 1, before.psi, taught.phi, taught.total)


def track_log(log: BehaviorLog | DiskLog, kind: Kind, prior_gram: Matrix | None = None) -> Track:
    """The track of a kind through a whole log, without solving anything."""
    d = log.n_features
    track = Track.begin(kind, np.zeros((d, d)) if prior_gram is None else prior_gram)
    for by_policy, rows in episodes(log):
        lesson = Experience.join(list(rows.map(experienced)))
        track = track.after(rows if by_policy else None, kind.regularization.ridge(track.chosen), lesson)
    return track
