"""`ibcb fit`: a model of a log."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import ibcb
from ibcb.cli.options import HOW_TO_READ, LogPath, Result, verb
from ibcb.cli.printing import Row, known_of, print_facts, print_table, refuse_doubts, say, say_notes, size, wrapped
from ibcb.cli.running import check_input, check_output, saved
from ibcb.estimators.parameters import FITTING
from ibcb.log.option import FLAG, PATH, option, text

if TYPE_CHECKING:
    from ibcb.report.sections import Compared

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
#: attributes of a model that are printed as JSON, without the last sign of their names
_FIGURES = (
    *("expert", "l2", "units", "top_k", "draws", "epsilon", "temperature", "solver", "coef", "intercept"),
    *("policy_coefs", "next_policy_coef", "forecast_model", "unidentified_features"),
)


@verb(fitting=FITTING, reading=HOW_TO_READ)
def fit(
    log: LogPath,
    *,
    out: Path = option(Path("model.safetensors"), PATH, flags="-o --out"),
    strict: bool = option(False, FLAG),
    stream: bool = option(False, FLAG, heading="Large logs"),
    resume: bool = option(False, FLAG),
    scheduler: str | None = option(None, text("ADDRESS")),
    fitting: dict[str, Any],
    reading: dict[str, Any],
) -> Result:
    """Recover what a decider values, and its policies, from a log.

    Saves the model, prints its weights and a verdict on how far to rely on them.
    Notes, and the warnings of ibcb validate, go to stderr.

    If you do not know the kind of decider, use --expert auto: a table then shows how
    well each kind predicts the choices one episode ahead. This reads the log twice.
    For a log larger than memory, use ibcb convert once, then --stream.

    Example: ibcb fit clicks.csv --episode-every 1d --expert auto -o model.safetensors

    Parameters
    ----------
    out : path
        File to save the model in.
    strict : bool
        Treat warnings as errors: exit with code 1 and save nothing.
    stream : bool
        Read the log from disk episode by episode, and save a checkpoint after each.
    resume : bool
        Continue an interrupted --stream fit from its checkpoint.
    scheduler : str
        Fit on the Dask cluster with this scheduler, as in tcp://HOST:PORT.
    """
    from ibcb.engine.cluster import ClusterError
    from ibcb.estimators.models import checkpoint_of, fit_in_steps
    from ibcb.io.files import sole_writer
    from ibcb.report.facts import Validating

    kept, streamed = checkpoint_of(out), stream or resume or scheduler is not None
    check_input(log, "a log")
    check_output(out, (".safetensors",), log)
    if streamed:
        check_output(kept, ())
    if resume and not kept.exists():
        say(f"note: there is no checkpoint {kept} to resume from; the log is fitted from its beginning.")
    disk = ibcb.open_log(log, **reading)
    model = ibcb.IBCB(**fitting, verbose=True)
    behaviour: Any = disk
    scanning, start = Validating(), time.perf_counter()
    along: dict[str, Any] = {"judge": True, "also": [scanning]}

    def accept(fitted: ibcb.IBCB) -> None:
        refuse_doubts([*known_of(behaviour, scanning, fitted), *fitted.notes_], strict)

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
    known = known_of(behaviour, scanning, model)
    # What became of a log that was read whole is known to the log on disk.
    notes = [*known, *(note for note in disk.notes if note not in known), *model.notes_]
    say_notes(notes)
    verdict = _verdict(model, behaviour)
    claimed = verdict is not None and verdict.supported
    facts = {
        "log": log if streamed else size(behaviour),
        "solver": f"{model.solver_}, {seconds:.3f} s",
        "decider": _decider(model) if model.evidence_ else "",
    }
    told = {"model": str(out), **_data(model, claimed), "seconds": seconds, "verdict": verdict, "notes": notes}
    return Result(told, lambda: _show(model, facts, verdict, claimed, out))


def _data(model: ibcb.IBCB, claimed: bool) -> dict[str, Any]:
    """What is printed as JSON of a model, with its intervals if they are ``claimed``."""
    explores, note = model.epsilon_ is not None or model.temperature_ is not None, model.forecast_note_
    return {name: getattr(model, f"{name}_") for name in _FIGURES} | {
        "evidence": [each._asdict() for each in model.evidence_],
        "rules": [each._asdict() | {"checks": [check._asdict() for check in each.checks]} for each in model.rules_],
        "motions": [{"name": each.name, "weight": each.weight} for each in model.motions_],
        "diagnostics": [each._asdict() for each in model.diagnostics_],
        # Of epsilon in every episode and the next, or of the temperature.
        "exploration_interval": model.exploration_interval()._asdict() if explores else None,
        "forecast_note": None if note is None else note.text,
        "last_policy": _interval(model, claimed=claimed),
    }


def _show(model: ibcb.IBCB, facts: dict[str, Any], verdict: Any, claimed: bool, out: Path) -> None:
    """What is printed for people: facts, the kinds compared, and the weights."""
    from ibcb.report.sections import compared, exploration

    note = model.forecast_note_
    forecast = note and _FORECASTS.get(note.code, note)
    print_facts(facts | {"explores": exploration(model), "forecast": forecast}, verdict)
    if not (model.coef_.any() or model.policy_coefs_.any() or model.next_policy_coef_.any()):
        print_facts({"weights": "not determined: no weights explain the choices better than zeros", "saved": out})
        return
    print_facts({"saved": out})
    print()
    if kinds := compared(model):
        print_table([_kind(each) for each in kinds], _KINDS)
        print()
    # Of a decider that does not learn, coef_ is the policy.
    rewards = "reward weight" if model.expert_ == model.decider_.name else "weight"
    columns = {"feature": "feature"} | ({"weight": rewards} if model.decider_.learns else {})
    columns |= {"policy": "next policy"}
    if model.forecast_model_ is not None:
        columns |= {"last": "last policy"} | ({"interval": "90% interval"} if claimed else {})
    print_table(_weights(model), columns)
    length = f"choices reveal their direction, {model.decider_.words.length} their length"
    print()
    print(wrapped(f"Weights are scaled so that the scores of a step spread by 1: {length}.", 0))


def _decider(model: ibcb.IBCB) -> str:
    """What it is, or that the log does not tell."""
    label = model.decider_.label
    return label if model.expert_ == model.decider_.name else f"{model.expert_}, followed as {label}"


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
    ends = model.policy_interval(direction=True)._asdict()
    told = {name: values for name, values in ends.items() if claimed or name == "estimate"}
    plain = {name: [each if math.isfinite(each) else None for each in values.tolist()] for name, values in told.items()}
    return dict.fromkeys(ends) | plain


def _kind(kind: Compared) -> Row:
    best = kind.best
    # As many digits as the notes that name the same figures.
    likelihood = f"{best.log_likelihood:{len(_KINDS['likelihood'])}.4f}"
    figures = {"tried": kind.tried, "likelihood": likelihood, "predicted": best.agreement}
    return {"kind": best.name, **figures, "outcome": kind.outcome}


def _weights(model: ibcb.IBCB) -> list[Row]:
    import numpy as np

    from ibcb.report.feature_weights import told

    names = model.feature_names_in_ or tuple(str(column) for column in range(len(model.coef_)))
    reward, policy = model.direction(model.coef_), model.direction(model.next_policy_coef_)
    last = None if model.forecast_model_ is None else model.policy_interval(direction=True)
    known, rows = told(model), list[Row]()
    for column in np.argsort(-np.abs(reward), kind="stable").tolist():
        row: Row = {"feature": names[column], "weight": float(reward[column]), "policy": float(policy[column])}
        if last is not None:
            ends = f"{last.lower[column]:.4g} to {last.upper[column]:.4g}"
            row |= {"last": float(last.estimate[column]), "interval": ends if known[column] else "not determined"}
        rows.append(row)
    return rows
