"""Loading and calling models: `load`, `Model` and their helpers; this layer joins front ends, optimizer and runtime."""

from interposer.session.bound import BoundRun
from interposer.session.limits import Limits
from interposer.session.load import load
from interposer.session.model import Model
from interposer.session.runtimes import default_runtime
from interposer.session.source import FORMATS, read_network

__all__ = ["FORMATS", "BoundRun", "Limits", "Model", "default_runtime", "load", "read_network"]
