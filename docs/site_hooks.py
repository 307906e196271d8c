"""What MkDocs cannot do by itself: formulas, the sample report, the chart of results, decisions and commands listed."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from site_chart import chart  # noqa: E402
from site_math import Formulas  # noqa: E402


def on_config(config: Any) -> Any:
    """Generated pages may not have been generated; the navigation has those that are there."""
    config["nav"] = [entry for entry in config["nav"] if _there(entry)]
    decisions = sorted((DOCS / "decisions").glob("0*.md"))
    listed = [{_title(page): f"decisions/{page.name}"} for page in decisions]
    config["nav"] = [
        {"Decisions": ["decisions/README.md", *listed]} if "Decisions" in entry else entry for entry in config["nav"]
    ]
    config["markdown_extensions"].append(Formulas())
    return config


def on_files(files: Any, config: Any) -> Any:
    """A live report, of the log and the model of the first tutorial."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "sample/report.html", content=_sample()))
    return files


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """The verbs' own help, in place of a mark; the chart, below the heading of the results."""
    if page.file.src_uri == "results.md":
        heading, _, rest = markdown.partition("\n")
        return f"{heading}\n\n{chart(DOCS / 'results.jsonl')}\n{rest}"
    if "<!-- commands -->" not in markdown:
        return markdown
    return markdown.replace("<!-- commands -->", _commands())


def _sample() -> str:
    import ibcb.report

    blocks = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "tutorial" / "ten-minutes.md").read_text("utf-8"), re.M | re.S
    )
    names: dict[str, Any] = {"print": lambda *said: None}
    for block in blocks[:2]:
        exec(block, names)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        ibcb.report.write_report(names["model"], names["log"], page, title="What a simulated shop values")
        return page.read_text("utf-8")


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
        if "--help-all" in shown:
            shown = CliRunner().invoke(app, [verb, "--help-all"], prog_name="ibcb").stdout
        parts.append(f"## {verb}\n\n```text\n{shown.strip()}\n```\n")
    return "\n".join(parts)
