"""`load_program`: a model of an exported program or of a file of `torch.export.save`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any

from interposer.core.errors import InvalidArgumentError
from interposer.frontends.torch.archive import program_of
from interposer.frontends.torch.program import read
from interposer.optimizer import OptimizerOptions
from interposer.runtime import Runtime
from interposer.session.limits import Limits
from interposer.session.placement.plan import Plan
from interposer.session.source import Reading, read_source
from interposer.session.torch.program_model import ProgramModel

__all__ = ["load_program", "saved_program"]


def load_program(
    source: Any,
    reading: Reading,
    runtime: Runtime,
    backends: Iterable[str] | None,
    options: OptimizerOptions | None,
    limits: Limits | None,
    fallback: bool | None,
    plan: Plan | None,
) -> ProgramModel:
    """Return the model of an exported program, or of a file with one; see `load` for the arguments.

    The model takes inputs by name only if `reading` has other inputs or outputs than the program, or values of inputs.
    """
    is_file = isinstance(source, str | os.PathLike | bytes | bytearray | memoryview)
    exported = program_of(os.fsdecode(source) if isinstance(source, os.PathLike) else source) if is_file else source
    program = read(exported)
    by_name = reading.inputs is not None or reading.outputs is not None or bool(reading.values)
    return ProgramModel(
        read_source(program, reading._replace(format="torch")), program, runtime, backends, options, limits, fallback,
        plan, argument_names=None if by_name else _argument_names(exported), is_shared=not is_file,
    )  # fmt: skip


def _argument_names(exported: Any) -> tuple[str, ...]:
    """Return the names of the module's arguments that the export has recorded; empty if it has not."""
    signature = exported.module_call_graph[0].signature if exported.module_call_graph else None
    return tuple(getattr(signature, "forward_arg_names", None) or ())


def saved_program(exported: Any) -> bytes:
    """Return the content of the file that `torch.export.save` writes for a program."""
    import torch  # noqa: PLC0415 - a program exists, so PyTorch is there

    content = io.BytesIO()
    try:
        torch.export.save(exported, content)
    except Exception as error:
        raise InvalidArgumentError(f"PyTorch cannot save the program: {error}") from error
    return content.getvalue()
