"""Running the Python blocks of a Markdown page, so that no page says what the code does not do.

A block that prints is followed by a ``text`` block with what it printed; docs/outputs.py writes these.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parent.parent
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d*)?(?:e[-+]?\d+)?"


class Block(NamedTuple):
    """A ``python`` block, and what stands below it as its output."""

    code: str
    shown: str
    #: place in the text after which the output belongs, and where the next text begins
    end: int
    after: int


def headings(page: Path) -> list[str]:
    """Names of the sections of a page."""
    return re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.M)


def blocks(page: Path, sections: tuple[str, ...] | None = None) -> list[Block]:
    """The blocks of a page in order, or of what comes before the first "## " heading and of the named sections."""
    text = page.read_text(encoding="utf-8")
    unknown = set(sections or ()) - set(headings(page))
    assert not unknown, f"{page.name} has no section {unknown}; it has {headings(page)}"
    found = []
    for block in re.finditer(r"^```python\n(.*?)^```\n(\n```text\n(.*?)^```\n)?", text, re.M | re.S):
        above = re.findall(r"^## (.*)$", text[: block.start()], re.M)
        if sections is None or not above or above[-1] in sections:
            # Empty lines before it, so that a traceback names the line of the page.
            code = "\n" * text.count("\n", 0, block.start(1)) + block[1]
            end = block.start(2) if block[2] else block.end()
            found.append(Block(code, block[3] or "", end, block.end()))
    return found


def python_blocks(page: Path, sections: tuple[str, ...] | None = None) -> list[str]:
    """Their code alone."""
    return [block.code for block in blocks(page, sections)]


def printed_by(page: Path, sections: tuple[str, ...] | None = None) -> tuple[dict[str, Any], list[tuple[Block, str]]]:
    """Execute the blocks in one namespace; the names, and what each block printed."""
    names: dict[str, Any] = {}
    printed = []
    for block in blocks(page, sections):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(block.code, str(page), "exec"), names)
        # Lines that end in blanks would not survive an editor.
        printed.append((block, re.sub(r" +$", "", said.getvalue(), flags=re.M)))
    return names, printed


def run_page(page: Path, sections: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Execute the blocks, check that the page shows what they print, and return their names."""
    names, printed = printed_by(page, sections)
    assert printed, f"{page.name} has no ```python block"
    for block, said in printed:
        print(said, end="")
        assert_shown(block.shown, said, page.name)
    return names


def assert_shown(shown: str, said: str, where: str) -> None:
    """The same words; figures may differ in their last digits, as those of another machine do."""
    words = [re.sub(rf"{_NUMBER}|\s", "", text) for text in (shown, said)]
    assert words[0] == words[1], f"{where} shows\n{shown}\nbut the code prints\n{said}\nRun docs/outputs.py."
    figures = [np.array([n.replace(",", "") for n in re.findall(_NUMBER, text)], dtype=float) for text in (said, shown)]
    np.testing.assert_allclose(*figures, rtol=0.02, atol=0.011, err_msg=where)
