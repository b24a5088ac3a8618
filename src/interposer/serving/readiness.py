"""`Readiness`: whether a model can run, from its first run, from requests that failed, and from trial runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from interposer.core.errors import InterposerError
from interposer.serving.protocol.errors import Status, as_serving_error

__all__ = ["Readiness", "ReadyState", "is_of_model"]

_log: Final = logging.getLogger("interposer.serving")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_FAILURES: Final = 3
"""Failures in a row after which a model without trial inputs is not ready."""


class ReadyState(Protocol):
    """Whether a model or an ensemble can run; see `Readiness` for the methods."""

    @property
    def is_ready(self) -> bool:
        """True if requests can be expected to succeed."""

    @property
    def reason(self) -> str:
        """Why they cannot; an empty text if they can."""

    def fail_at_start(self, error: BaseException) -> None: ...

    def watch(self) -> None: ...

    def succeeded(self) -> None: ...

    def failed(self, error: BaseException) -> None: ...

    def close(self) -> None: ...


class Readiness:
    """Whether one version of a model can run. Used from the thread of the event loop only.

    After a request that failed because of the model, the model runs on trial inputs. If that fails as well, it is not
    ready, and the trial is repeated after pauses that double from one second to a minute. A request that succeeds, or a
    trial, makes the model ready again. A model whose trial inputs are unknown is not ready after three failures in a
    row, until a request succeeds or a pause has passed.

    Args:
        name: the name of the model, for the log.
        trial: runs the model once, and returns False if its inputs are unknown; raises the error of the run.
    """

    def __init__(self, name: str, trial: Callable[[], Awaitable[bool]]) -> None:
        self._name, self._trial = name, trial
        self.is_ready = True
        self.reason = ""
        self._num_failures = 0
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def fail_at_start(self, error: BaseException) -> None:
        """Mark the model as not ready, because its first run failed; `watch` begins the trials."""
        self.is_ready, self.reason = False, _reason(error)

    def watch(self) -> None:
        """Begin the trial runs of a model whose first run failed."""
        if not self.is_ready:
            self._begin()

    def succeeded(self) -> None:
        """Note that a request got a result."""
        if self._num_failures:
            self._num_failures = 0
        if not self.is_ready:
            self._set_ready()

    def failed(self, error: BaseException) -> None:
        """Note that a request failed because of the model, and not because of the request."""
        self._num_failures += 1
        self.reason = _reason(error)
        self._begin()

    def close(self) -> None:
        """End the trial runs, and begin no others."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if self._task is None and not self._is_closed:
            self._task = asyncio.ensure_future(self._try_until_ready())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("the trial of model %r failed", self._name, exc_info=task.exception())

    async def _try_until_ready(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            if await self._runs():
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if not self.is_ready:
            self._set_ready()

    async def _runs(self) -> bool:
        """Run the trial, and mark the model as not ready if it fails; return False in this case."""
        is_broken = False
        try:
            is_known = await self._trial()
        except (InterposerError, TimeoutError) as error:
            is_known = is_broken = is_of_model(error)
            self.reason = _reason(error) if is_broken else self.reason
        if not is_known:
            is_broken = self._num_failures >= _FAILURES
        if not is_broken:
            return True
        self._num_failures = 0
        if self.is_ready:
            _log.error("model %r is not ready, because its runs fail (%s)", self._name, self.reason)
            self.is_ready = False
        return False

    def _set_ready(self) -> None:
        self.is_ready, self.reason = True, ""
        _log.warning("model %r is ready again", self._name)


def is_of_model(error: BaseException) -> bool:
    """Return True for an error of the model or its backends, not for one that values of the inputs have caused."""
    return as_serving_error(error).status is Status.INTERNAL


def _reason(error: BaseException) -> str:
    return type(error).__name__
