"""All problems of a table in one message, so that they are repaired in one round."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from ibcb.log.arrays import LogFormatError

__all__ = ["Problems"]

_MOST = 12


class Problems:
    """Messages on their way into one error.

    >>> problems = Problems()
    >>> for name in ("a", "b"):
    ...     with problems.noted():
    ...         raise LogFormatError(f"column {name!r} is empty.")
    >>> try:
    ...     problems.settle()
    ... except LogFormatError as error:
    ...     print(error)
    2 problems. (1) column 'a' is empty. (2) column 'b' is empty.
    """

    def __init__(self) -> None:
        self._messages: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, message: str) -> None:
        """One more."""
        self._messages[message] = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Keep what is raised for later."""
        try:
            yield
        except _SeveralError as error:
            for message in error.messages:
                self.add(message)
        except LogFormatError as error:
            self.add(str(error))

    def each(self, names: Iterable[str], check: Callable[[str], None]) -> None:
        """Keep what a check raises of some columns."""
        for name in names:
            with self.noted():
                check(name)

    def settle(self) -> None:
        """Raise what was noted: a single problem as it is, several with numbers."""
        messages = list(self._messages)
        if len(messages) == 1:
            raise LogFormatError(messages[0])
        if messages:
            each = " ".join(f"({place}) {message}" for place, message in enumerate(messages[:_MOST], start=1))
            more = f" And {len(messages) - _MOST} more." if len(messages) > _MOST else ""
            raise _SeveralError(f"{len(messages)} problems. {each}{more}", messages)


class _SeveralError(LogFormatError):
    def __init__(self, text: str, messages: list[str]) -> None:
        super().__init__(text)
        self.messages = messages
