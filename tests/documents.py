"""Running the Python blocks of a Markdown page, so that no page says what the code does not do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def python_blocks(page: Path, sections: tuple[str, ...] | None = None) -> list[str]:
    """The blocks of a page in order, or of what comes before the first "## " heading and of the named sections."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.M)
    unknown = set(sections or ()) - set(headings)
    assert not unknown, f"{page.name} has no section {unknown}; it has {headings}"
    blocks = []
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
        above = re.findall(r"^## (.*)$", text[: block.start()], re.M)
        if sections is None or not above or above[-1] in sections:
            # Empty lines before it, so that a traceback names the line of the page.
            blocks.append("\n" * text.count("\n", 0, block.start(1)) + block[1])
    return blocks


def run_page(page: Path, sections: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Execute the blocks in one namespace, and return it."""
    names: dict[str, Any] = {}
    blocks = python_blocks(page, sections)
    assert blocks, f"{page.name} has no ```python block"
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    return names
