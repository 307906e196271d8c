"""The scan of `ibcb.validate`, as a subscriber: neither a fit nor a page need go through the log for it."""

from __future__ import annotations

from ibcb.engine import Episode, Subscriber
from ibcb.log import Log
from ibcb.log.validation import Validation, validated
from ibcb.log.validation.scan import Scan


class Validating(Subscriber):
    """Scans a log while it goes by."""

    def __init__(self) -> None:
        self._scan = Scan()
        self._said: Validation | None = None

    def step(self, episode: Episode) -> Validating:
        """One more episode."""
        for part in episode.rows.parts():
            self._scan.add(episode.number, part)
        return self

    def finish(self) -> Validating:
        """Itself."""
        return self

    def of(self, log: Log) -> Validation:
        """What `ibcb.validate` says of the log, which is read again only if its episodes look wrong."""
        if self._said is None:
            self._said = validated(self._scan.finish(), log)
        return self._said
