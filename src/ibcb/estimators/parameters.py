"""The parameters of an `IBCB`, each declared once: constructor, docstring, checks and command line are made from it."""

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

from ibcb.log.option import (
    COUNT,
    FLAG,
    NUMBER,
    Form,
    boolean,
    check_all,
    declared,
    number,
    one_of,
    option,
    positive,
    text,
    whole,
    whole_number,
)
from ibcb.numerics.printable import shown

#: kinds of deciders by names of the field that are none of ours
MEANT_KINDS = {
    **dict.fromkeys(["ts", "lints", "thompson", "thompson-sampling", "linear-thompson-sampling"], "sbts"),
    **dict.fromkeys(["ucb", "linucb", "lin-ucb", "upper-confidence-bound"], "sbucb"),
    **dict.fromkeys(["eps-greedy", "epsilon", "epsilon-greedy", "e-greedy", "greedy"], "egreedy"),
    **dict.fromkeys(["boltzmann", "gibbs"], "softmax"),
    **dict.fromkeys(["logit", "mnl", "conditional-logit", "logistic"], "stationary or softmax"),
    **dict.fromkeys(["fixed", "static", "constant"], "stationary"),
    **dict.fromkeys(["unknown", "any", "all"], "auto or other"),
}


def _kinds() -> Sequence[str]:
    from ibcb.deciders import experts

    return (*experts(), "auto")


def _solvers() -> Sequence[str]:
    from ibcb.inverse.solvers import SOLVERS

    return ("auto", *SOLVERS)


def _check_rate(name: str, value: Any) -> None:
    positive("it is a share of the decider's choices")(name, value)
    if value > 1:
        raise ValueError(f"{name}={value!r} must be at most 1: it is the share of the decider's choices in the log.")


def _check_forecast(name: str, value: Any) -> None:
    if value not in ("auto", None):
        raise ValueError(f"{name}={shown(value)} is unknown; choose one of 'auto', None.")


def _auto_or(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: text if text == "auto" else parse(text)


def _forecast(given: bool) -> str | None:
    return "auto" if given else None


@dataclass(kw_only=True, eq=False, repr=False)
class Parameters:
    """What a user may say about how to fit.

    Attributes
    ----------
    expert : {"sbucb", "sbts", "egreedy", "softmax", "topk", "stationary", "other", "auto"}
        Kind of decider: sbucb, sbts, egreedy, softmax, topk, stationary, other; auto tries each and takes the one that
        best predicts one episode ahead.

        Upper confidence bounds, Thompson sampling, the best but at random now and then, or a softmax of the scores.
        Three more kinds are tracked without assuming how they learn, and some of their choices may go astray: "topk"
        draws from its best candidates, "stationary" never learns, "other" changes in an unknown way. See
        `ibcb.tracking.selection`.
    l2 : float or "auto"
        Ridge parameter of the decider, as in 0.3; auto finds it in the log.

        The lambda of ridge regression, in the units of the log. "auto": whichever of 0.1 to 10 predicts the log best,
        in units of the features themselves: for a decider that brings features to one scale, or to mean 0 and deviation
        1. Then units do not matter. If features seem to be in different units, a given number is compared with these,
        and replaced if one of them predicts the log clearly better; ``notes_`` says so.
    alpha : float
        Exploration weight of the decider. Sets the unit of the weights and changes no choice.

        Of an SBUCB or SBTS decider. Choices reveal weights only per unit of alpha.
    sampling_rate : float
        If the log is a random sample: the share of the decider's choices that it has, as in 0.1.

        The decider's Gram matrix grew 1 / sampling_rate times as fast as the log shows. It acts as a factor of l2, so
        l2="auto" does not need it; with a given l2 and alpha it makes policies and `to_policy` the decider's own. For
        "sbts", ``notes_`` says if a smaller share explains the log clearly better.
    top_k : int or "auto"
        Of topk: it draws among its K best candidates. Default: found in the log.

        "auto": 2, 3 or 4, whichever predicts the log best.
    draws : {"step", "episode"}
        Of sbts: whether it draws its weights at every step or once an episode. With expert auto both are tried.
    margin : float
        Of sbts without forecast: the lead of the chosen candidate. Sets the unit of the weights.

        The paper's epsilon, of SBTS rows ``(s_o - s_c)' G theta <= -margin``: scales ``coef_`` as alpha does for SBUCB.
    forecast : {"auto", None}
        Track the policy and predict the next one; without, Algorithm 2 alone.

        "auto": track the policy, and let `predict` use the one right after the log, see `forecast`. None: `predict`
        uses what ridge regression makes of ``coef_``. Kinds that are only tracked are tracked in any case.
    solver : {"auto", "hard", "soft", "robust", "paper"}
        Solver of Algorithm 2: hard (exact), soft, robust, paper; auto takes hard, and robust where choices contradict
        each other.

        "hard": exact projection; raises `InfeasibleError`, naming the contradicting steps, where the choices have no
        common explanation. "soft": squared hinge. "robust": Huber hinge. "paper": OSQP at the paper's tolerances.
        "auto": "hard" while every episode is feasible, otherwise "robust" for the whole log; ``solver_`` and ``notes_``
        say which. Kinds that are only tracked: "robust".
    incremental : bool
        Solve Algorithm 2 episode by episode, or all episodes at once.

        True: one problem per episode, centred on the last solution (Algorithm 2). False: one problem over all.
    prune : bool
        Drop the comparisons that a first solution violates, and solve again.

        Algorithm 3, for deciders that do not always take the best candidate. No effect on "hard", which violates none.
    penalty : float
        Weight C of the hinge in "soft" and "robust"; a pure number, see `ibcb.inverse.solvers.hinge`.
    bend : float
        Violation, in typical bonuses, beyond which a row pulls no harder ("robust").
    tolerance : float
        Of OSQP at its first attempt ("paper"); the paper uses 0.3 for SBTS on MovieLens.
    prior_gram : array of shape (d, d), optional
        S'S of all contexts chosen before the log begins, for a log that starts in the middle of the decider's life.
    n_jobs : int, optional
        Threads to use; the result is the same to the bit with any number.

        They share the blocks of an episode (of up to 4,096 steps). -1: one per core, None: one.
    verbose : bool
        Show a progress bar on a terminal, if fitting takes longer than a second.
    """

    expert: str = option("sbucb", text("KIND"), one_of(_kinds, MEANT_KINDS), heading="Decider", usual=True)
    l2: float | str = option(
        *("auto", Form("NUMBER|auto", _auto_or(number))),
        positive("without it Psi has no inverse before the first update", unless=["auto"]),
        usual=True,
    )
    alpha: float = option(1.0, NUMBER, positive("it is the scale of theta"))
    sampling_rate: float = option(1.0, NUMBER, _check_rate)
    top_k: int | str = option(
        "auto", Form("K", _auto_or(whole_number)), whole(2, "it counts the candidates drawn from", unless=["auto"])
    )
    draws: str = option("step", text("step|episode"), one_of(lambda: ("step", "episode")))
    margin: float = option(0.01, NUMBER, positive("with 0 theta = 0 would explain every choice"))
    forecast: InitVar[str | None] = option(
        "auto", Form("", _forecast), _check_forecast, flags="--forecast/--no-forecast", heading="Algorithm 2"
    )
    solver: str = option("auto", text("NAME"), one_of(_solvers))
    incremental: bool = option(True, FLAG, boolean, flags="--incremental/--full")
    prune: bool = option(False, FLAG, boolean, flags="--prune/--no-prune")
    penalty: float = option(40.0, None, positive("it weighs the violated rows"))
    bend: float = option(0.2, None, positive("it is a width"))
    tolerance: float = option(8e-2, None, positive("OSQP stops when it is met"))
    prior_gram: Any = option(None)
    n_jobs: int | None = option(
        *(None, COUNT, whole(1, "it counts threads, -1 takes one per core", unless=[None, -1])),
        flags="--jobs",
        heading="Large logs",
    )
    verbose: bool = option(False, None, boolean)

    def __post_init__(self, forecast: str | None) -> None:
        # A method of the estimator has the parameter's name.
        self.forecasts = forecast

    def _check_parameters(self) -> None:
        """Raise an error that names every parameter with a value that it cannot have."""
        check_all(PARAMETERS, lambda name: getattr(self, "forecasts" if name == "forecast" else name))


# As `get_type_hints` is to see it; and whatever stands beside this class may have a method of that name.
Parameters.__init__.__annotations__["forecast"] = str | None
del Parameters.forecast  # type: ignore[attr-defined]
PARAMETERS = declared(Parameters)
#: those that the command line takes
FITTING = tuple(each for each in PARAMETERS if each.form is not None)
