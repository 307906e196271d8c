"""Values that are worked out when they are first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["lazy"]

T = TypeVar("T")


class lazy(cached_property[T]):  # noqa: N801 - a decorator
    """`functools.cached_property` as Python has it from 3.12 on, everywhere: without a lock.

    Before, a process forked while another thread worked a value out waited for that thread for ever. Two threads may
    work out the same value at once, which then must be the same to the bit.
    """

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            known = instance.__dict__
            if self.attrname not in known:
                known[self.attrname] = self.func(instance)
            return known[self.attrname]
