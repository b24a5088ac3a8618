"""The backend-independent rewrites, one module for each kind, and the driver that applies them."""

from interposer.optimizer.rewrites.driver import Rewritten, apply_rewrites
from interposer.optimizer.rewrites.pattern import New, Replacement, Rewrite, rewrite

__all__ = ["New", "Replacement", "Rewrite", "Rewritten", "apply_rewrites", "rewrite"]
