"""What MkDocs cannot do by itself: leave out pages that are not there yet, list decisions, show the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent


def on_config(config: Any) -> Any:
    """Generated pages may not have been generated; the navigation has those that are there."""
    config["nav"] = [entry for entry in config["nav"] if _there(entry)]
    decisions = sorted((DOCS / "decisions").glob("0*.md"))
    listed = [{_title(page): f"decisions/{page.name}"} for page in decisions]
    config["nav"] = [
        {"Decisions": ["decisions/README.md", *listed]} if "Decisions" in entry else entry for entry in config["nav"]
    ]
    return config


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """The verbs' own help, in place of a mark."""
    if "<!-- commands -->" not in markdown:
        return markdown
    return markdown.replace("<!-- commands -->", _commands())


def _there(entry: dict[str, Any]) -> bool:
    (target,) = entry.values()
    return not isinstance(target, str) or target == "reference/commands.md" or (DOCS / target).exists()


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ").replace("`", "")


def _commands() -> str:
    from typer.main import get_command
    from typer.testing import CliRunner

    from ibcb.cli import app

    parts = []
    for verb in get_command(app).commands:
        shown = CliRunner().invoke(app, [verb, "--help"], prog_name="ibcb").stdout
        parts.append(f"## {verb}\n\n```text\n{shown.strip()}\n```\n")
    return "\n".join(parts)
