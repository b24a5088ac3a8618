"""The table in which each family registers its reference kernels.

`interposer.kernels.reference()` returns this table after all families have been imported.
"""

from typing import Final

from interposer.kernels.table import KernelTable

__all__ = ["kernel"]

kernel: Final = KernelTable()
