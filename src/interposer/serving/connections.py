"""Connections of clients over HTTP, which are closed if a request does not begin in time."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, Final

__all__ = ["HEAD_SECONDS", "protocol_class"]

HEAD_SECONDS: Final = 20.0
"""Seconds after which a connection without a request is looked at; it is closed after one or two of these times."""


@cache
def protocol_class(base: Any) -> Any:
    """Return uvicorn's class of connections `base`, with a limit for the time without a whole head of a request.

    uvicorn itself closes connections that are idle after an answer, but waits forever for the first request, and for
    the rest of one that has begun. Clients could so use all descriptors of the process.
    """

    class Connection(base):  # type: ignore[misc]
        """A connection that is closed if no request begins in time."""

        _seen: Any = None
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        def _close_if_idle(self) -> None:
            """Close the connection if no request has begun since the last look."""
            is_idle = self.cycle is None or self.cycle.response_complete
            if is_idle and self._seen is self.cycle:
                self.transport.close()
                return
            self._seen = self.cycle if is_idle else self  # itself: no cycle, so the next idle one gets its whole time
            self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle)

    return Connection
