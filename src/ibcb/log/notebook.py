"""What a notebook shows of a log, and of its validation: a few lines of HTML."""

from importlib.resources import files
from typing import Any


def laid_out(part: str, told: Any) -> str:
    """By a macro of `notebook.html`."""
    # Imported here: a log is made and fitted without it.
    from jinja2 import Environment, StrictUndefined

    page = files("ibcb.log").joinpath("notebook.html").read_text(encoding="utf-8")
    macros = Environment(autoescape=True, undefined=StrictUndefined).from_string(page).module
    return str(getattr(macros, part)(told))
