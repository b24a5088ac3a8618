"""Classes of Arm NN's interface for which programs have little use: ids of the profiling service, and backends."""

from __future__ import annotations

from pyarmnn._proxy import Abstract, Proxy

__all__ = ["IBackend", "ProfilingDynamicGuid", "ProfilingStaticGuid"]


class IBackend(Abstract, destructor=False):
    """A backend by its id; no function of this interface returns one."""

    _id: str

    def GetId(self) -> str:
        """Return the id of the backend."""
        return self._id


class ProfilingDynamicGuid(Proxy):
    """The id of an object that exists while a program runs."""


class ProfilingStaticGuid(Proxy):
    """The id of a name, which is the same in every run."""
