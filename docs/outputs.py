"""Write what the code of the documentation prints below the code; the tests check that it stays true.

python docs/outputs.py [page ...]    (all pages with code that prints, unless some are named)
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent.resolve()
sys.path.insert(0, str(DOCS.parent / "tests"))

from documents import headings, printed_by  # noqa: E402

#: run as a program of its own
APART = {"cluster.md"}
#: sections that need what few have
WITHOUT = {"off-policy.md": "With the Open Bandit Pipeline"}


def write(page: Path) -> None:
    """Run a page, and replace the outputs in it."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            sections = tuple(each for each in headings(page) if each != WITHOUT.get(page.name))
            _, printed = printed_by(page, sections)
        finally:
            os.chdir(before)
    for block, said in reversed(printed):
        output = f"\n```text\n{said.rstrip()}\n```\n" if said.strip() else ""
        text = text[: block.end] + output + text[block.after :]
    page.write_text(text, encoding="utf-8")
    print(page.relative_to(DOCS.parent))


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    named = [Path(name).resolve() for name in sys.argv[1:]]
    for page in named or [DOCS.parent / "README.md", *sorted(DOCS.glob("**/*.md"))]:
        if "```python" in page.read_text(encoding="utf-8") and page.name not in APART:
            write(page)
