from collections.abc import Callable
from typing import Any

from interposer.core.types import Array

version: int

Tensor = tuple[str, Any, tuple[int, ...], int, int]

class DirectCall:
    def __new__(
        cls,
        *,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        operands: tuple[int, ...],
        results: tuple[int, ...],
        constants: tuple[tuple[int, int], ...],
        room: int,
        execute: int,
        backend: int | None,
        executable: int | None,
        log: int,
        array_type: type[Array],
        empty: Callable[..., Array],
        library: object,
        inside: list[None],
        watchers: list[Callable[[str], None]],
        runs: dict[int, Any],
        pop: Callable[[], object],
        create: Callable[[], object],
        append: Callable[[Any], object],
        failed: Callable[[Any, int], object],
        read_log: Callable[[], object],
        left: Callable[[], object],
        acquire: Callable[[], object] | None,
        release: Callable[[], object] | None,
    ) -> DirectCall: ...
    def run(self, inputs: object, outputs: object, /) -> list[Array] | None: ...
    def close(self) -> None: ...

def layout(array: Array, /) -> tuple[int, tuple[int, ...], Any, int]: ...
