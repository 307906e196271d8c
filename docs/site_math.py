"""Formulas between dollar signs, as MathML made while the site is built: no script, no font, no network."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

INLINE = r"(?<![\\$])\$(?![\s$])([^$\n]+?)(?<![\s\\])\$(?!\$)"


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: N802
        return self.md.htmlStash.store(convert(m[1])), m.start(0), m.end(0)


class _Display(BlockProcessor):
    def test(self, parent: Element, block: str) -> bool:
        return block.startswith("$$") and block.rstrip().endswith("$$")

    def run(self, parent: Element, blocks: list[str]) -> None:
        formula = blocks.pop(0).strip().strip("$").strip()
        place = SubElement(parent, "div", {"class": "formula"})
        place.text = self.parser.md.htmlStash.store(convert(formula, display="block"))


class Formulas(Extension):
    """``$x$`` within a line, ``$$x$$`` as a paragraph of its own."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Before emphasis, whose signs formulas have too, and after code."""
        md.inlinePatterns.register(_Inline(INLINE, md), "formula", 185)
        md.parser.blockprocessors.register(_Display(md.parser), "formula", 175)
