"""The command line, as `ibcb` and as `python -m ibcb`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; see `ibcb.cli`."""
    # Until a verb begins there is nothing to clean up: let Ctrl-C end the process without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ibcb.cli import main as run

    run()


if __name__ == "__main__":
    main()
