"""Whether the kinds of deciders that a model file names are there: a rule of one's own may not have been registered."""

from __future__ import annotations

from typing import Any

from ibcb.deciders import KINDS, experts

__all__ = ["unregistered"]


def unregistered(meta: Any) -> str | None:
    """A kind that a model file's JSON names, as a parameter or in its state, and nobody has registered."""
    names, keys, left = {*experts(), "auto"}, {*KINDS}, [meta]
    # However deep the file nests.
    while left:
        value = left.pop()
        if isinstance(value, dict):
            key = value.get("kind") if "top_k" in value else None
            for name, known in ((value.get("expert"), names), (key, keys)):
                if isinstance(name, str) and name.isidentifier() and name not in known:
                    return name
            left += value.values()
        elif isinstance(value, list):
            left += value
    return None
