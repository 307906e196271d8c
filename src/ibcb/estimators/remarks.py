"""What a reader of a fitted model should know, as notes."""

from __future__ import annotations

from ibcb.deciders import Kind
from ibcb.inverse.solvers import InfeasibleError, SolverError
from ibcb.log.notes import Note
from ibcb.tracking import Track, learns, projects

#: names in a note
_MOST_NAMES = 12

NOTHING_LEARNED = Note(
    "nothing-learned",
    "warning",
    "coef_ is zero, because zero explains every choice so far: the log says nothing about the rewards yet. Either "
    "candidates do not differ, or steps have one candidate, or exploration alone decided.",
)


def no_exact_solution(error: SolverError, kind: Kind) -> Note:
    """Why the whole log was solved in robust mode."""
    rows = "sbts" if kind.per_unit is None else "sbucb"
    return Note(
        "no-exact-solution",
        "warning" if kind.deterministic else "info",
        f"no exact solution as {kind.label}: {reason(error)}. The whole log was solved in robust mode.",
        {"rows": rows, "l2": kind.l2, "units": kind.units},
    )


def reason(error: SolverError) -> str:
    """Why a problem has no exact solution, in a clause."""
    if not isinstance(error, InfeasibleError):
        return str(error).partition(";")[0]
    steps = list(dict.fromkeys(f"{row.episode}:{row.step}" for row in error.certificate))
    return f"steps {', '.join(steps)} (episode:step) contradict each other"


def not_tracked(place: int, error: Exception) -> Note:
    """Why there is no track."""
    return Note(
        "not-tracked",
        "warning",
        f"the policy could not be tracked beyond stored episode {place} ({error or type(error).__name__}), so "
        "forecasts are the policy that coef_ leads to; rescale the contexts to about 1.",
        {"episode": place},
    )


def policy_is_coef(kind: Kind) -> Note:
    """What coef_ means of a decider that does not learn in a known way."""
    return Note(
        "coef-is-policy",
        "info",
        f"how a decider of the kind {kind.name!r} learns is not known, so coef_ is its policy right after the log, and "
        "not rewards: its direction tells what is preferred, its length how sharply.",
        {"kind": kind.name},
    )


def how_it_moves(track: Track) -> Note:
    """What the model believed means for the forecast."""
    now = track.seen
    walks = track.models.by_family(now.hits)[0]
    missed, rival = now.compared - int(now.hits[now.best]), now.compared - int(walks.max())
    figures: dict[str, int | str] = {
        "model": track.model,
        "compared": now.compared,
        "predicted": int(now.hits[now.best]),
    }
    if not learns(track):
        return Note(
            "last-policy-forecast",
            "info",
            "from each episode of the log to the next, no learner misses fewer of the choices than the last policy "
            f"does ({missed:,} of {now.compared:,}), so the forecast is the last policy.",
            figures,
        )
    follows = "we project it forward" if projects(track) else "we project it forward by one update, no further"
    return Note(
        "learner-forecast",
        "info",
        "the decider learns as ridge regression does: projected from each episode of the log to the next, it misses "
        f"{missed:,} of {now.compared:,} choices (a policy that does not learn: {rival:,}), so {follows}.",
        figures,
    )


def few_steps(steps: int, features: int) -> tuple[Note, ...]:
    """That a log is too short for its features."""
    if steps >= features:
        return ()
    text = (
        f"{steps} steps cannot tell {features} weights apart: most of the result rests on assumptions. Use fewer "
        "features, or a longer log."
    )
    return (Note("few-steps", "warning", text, {"steps": steps, "features": features}),)


def undetermined(names: tuple[str, ...]) -> tuple[Note, ...]:
    """Which weights the choices do not determine."""
    if not names:
        return ()
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    if len(names) == 1:
        text = f"the choices do not determine the weight of feature {shown}: none depends on it, or too few do."
    else:
        text = (
            f"the choices do not determine the weights of features {shown}{more} one by one: none depends on some "
            "combination of them, or too few do. Read them together, or leave one out."
        )
    return (Note("undetermined-features", "warning", text, {"features": names}),)
