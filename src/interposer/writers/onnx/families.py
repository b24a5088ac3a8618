"""The families of operators: importing this fills the writer's table."""

from interposer.writers.onnx import (
    activation,
)

__all__ = ["activation"]
