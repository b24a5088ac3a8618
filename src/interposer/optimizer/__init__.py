"""The optimizer: validation, rewrites, assignment to backends, their own optimization, and copies between them."""

from interposer.optimizer.optimize import check_choice, optimize, simplified
from interposer.optimizer.optimizer_options import OptimizerOptions

__all__ = ["OptimizerOptions", "check_choice", "optimize", "simplified"]
