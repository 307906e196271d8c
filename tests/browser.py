"""A real Chromium for the tests, if this machine has one."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

#: as root in a container it has no sandbox of its own; the rest keeps it from calling home
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """The browser's program: IBCB_CHROMIUM, or Debian's, or what is on the path."""
    named = os.environ.get("IBCB_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def axe() -> Path | None:
    """The script of axe-core, which checks accessibility: IBCB_AXE, or what `make browser` fetched."""
    named = os.environ.get("IBCB_AXE")
    found = Path(named) if named else Path(__file__).parents[1] / ".venv" / "axe-core" / "package" / "axe.min.js"
    return found if found.exists() else None


def missing() -> str | None:
    """Why there can be no browser tests; None if there can."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed"
    if chromium() is None:
        return "no Chromium on this machine"
    return None
