"""LiteRT's interpreter with the delegate, as a host for the conformance kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interposer.bridges.files import library
from interposer.bridges.reporting import reports
from interposer.core.errors import BackendUnavailableError, ExecutionError
from interposer.core.types import Array
from interposer.ir.network import Network
from interposer.writers.tflite import write

__all__ = ["LiteRtHost"]


class LiteRtHost:
    """Runs TFLite files in LiteRT's interpreter, with a delegate for one backend.

    `unable` is the exception for a file that the interpreter does not accept. `options` are those of the backend, as
    texts by name.

    Raises:
        BackendUnavailableError: LiteRT is not installed, or the library of the bridges was not built.
    """

    name = "litert"

    def __init__(self, backend: str, options: Mapping[str, str], unable: type[Exception]) -> None:
        self._interpreter = _module()
        self._unable = unable
        of_backend = {f"options.{backend}.{name}": text for name, text in options.items()}
        self._delegate = self._interpreter.load_delegate(
            library(), {"backends": backend, "min-nodes": "1", **of_backend}
        )

    def express(self, network: Network) -> bytes:
        """Return a network as a TFLite file; raise `UnwritableError` if TFLite cannot express a layer."""
        return write(network)

    def run(self, content: bytes, inputs: Sequence[Array]) -> tuple[list[Array], list[str]]:
        """Run a file once; return the outputs, or the reasons why the interpreter would run operators itself.

        Raises:
            ExecutionError: the delegate failed. An error of the interpreter itself is raised as `unable`.
        """
        reports_before = len(reports()), reports()[-1:]
        try:
            interpreter = self._prepared(content)
            refusals = [reason for node in reports()[-1].refused for reason in node.reasons or ("",)]
            if refusals or (len(reports()), reports()[-1:]) == reports_before:
                return [], refusals or ["LiteRT passed nothing to the delegate"]
            return self._outputs(interpreter, inputs), []
        except (RuntimeError, ValueError) as error:
            message = " ".join(str(error).split())
            raise (ExecutionError(message) if "Interposer" in message else self._unable(message)) from error

    def _prepared(self, content: bytes) -> Any:
        kernels = self._interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        return self._interpreter.Interpreter(
            model_content=content,
            experimental_delegates=[self._delegate],
            experimental_op_resolver_type=kernels,
            num_threads=1,
        )

    def _outputs(self, interpreter: Any, inputs: Sequence[Array]) -> list[Array]:
        interpreter.allocate_tensors()
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def _module() -> Any:
    try:
        from ai_edge_litert import interpreter  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise BackendUnavailableError("LiteRT", "install it with pip install 'interposer[litert]'") from error
    return interpreter
