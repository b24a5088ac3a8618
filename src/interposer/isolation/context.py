"""The proxy of the context of a backend in a child process."""

from __future__ import annotations

import itertools
from typing import Final

from interposer.backend.base import BackendContext
from interposer.backend.capabilities import Options
from interposer.core.errors import BackendCrashedError
from interposer.isolation.life import Life
from interposer.isolation.supervisor import Supervisor

__all__ = ["RemoteContext"]

_numbers: Final = itertools.count(1)


class RemoteContext(BackendContext):
    """The host's proxy of the backend context in the child process: it forwards notices about loading and unloading.

    A restarted child is notified again of the loaded networks.
    """

    def __init__(self, supervisor: Supervisor, options: Options) -> None:
        self.supervisor = supervisor
        self.number = next(_numbers)
        self.made = False
        self._reported = {"do": "context", "context": self.number, "options": dict(options)}
        self._loaded: dict[int, None] = {}
        self._life: Life | None = None
        supervisor.call(self.ensure)
        if self.made:
            supervisor.first.add(self)
            supervisor.forget(self, "context", self.number)

    def ensure(self, life: Life) -> None:
        """Create the context in the child process `life` and notify it of loaded networks, unless it exists there."""
        if self._life is life:
            return
        seconds = self.supervisor.how.deadline_seconds
        self.made = life.ask(self._reported, "create_backend_context", seconds).get("made") is True
        self._life = life
        for network in self._loaded:
            self._notice("before_load_network", network, life)
            self._notice("after_load_network", network, life)

    def _notice(self, what: str, network: int, life: Life) -> bool:
        self.ensure(life)
        reported = {"do": "notice", "context": self.number, "notice": what, "network": network}
        return life.ask(reported, what, self.supervisor.how.deadline_seconds).get("agrees") is True

    def before_load_network(self, network_id: int) -> bool:
        """Notify the context in the child; return False if it refuses the network."""
        return self.supervisor.call(lambda life: self._notice("before_load_network", network_id, life))

    def after_load_network(self, network_id: int) -> bool:
        """Notify the context in the child; return False if it refuses the network.

        Restarted children are notified of the network too.
        """
        agrees = self.supervisor.call(lambda life: self._notice("after_load_network", network_id, life))
        self._loaded[network_id] = None
        return agrees

    def before_unload_network(self, network_id: int) -> bool:
        """Notify the context in the child, if the process is running; return False if the context reports a failure."""
        return self._if_running("before_unload_network", network_id)

    def after_unload_network(self, network_id: int) -> bool:
        """Notify the context in the child, if the process is running; return False if the context reports a failure."""
        self._loaded.pop(network_id, None)
        return self._if_running("after_unload_network", network_id)

    def _if_running(self, what: str, network: int) -> bool:
        if not self.supervisor.running:
            return True
        try:
            return self.supervisor.once(lambda life: self._notice(what, network, life))
        except BackendCrashedError:  # recorded as an event
            return True
