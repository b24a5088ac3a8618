"""The backend context, which is notified when networks are loaded and unloaded."""

from __future__ import annotations

from collections import Counter

from interposer.backend import BackendContext, Options


class CustomBackendContext(BackendContext):
    """Counts the notifications; a real backend could open and close a device here."""

    def __init__(self, options: Options) -> None:
        self.options = dict(options)
        self.calls: Counter[str] = Counter()

    def before_load_network(self, network_id: int) -> bool:
        """Count the notification; a result of False would prevent the loading."""
        self.calls["before_load_network"] += 1
        return True

    def after_load_network(self, network_id: int) -> bool:
        """Count the notification; the network can run now."""
        self.calls["after_load_network"] += 1
        return True

    def before_unload_network(self, network_id: int) -> bool:
        """Count the notification; a result of False would prevent the unloading."""
        self.calls["before_unload_network"] += 1
        return True

    def after_unload_network(self, network_id: int) -> bool:
        """Count the notification; all resources of the network are released."""
        self.calls["after_unload_network"] += 1
        return True
