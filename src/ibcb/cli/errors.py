"""Errors in one line, with an exit code that scripts can trust."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import typer

import ibcb
from ibcb.cli.inputs import files_of_a_command
from ibcb.cli.printing import escaping_stdout, let_go, say


def reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that users can cause into one line and exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        with files_of_a_command() as saved, escaping_stdout():
            try:
                with _signals_raise():
                    command(*args, **kwargs)
                sys.stdout.flush()
            except BrokenPipeError:
                # Whoever read our output has seen enough (`| head`).
                let_go(sys.stdout)
                if saved:
                    say(f"note: {saved[-1]} is saved; nobody reads what comes after it.")
                raise typer.Exit(0) from None
            except KeyboardInterrupt as interrupt:
                raise _interrupted(interrupt) from None
            except Exception as error:
                if (cause := _interrupt_behind(error)) is not None:
                    raise _interrupted(cause) from None
                if not _users_can_cause(error):
                    raise
                if saved:
                    let_go(sys.stdout)
                    say(f"note: {saved[-1]} is saved; what comes after it could not be told: {_in_words(error)}")
                    raise typer.Exit(0) from None
                say(f"error: {_in_words(error)}")
                raise typer.Exit(1) from None

    return run


class _Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, so that temporary files go and checkpoints are spoken of."""


def _interrupted(interrupt: KeyboardInterrupt) -> typer.Exit:
    say("interrupted; no half-written file is left behind.")
    return typer.Exit(143 if isinstance(interrupt, _Terminated) else 130)


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Python 3.11 turns an interrupt while a class is being made, as in an import, into a RuntimeError."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return error
        error = error.__cause__ or error.__context__
    return None


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM, and Ctrl-C where it is heeded, as exceptions, so that what they interrupt is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: object) -> None:
        raise _Terminated

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, handler)}
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    report = sys.unraisablehook

    def again(lost: sys.UnraisableHookArgs) -> None:
        """Python drops an exception in a finaliser, and imports have some: send an interrupt once more."""
        if isinstance(lost.exc_value, KeyboardInterrupt):
            number = signal.SIGTERM if isinstance(lost.exc_value, _Terminated) else signal.SIGINT
            # By another thread, a little later: raised here it would be dropped again.
            threading.Timer(0.05, _thread.interrupt_main, (number,)).start()
        else:
            report(lost)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for number, action in before.items():
            signal.signal(number, action)


def _users_can_cause(error: Exception) -> bool:
    """Any other error is a mistake of ours, to be shown in full."""
    if isinstance(error, (ImportError, MemoryError, ValueError, OSError)):
        return True
    from ibcb.engine.cluster import ClusterError
    from ibcb.numerics.refusals import WrongTypeError

    return isinstance(error, (WrongTypeError, ibcb.SolverError, ClusterError))


def _in_words(error: Exception) -> str:
    """The message; of what the system says of a path, without its number."""
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}); use a smaller log, or fewer features."
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}; check the path and its permissions."
    if type(error).__name__ == "LinAlgError":
        return (
            f"the log's numbers make a system of equations unsolvable ({error}). Features may be the same for all "
            "candidates, copies of each other, or of very different sizes; ibcb validate names them."
        )
    return str(error)
