"""Public names of `interposer.core.dlpack`: Arrays of other libraries, shared without a copy."""

from interposer.core.dlpack import (
    Exported,
    as_array,
    shared_array,
)

__all__ = [
    "Exported",
    "as_array",
    "shared_array",
]
