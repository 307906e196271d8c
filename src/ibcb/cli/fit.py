"""`ibcb fit`: a model of a log."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import ibcb
from ibcb.cli.doubts import Strict, known_of, refuse_doubts, told_once
from ibcb.cli.errors import reports_errors
from ibcb.cli.options import (
    LOG,
    Json,
    above_zero,
    above_zero_or_auto,
    kind_of_decider,
    name_of_solver,
    reads_logs,
    share,
)
from ibcb.cli.outputs import check_output, saved
from ibcb.cli.printing import Row, print_json, print_table, print_verdict, say, say_notes, size, wrapped

if TYPE_CHECKING:
    from ibcb.report.kinds_compared import Compared

__all__ = ["EXAMPLE", "fit"]

#: what the forecast is, by the code of the note that explains it
_FORECASTS = {
    "learner-forecast": "a learner, projected forward",
    "last-policy-forecast": "the last policy",
}
#: of the table of kinds, each with its best parameter
_KINDS = {
    "kind": "kind",
    "tried": "tried",
    "likelihood": "log-likelihood",
    "predicted": "predicted",
    "outcome": "",
}
EXAMPLE = "ibcb fit clicks.csv --episode-every 1d --expert auto -o model.safetensors"


@reports_errors
@reads_logs
def fit(
    log: Annotated[Path, typer.Argument(help=f"The log to fit: {LOG}", readable=False)],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to save the model in.")] = Path("model.safetensors"),
    expert: Annotated[
        str,
        typer.Option(
            help="Kind of decider: sbucb, sbts, egreedy, softmax, topk, stationary, other; "
            "'auto' tries each and takes the one that best predicts one episode ahead.",
            metavar="KIND",
            callback=kind_of_decider,
        ),
    ] = "sbucb",
    alpha: Annotated[
        float,
        typer.Option(
            help="The decider's exploration weight. Sets the unit of the weights and changes no choice.",
            callback=above_zero,
        ),
    ] = 1.0,
    l2: Annotated[
        str,
        typer.Option(
            help="The decider's ridge parameter, as in 0.3; 'auto' finds it in the log.",
            metavar="NUMBER|auto",
            callback=above_zero_or_auto,
        ),
    ] = "auto",
    sampling_rate: Annotated[
        float,
        typer.Option(
            help="If the log is a random sample: the share of the decider's choices it holds, as in 0.1.",
            metavar="SHARE",
            callback=share,
        ),
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(
            help="With --expert topk: it draws among its K best. Default: found in the log.", min=2, metavar="K"
        ),
    ] = None,
    draws: Annotated[
        Literal["step", "episode"],
        typer.Option(help="Of sbts: whether it draws its weights at every step or once an episode; auto tries both."),
    ] = "step",
    margin: Annotated[
        float,
        typer.Option(
            help="With --expert sbts --no-forecast: lead of the chosen candidate. Sets the unit of the weights.",
            callback=above_zero,
        ),
    ] = 0.01,
    solver: Annotated[
        str,
        typer.Option(
            help="Solver of Algorithm 2: hard (exact), soft, robust, paper; "
            "'auto' takes hard, and robust where choices contradict each other.",
            metavar="SOLVER",
            callback=name_of_solver,
        ),
    ] = "auto",
    incremental: Annotated[
        bool,
        typer.Option("--incremental/--full", help="Solve Algorithm 2 episode by episode, or all episodes at once."),
    ] = True,
    prune: Annotated[
        bool, typer.Option(help="Drop the comparisons that a first solution violates, and solve again.")
    ] = False,
    forecast: Annotated[
        bool,
        typer.Option(
            "--forecast/--no-forecast", help="Track the policy and predict the next one; without, Algorithm 2 alone."
        ),
    ] = True,
    jobs: Annotated[
        int, typer.Option(help="Threads to use; the result is the same with any number.", min=1, metavar="N")
    ] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Fit on the Dask cluster with this scheduler, as in tcp://HOST:PORT.", metavar="ADDRESS"),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Read the log from disk episode by episode, and save a checkpoint after each."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted --stream fit from its checkpoint.")
    ] = False,
    strict: Strict = False,
    reading: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Recover what a decider values, and its policies, from a log.

    Saves the model, prints its weights and a verdict on how far to rely on them.
    Notes, and the warnings of ibcb validate, go to stderr.

    If you do not know the kind of decider, use --expert auto: a table then shows
    how well each kind predicts the choices one episode ahead. This reads the log
    twice. For a log larger than memory, use ibcb convert once, then --stream.
    """
    from ibcb.engine.cluster import ClusterError
    from ibcb.estimators.checkpoints import checkpoint_of, fit_in_steps
    from ibcb.io.locks import sole_writer
    from ibcb.report.kinds_compared import compared, exploration
    from ibcb.report.scanning import Validating

    kept, streamed = checkpoint_of(out), stream or resume or scheduler is not None
    check_output(out, (".safetensors",), log)
    if streamed:
        check_output(kept, ())
    if resume and not kept.exists():
        say(f"note: there is no checkpoint {kept} to resume from; the log is fitted from its beginning.")
    disk = ibcb.open_log(log, **reading)
    model = ibcb.IBCB(
        expert=expert,
        alpha=alpha,
        l2=l2 if l2 == "auto" else float(l2),
        sampling_rate=sampling_rate,
        top_k=top_k or "auto",
        draws=draws,
        margin=margin,
        solver=solver,
        incremental=incremental,
        prune=prune,
        forecast="auto" if forecast else None,
        n_jobs=jobs,
        verbose=True,
    )
    behaviour: Any = disk
    scanning, start = Validating(), time.perf_counter()
    along: dict[str, Any] = {"judge": True, "also": [scanning]}

    def accept(fitted: ibcb.IBCB) -> None:
        refuse_doubts([*told_once(known_of(behaviour, scanning), fitted), *fitted.notes_], strict)

    if streamed:
        try:
            with _cluster(scheduler) as client:
                model = fit_in_steps(model, disk, out, accept=accept, resume=resume, client=client, **along)
        except (KeyboardInterrupt, ClusterError):
            if kept.exists():
                say(f"the episodes finished so far are kept in {kept}; run the same command with --resume to continue.")
            raise
        except typer.Exit:
            say(f"the fitted model is kept in {kept}; --resume without --strict saves it.")
            raise
    else:
        with sole_writer(out):
            behaviour = disk.read()
            start = time.perf_counter()
            model.fit_along(behaviour, **along)
            accept(model)
            ibcb.save_model(model, out)
    saved(out)
    seconds = time.perf_counter() - start
    known = known_of(behaviour, scanning)
    # What became of a log that was read whole is known to the log on disk.
    since = [note for note in disk.notes if note not in known]
    notes = [*told_once((*known, *since), model), *model.notes_]
    say_notes(notes)
    verdict = _verdict(model, behaviour)
    claimed = verdict is not None and verdict.supported
    if as_json:
        print_json(
            {
                "model": str(out),
                "expert": model.expert_,
                "l2": model.l2_,
                "units": model.units_,
                "top_k": model.top_k_,
                "draws": model.draws_,
                "epsilon": model.epsilon_,
                "temperature": model.temperature_,
                "exploration_interval": _exploration(model),
                "evidence": [entry._asdict() for entry in model.evidence_],
                "solver": model.solver_,
                "seconds": seconds,
                "verdict": None if verdict is None else verdict.to_json(),
                "coef": model.coef_.tolist(),
                "intercept": model.intercept_,
                "policy_coefs": model.policy_coefs_.tolist(),
                "next_policy_coef": model.next_policy_coef_.tolist(),
                "forecast_model": model.forecast_model_,
                "forecast_note": None if model.forecast_note_ is None else model.forecast_note_.text,
                "last_policy": _interval(model, claimed=claimed),
                "unidentified_features": model.unidentified_features_,
                "diagnostics": [entry._asdict() for entry in model.diagnostics_],
                "notes": [note.to_json() for note in notes],
            }
        )
        return
    print(f"log         {log if streamed else size(behaviour)}")
    print(f"solver      {model.solver_}, {seconds:.3f} s")
    if model.evidence_:
        print(f"decider     {model.decider_.label}")
    if words := exploration(model):
        print(wrapped(f"explores    {words}", 12))
    if model.forecast_note_ is not None:
        print(f"forecast    {_FORECASTS.get(model.forecast_note_.code, model.forecast_note_)}")
    if verdict is not None:
        print_verdict(verdict)
    if not (model.coef_.any() or model.policy_coefs_.any() or model.next_policy_coef_.any()):
        print("weights     not determined: no weights explain the choices better than zeros")
        print(f"saved       {out}")
        return
    print(f"saved       {out}\n")
    if kinds := compared(model):
        print_table([_kind(each) for each in kinds], _KINDS)
        print()
    columns = {"feature": "feature", "weight": "reward weight", "policy": "next policy"}
    if not model.decider_.learns:
        # coef_ is the policy.
        del columns["weight"]
    if model.forecast_model_ is not None:
        columns |= {"last": "last policy"} | ({"interval": "90% interval"} if claimed else {})
    print_table(_weights(model), columns)
    told = f"choices reveal their direction, {model.decider_.words.length} their length"
    print()
    print(wrapped(f"Weights are scaled so that the scores of a step spread by 1: {told}.", 0))


def _verdict(model: ibcb.IBCB, log: Any) -> Any:
    """How far to rely on the model; None, with a note, where the log would have to be read again and cannot be."""
    try:
        return model.verdict(log)
    except (ValueError, OSError) as error:
        say(f"note: the model is saved, but there is no verdict on it ({error}); ibcb report gives one.")
        return None


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """A client of the Dask cluster at an address; None without one."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--scheduler needs Dask; install it: pip install 'ibcb[dask]'.") from None
    try:
        client: Any = Client(address, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise ConnectionError(f"no scheduler answers at {address} ({error}); is it running?") from None
    try:
        yield client
    finally:
        client.close(timeout=5)


def _interval(model: ibcb.IBCB, *, claimed: bool) -> dict[str, list[float | None] | None] | None:
    """The last policy's direction, with 90% intervals if they are ``claimed``; null where a weight has no bounds."""
    if model.forecast_model_ is None:
        return None
    found = model.policy_interval(direction=True)._asdict()
    ends = {name: [end if math.isfinite(end) else None for end in values.tolist()] for name, values in found.items()}
    return {name: values if claimed or name == "estimate" else None for name, values in ends.items()}


def _exploration(model: ibcb.IBCB) -> dict[str, list[float]] | None:
    """Bounds of epsilon, of every episode and the next, or of the temperature."""
    if model.epsilon_ is None and model.temperature_ is None:
        return None
    return {name: values.tolist() for name, values in model.exploration_interval()._asdict().items()}


def _kind(kind: Compared) -> Row:
    best = kind.best
    # As many digits as the notes that name the same figures.
    likelihood = f"{best.log_likelihood:{len(_KINDS['likelihood'])}.4f}"
    figures = {"tried": kind.tried, "likelihood": likelihood, "predicted": best.agreement}
    return {"kind": best.name, **figures, "outcome": kind.outcome}


def _weights(model: ibcb.IBCB) -> list[Row]:
    import numpy as np

    names = model.feature_names_in_ or tuple(str(column) for column in range(len(model.coef_)))
    reward, policy = model.direction(model.coef_), model.direction(model.next_policy_coef_)
    last = None if model.forecast_model_ is None else model.policy_interval(direction=True)
    free = set(model.unidentified_features_ or ())
    rows: list[Row] = []
    for column in np.argsort(-np.abs(reward), kind="stable").tolist():
        row: Row = {"feature": names[column], "weight": float(reward[column]), "policy": float(policy[column])}
        if last is not None:
            ends = f"{last.lower[column]:.4g} to {last.upper[column]:.4g}"
            known = "not determined" if names[column] in free else ends
            row |= {"last": float(last.estimate[column]), "interval": known}
        rows.append(row)
    return rows
