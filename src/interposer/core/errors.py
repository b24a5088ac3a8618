"""The exceptions of Interposer: everything it raises on purpose derives from `InterposerError`.

::

    InterposerError
    ├── InvalidArgumentError (ValueError)      an invalid argument
    │   ├── OutOfRangeError                    a number out of a range; .value and .allowed
    │   ├── OptionError                        an option that a backend does not declare, or a value of the wrong kind
    │   ├── UnknownRankError                   the rank or a dimension of a tensor of unknown rank was requested
    │   └── FileWriteError (OSError)           a file that cannot be written; .path and .reason
    ├── ConfigError (ValueError)               an invalid setting in the environment or in a file; .source
    ├── InvalidNetworkError                    .problems: all errors of a network, reported together
    ├── VerificationError                      a pass or a plug-in left a graph that breaks an invariant
    ├── ParseError                             a model file that cannot be read; .path and .where
    │   ├── FileReadError (OSError)            a model file that cannot be opened or read; .errno and .filename
    │   │   └── MissingFileError (FileNotFoundError)   a model file that does not exist
    │   ├── DamagedFileError                   a file that is truncated or damaged
    │   ├── InvalidOperandError                a node that cannot use the elements of an operand; .refusal
    │   ├── UntrustedFileError                 a saved network without the signature of a trusted key
    │   └── UnsupportedOperatorError           .operators: every operator that a front end does not support, with counts
    │       └── UnboundInputError              .inputs: inputs whose values must be known; .shapes: all shapes
    ├── UnwritableError                        .layers: every layer that a format cannot express, and why
    ├── LimitExceededError                     a network larger than the limits that the caller set
    ├── MissingDependencyError (ImportError)   an optional package is not installed; says which
    ├── BackendError                           something about a backend; .backend
    │   ├── UnknownBackendError                no backend has this id
    │   ├── BackendUnavailableError            a known backend that cannot be used here; .reason
    │   ├── DuplicateBackendError              two backends of one id
    │   ├── BackendContractError               a backend violated the plug-in interface
    │   ├── BackendCrashedError                an isolated backend's process failed; .reason, .layer and .output
    │   ├── IncompatibleMemoryError            a tensor cannot be passed from one backend's memory to another's
    │   ├── PluginError                        a shared object that cannot be used; .check and .path
    │   └── UnsupportedLayerError              .refusals: no backend takes the layer, and why
    ├── UnknownNetworkError                    no network of this id is loaded
    ├── BindingError                           inputs or outputs of a run that do not fit the network
    │   └── MemoryImportError                  .refusals: tensors that cannot be used without a copy, and why
    ├── LoadError                              a network that could not be loaded into the runtime; .backend
    └── ExecutionError                         a workload failed while running; .layer and .backend
        ├── InvalidValueError (ValueError)     a value of the inputs that a layer cannot use; .tensor, .position, .value
        ├── RunCancelledError                  the run was cancelled
        └── DeadlineExceededError              the run did not end before its deadline
"""

from __future__ import annotations

import difflib
import operator
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from numbers import Real
from types import UnionType
from typing import Any, Final

from interposer._distribution import install_command

__all__ = [
    "BackendContractError",
    "BackendCrashedError",
    "BackendError",
    "BackendUnavailableError",
    "BindingError",
    "ConfigError",
    "DamagedFileError",
    "DeadlineExceededError",
    "DuplicateBackendError",
    "ExecutionError",
    "FileReadError",
    "FileWriteError",
    "IncompatibleMemoryError",
    "InterposerError",
    "InvalidArgumentError",
    "InvalidNetworkError",
    "InvalidOperandError",
    "InvalidValueError",
    "LimitExceededError",
    "LoadError",
    "MemoryImportError",
    "MissingDependencyError",
    "MissingFileError",
    "OptionError",
    "OutOfRangeError",
    "ParseError",
    "PluginError",
    "RunCancelledError",
    "UnboundInputError",
    "UnknownBackendError",
    "UnknownNetworkError",
    "UnknownRankError",
    "UnsupportedLayerError",
    "UnsupportedOperatorError",
    "UntrustedFileError",
    "UnwritableError",
    "VerificationError",
    "as_float",
    "as_int",
    "culprit",
    "did_you_mean",
    "error_text",
    "expect",
    "expect_names",
    "memory_to",
]


_LONGEST_COMPARED: Final = 200


def did_you_mean(text: str, known: Iterable[object], cutoff: float = 0.6) -> str:
    """Return a hint such as ``"; did you mean 'Softmax'?"`` with the known name most similar to `text`.

    Returns "" if no known name has a similarity of at least `cutoff`, from 0 to 1, or if `text` has more than 200
    characters, which would take long to compare. Keys of other types than str are ignored.
    """
    if len(text) > _LONGEST_COMPARED:
        return ""
    known_by_lowercase = {name.lower(): name for name in known if isinstance(name, str)}
    matches = difflib.get_close_matches(text.lower(), known_by_lowercase, n=1, cutoff=cutoff)
    return f"; did you mean {known_by_lowercase[matches[0]]!r}?" if matches else ""


def expect(value: object, kind: type | UnionType, requirement: str) -> None:
    """Raise `InvalidArgumentError` if `value` is not of type `kind`.

    The message is `requirement`, such as ``"the name must be a text"``, followed by the value.
    """
    if not isinstance(value, kind):
        raise InvalidArgumentError(f"{requirement}, not {_shown(value)}")


def expect_names(names: object, argument: str) -> None:
    """Raise `InvalidArgumentError` if the value of an argument is not a collection of texts, or is a text itself.

    An iterator is refused too, because looking at its names would use it up.
    """
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"{argument} must be a list of names, not {names!r}")


def _shown(value: object) -> str:
    """Return a short text for a value in a message: plain and NumPy scalars as they are, others by their type."""
    module = type(value).__module__
    is_scalar = module == "builtins" or (module == "numpy" and getattr(value, "shape", None) == ())
    return reprlib.repr(value) if is_scalar else type(value).__name__


def as_int(value: object, requirement: str) -> int:
    """Return an integer of any type, such as one of NumPy, as an int of Python.

    Raises:
        InvalidArgumentError: the value is a bool, or has no `__index__`. The message is `requirement`, such as ``"the
            count must be a whole number"``, followed by the value.
    """
    if not isinstance(value, bool) and hasattr(type(value), "__index__"):
        with suppress(TypeError):  # an array of several elements
            return operator.index(value)  # type: ignore[arg-type] # it has __index__
    raise InvalidArgumentError(f"{requirement}, not {_shown(value)}")


def as_float(value: object, requirement: str) -> float:
    """Return a number of any type, such as a fraction or one of NumPy, as a float of Python.

    Raises:
        InvalidArgumentError: the value is a bool or no number, or exceeds the range of float64. The message is
            `requirement`, such as ``"the deadline must be a number of seconds"``, followed by the value.
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InvalidArgumentError(f"{requirement}, not {_shown(value)}, which exceeds float64") from None
    raise InvalidArgumentError(f"{requirement}, not {_shown(value)}")


@contextmanager
def memory_to(do: str, of: Callable[[str], Exception] | None = None) -> Iterator[None]:
    """Turn a `MemoryError` into an error of this package: ``"there is not enough memory to optimize the network"``.

    Usable as a context manager and as a decorator. `do` says what needs the memory ("optimize the network"). `of`
    creates the error from the message; it is `LoadError` by default.
    """
    try:
        yield
    except MemoryError as error:
        reason = f": {error}" if str(error) else ""
        raise (of or LoadError)(f"there is not enough memory to {do}{reason}") from error


def culprit(error: BaseException) -> str:
    """Return the id of the backend that caused an error, or "" if unknown; the innermost cause with a backend wins.

    If an outer cause names one of its devices, such as "Npu:1", that is returned.
    """
    backends = [str(getattr(cause, "backend", "")) for cause in _causes(error)]
    innermost_backend = next((backend for backend in reversed(backends) if backend not in ("", "None")), "")
    devices = (
        backend for backend in reversed(backends) if innermost_backend and backend.startswith(f"{innermost_backend}:")
    )
    return next(devices, innermost_backend)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    visited_ids: set[int] = set()
    while error is not None and id(error) not in visited_ids:
        visited_ids.add(id(error))
        yield error
        error = error.__cause__


class InterposerError(Exception):
    """The base class of all exceptions that this package raises on purpose. Pickling them drops their causes."""

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[InterposerError], arguments: tuple[object, ...], facts: Mapping[str, object]) -> object:
    """Create an exception again when it is unpickled, without calling the constructor of its class.

    `kind` is the class, `arguments` are those of the exception (its message), and `facts` its attributes.
    """
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(facts)
    return error


class InvalidArgumentError(InterposerError, ValueError):
    """An invalid argument: a wrong value, an unknown name, or options that exclude each other."""


class OutOfRangeError(InvalidArgumentError):
    """A number that is out of the range that is allowed for it.

    `value` is the number. `allowed` are the lower and the upper bound, either of which may be None for no bound; the
    message says whether a bound is allowed itself. `allowed` is None if what is allowed is not a range.
    """

    def __init__(self, message: str, value: float, allowed: tuple[float | None, float | None] | None = None) -> None:
        super().__init__(message)
        self.value, self.allowed = value, allowed


class OptionError(InvalidArgumentError):
    """An option that a backend does not declare, or an option's value of the wrong type."""


class UnknownRankError(InvalidArgumentError):
    """The rank or the dimensions of a tensor were requested, but its rank is unknown before running."""


class FileWriteError(InvalidArgumentError, OSError):
    """A file that cannot be written: `path` is the file, `reason` the cause. Its previous content is unchanged."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: the file cannot be written: {reason}")

    def __reduce__(self) -> tuple[type[FileWriteError], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class ConfigError(InterposerError, ValueError):
    """An invalid setting, or a settings file that cannot be read; `source` is the variable or the file."""

    def __init__(self, message: str, *, source: str = "") -> None:
        self.source = source
        super().__init__(message)


class InvalidNetworkError(InterposerError):
    """A network that is not valid; `problems` has all of its errors, one sentence each."""

    def __init__(self, errors: Sequence[str], name: str = "") -> None:
        self.problems = tuple(errors)
        title = f"network {name!r}" if name else "the network"
        count = "1 error" if len(self.problems) == 1 else f"{len(self.problems)} errors"
        super().__init__("\n  - ".join([f"{title} has {count}:", *self.problems]))


class VerificationError(InterposerError):
    """A graph that violates an invariant of the IR; `problems` lists all violations, `after` is the step before."""

    def __init__(self, errors: Sequence[str], after: str = "") -> None:
        self.problems = tuple(errors)
        self.after = after
        super().__init__(
            "\n  - ".join([f"the graph is not valid{f' after {after}' if after else ''}:", *self.problems])
        )


class ParseError(InterposerError):
    """A model file that is damaged, truncated, of the wrong format, or not allowed by its format."""

    summary = ""
    """Text of the message before the place and the detail; empty for none."""

    def __init__(self, message: str, *, path: str | None = None, where: str | None = None) -> None:
        self.message = message
        self.path = path
        self.where = where
        super().__init__(": ".join(part for part in (path, self.summary, where, message) if part))

    def at(self, path: str) -> ParseError:
        """Return the same error with the file's path, unless it has one already."""
        return self if self.path else type(self)(self.message, path=path, where=self.where)


class FileReadError(ParseError, OSError):
    """A model file that cannot be opened or read; `errno`, `strerror` and `filename` are as in its cause, or None."""

    def __init__(self, message: str, *, path: str | None = None, where: str | None = None) -> None:
        super().__init__(message, path=path, where=where)
        self.filename = path

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return _read_error, (type(self), self.message, self.path, self.where, self.errno, self.strerror)

    def at(self, path: str) -> ParseError:
        """Return the same error with the file's path, unless it has one already."""
        return self if self.path else _read_error(type(self), self.message, path, self.where, self.errno, self.strerror)

    @staticmethod
    def of(cause: OSError | ValueError, message: str, path: str | None = None) -> FileReadError:
        """Return the error for a failure of the operating system; `MissingFileError` if the file does not exist.

        `message` says what is wrong. `path` is the file, or None if the caller adds it with `at`.
        """
        kind = MissingFileError if isinstance(cause, FileNotFoundError) else FileReadError
        number, text = getattr(cause, "errno", None), getattr(cause, "strerror", None)
        return _read_error(kind, message, path, None, number, text)


def _read_error(
    kind: type[FileReadError],
    message: str,
    path: str | None,
    where: str | None,
    number: int | None,
    text: str | None,
) -> FileReadError:
    """Return an error of this class with the number and the text of the operating system's error."""
    error = kind(message, path=path, where=where)
    error.errno, error.strerror = number, text
    return error


class MissingFileError(FileReadError, FileNotFoundError):
    """A model file that does not exist."""


class DamagedFileError(ParseError):
    """A model file whose content contradicts its format; `where` is the place in the file, `message` what is wrong."""

    summary = "the file is truncated or damaged"


class UntrustedFileError(ParseError):
    """A saved network that no trusted key has signed, or that was changed after it was signed."""


class UnsupportedOperatorError(ParseError):
    """A model with operators that the front end does not support; `operators` maps each name to its count."""

    title = "operators that are not supported:"

    def __init__(
        self,
        operators: Mapping[str, int],
        *,
        path: str | None = None,
        where: str | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self.operators = dict(operators)
        self.notes = dict(notes or {})
        lines = [f"{count} x {name}{self._note(name)}" for name, count in sorted(self.operators.items())]
        super().__init__("\n  - ".join([self.title, *lines]), path=path, where=where)

    def _note(self, name: str) -> str:
        return f" ({self.notes[name]})" if name in self.notes else ""

    def at(self, path: str) -> ParseError:
        """Return the same error with the file's path, unless it has one already."""
        return (
            self
            if self.path
            else UnsupportedOperatorError(self.operators, path=path, where=self.where, notes=self.notes)
        )


class UnboundInputError(UnsupportedOperatorError):
    """A model whose operators depend on shapes or values of inputs that are not known when it is loaded.

    `inputs` names the inputs whose values must be known; `shapes` is True if the shapes of all inputs must be known.
    `operators` counts the dependent operators by name, and `notes` says what some of them need.
    """

    title = "operators that need to know more of the inputs:"

    def __init__(
        self,
        operators: Mapping[str, int],
        inputs: Iterable[str],
        *,
        shapes: bool = False,
        path: str | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self.inputs = tuple(inputs)
        self.shapes = shapes
        super().__init__(operators, path=path, notes=notes)

    def at(self, path: str) -> ParseError:
        """Return the same error with the file's path, unless it has one already."""
        if self.path:
            return self
        return UnboundInputError(self.operators, self.inputs, shapes=self.shapes, path=path, notes=self.notes)


class UnwritableError(InterposerError):
    """Layers that a format cannot express; `layers` maps the name of each to its operator and the reason."""

    def __init__(self, format: str, layers: Mapping[str, tuple[str, str]], network: str = "") -> None:
        self.format, self.layers = format, dict(layers)
        title = f"network {network!r}" if network else "the network"
        lines = [f"layer {name!r} ({kind}): {reason}" for name, (kind, reason) in self.layers.items()]
        super().__init__("\n  - ".join([f"{title} cannot be written as {format}:", *lines]))


class LimitExceededError(InterposerError):
    """A network that needs more memory, operations or time than the caller's limits allow."""

    def __init__(self, what: str, needed: float, limit: float, unit: str, message: str = "") -> None:
        self.what, self.needed, self.limit = what, needed, limit
        super().__init__(
            message
            or f"the network needs {needed:,.0f} {unit} of {what}, but the limit is {limit:,.0f}; "
            "raise it with load(..., limits=Limits(...)) if the file is trusted"
        )


class MissingDependencyError(InterposerError, ImportError):
    """An optional package is not installed; the message names what to install."""

    def __init__(self, package: str, extra: str, purpose: str = "this") -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{purpose} needs the package {package!r}: {install_command(extra)}")


class BackendError(InterposerError):
    """An error that concerns a backend, whose id is `backend`."""

    def __init__(self, message: str, *, backend: str = "") -> None:
        self.backend = backend
        super().__init__(message)


class UnknownBackendError(BackendError):
    """An id that no backend has: none that is registered, discovered, or known to be unavailable."""

    def __init__(self, backend: str, known: Iterable[str]) -> None:
        self.known = tuple(known)
        names = ", ".join(self.known) or "none"
        super().__init__(
            f"unknown backend {backend!r}{_backend_hint(backend, self.known)} (known: {names})", backend=backend
        )


_DEVICES: Final = {
    **dict.fromkeys(("cuda", "nvidia"), {"OnnxRuntime": "provider=CUDAExecutionProvider", "Torch": "device=cuda"}),
    "gpu": {"OnnxRuntime": "provider=CUDAExecutionProvider", "OpenVino": "device=GPU", "Torch": "device=cuda"},
    "npu": {"OpenVino": "device=NPU"},
    "tensorrt": {"OnnxRuntime": "provider=TensorrtExecutionProvider"},
    **dict.fromkeys(("rocm", "amd"), {"OnnxRuntime": "provider=ROCMExecutionProvider", "Torch": "device=cuda"}),
    "directml": {"OnnxRuntime": "provider=DmlExecutionProvider"},
    **dict.fromkeys(("mps", "metal"), {"Torch": "device=mps"}),
    "coreml": {"OnnxRuntime": "provider=CoreMLExecutionProvider"},
}
"""The names of devices that people give as a backend; for each, the backends that reach it, and with which option."""
_FORMATS_OF_ENGINES: Final = {
    "onnx": "OnnxRuntime", "ort": "OnnxRuntime", "tflite": "LiteRt", "tensorflow": "LiteRt", "pytorch": "Torch",
}  # fmt: skip


def _backend_hint(backend: str, known_ids: Collection[str]) -> str:
    """Return a hint for an unknown id of a backend, which begins with a semicolon; empty if there is none."""
    devices = _DEVICES.get(backend.lower(), {})
    engines = [f"{name} with the option {option}" for name, option in devices.items() if name in known_ids]
    if engines:
        return (
            f"; it is a device, which engines reach by an option: {', '.join(engines)}; "
            "no backend of this name is installed"
        )
    engine = _FORMATS_OF_ENGINES.get(backend.lower())
    if engine in known_ids:
        return f"; it is a format of files, which every backend runs; did you mean {engine!r}?"
    return did_you_mean(backend, known_ids)


class BackendUnavailableError(BackendError):
    """A known backend that cannot be used here: it is not built, its package is missing, or it is disabled."""

    def __init__(self, backend: str, reason: str) -> None:
        self.reason = reason
        subject = f"backend {backend!r} is not" if backend else "no backend is"
        super().__init__(f"{subject} available: {reason}", backend=backend)


class DuplicateBackendError(BackendError):
    """A backend whose id another backend has already."""


class BackendContractError(BackendError):
    """A backend that violated the plug-in interface, for example by its answer to a query."""


class IncompatibleMemoryError(BackendError):
    """A tensor cannot be passed between the memories of two backends; the message lists what both support."""


class PluginError(BackendError):
    """A shared object that cannot be used as a backend; `check` names the check that failed, `path` the file."""

    def __init__(self, path: str, check: str, reason: str, *, backend: str = "") -> None:
        self.path, self.check, self.reason = path, check, reason
        super().__init__(f"{path} cannot be used as a backend ({check}): {reason}", backend=backend)


class BackendCrashedError(BackendError):
    """The child process of an isolated backend crashed, missed its deadline, or sent a malformed answer.

    `reason` says which of these happened, `layer` is the layer that was running (empty if unknown), and `output` holds
    the last lines that the process wrote.
    """

    def __init__(
        self, message: str, *, backend: str = "", reason: str = "", layer: str = "", output: Sequence[str] = ()
    ) -> None:
        self.reason, self.layer, self.output = reason, layer, tuple(output)
        super().__init__(message, backend=backend)


class UnsupportedLayerError(BackendError):
    """One or more layers that no backend supports; `refusals` holds every backend's reasons for every layer."""

    def __init__(self, message: str, refusals: Sequence[Any] = ()) -> None:
        self.refusals = tuple(refusals)
        super().__init__(message)


class UnknownNetworkError(InterposerError):
    """No network with this id is loaded in the runtime."""

    def __init__(self, network_id: object, loaded: Iterable[object]) -> None:
        self.network_id = network_id
        names = ", ".join(map(str, loaded)) or "none"
        super().__init__(f"no network {network_id!r} is loaded (loaded: {names})")


class BindingError(InterposerError):
    """Inputs or outputs given to a run that do not fit the network: count, id, shape, type, or memory."""


class MemoryImportError(BindingError):
    """Memory of the caller that a network cannot use without a copy.

    `refusals` holds the reason for every tensor, by kind ("input" or "output") and binding id.
    """

    def __init__(self, message: str, refusals: Mapping[tuple[str, int], str] | None = None) -> None:
        self.refusals = dict(refusals or {})
        super().__init__(message)


class LoadError(InterposerError):
    """A network that could not be loaded; nothing of it remains in the runtime. `backend` is the cause, if any."""

    def __init__(self, message: str, *, backend: str = "") -> None:
        self.backend = backend
        super().__init__(message)


class ExecutionError(InterposerError):
    """A workload that failed while running; the runtime stays usable. `layer` and `backend` say which one.

    `overwrites` is True if the run may have updated an input or a state in place before it failed, so that repeating it
    with the same arrays may give other results.
    """

    def __init__(self, message: str, *, layer: str = "", backend: str = "") -> None:
        self.layer, self.backend, self.overwrites = layer, backend, False
        super().__init__(message)


class InvalidValueError(ExecutionError, InvalidArgumentError):
    """A value in the inputs of a run that a layer cannot use: an index out of range, a negative size, a zero step.

    The caller has to change the inputs. No backend has failed: none is disabled, and the run is not repeated.

    The attributes are empty or None if they are unknown. `layer` is the name of the layer, and `backend` the one that
    found the value. `operand` is the name of the layer's operand, such as "indices", and `tensor` the name of the
    tensor that was passed for it. `position` is the index of the first such element in the tensor, `value` its value,
    and `allowed` the smallest and the largest valid value, either of which may be None for no bound. `reason` is the
    message without the name of the layer.
    """

    def __init__(
        self,
        reason: str,
        *,
        layer: str = "",
        backend: str = "",
        operand: str = "",
        tensor: str = "",
        position: tuple[int, ...] | None = None,
        value: Any = None,
        allowed: tuple[float | None, float | None] | None = None,
    ) -> None:
        super().__init__(reason, layer=layer, backend=backend)
        self.reason, self.operand, self.tensor = reason, operand, tensor
        self.position, self.value, self.allowed = position, value, allowed

    def of_layer(self, title: str, *, layer: str, backend: str, tensor: str = "") -> InvalidValueError:
        """Return an equal error whose message names the layer, by `title`, and the tensor, unless that is empty."""
        name = f" (tensor {tensor!r})" if tensor and tensor != self.operand else ""
        message = f"layer {title} cannot use its inputs: {self.reason}{name}"
        return self.located(message, layer=layer, backend=backend, tensor=tensor)

    def located(self, message: str, *, layer: str, backend: str, tensor: str = "") -> InvalidValueError:
        """Return an equal error with another message that says where the value was found.

        `tensor` replaces the name of the tensor unless it is empty.
        """
        error = InvalidValueError(
            self.reason, layer=layer, backend=backend, operand=self.operand, tensor=tensor or self.tensor,
            position=self.position, value=self.value, allowed=self.allowed,
        )  # fmt: skip
        error.args = (message,)
        return error


class InvalidOperandError(ParseError):
    """A node of a model that cannot use the elements of an operand, which the caller gave or which follow from inputs.

    `refusal` is the error that a run with these elements raises; it has the layer, the tensor, the position and value
    of the element, and what is allowed.
    """

    def __init__(
        self, message: str, *, refusal: InvalidValueError, path: str | None = None, where: str | None = None
    ) -> None:
        self.refusal = refusal
        super().__init__(message, path=path, where=where)

    def at(self, path: str) -> InvalidOperandError:
        """Return the same error with the file's path, unless it has one already."""
        return (
            self if self.path else InvalidOperandError(self.message, refusal=self.refusal, path=path, where=self.where)
        )


class RunCancelledError(ExecutionError):
    """A run that was cancelled before it ended."""


class DeadlineExceededError(ExecutionError):
    """A run that missed its deadline; `layer` and `backend` say what was running at that time."""


def error_text(error: BaseException) -> str:
    """Return the message of an exception for use in another message.

    The name of its type is put before it, unless it is an `InterposerError`.
    """
    return str(error) if isinstance(error, InterposerError) else f"{type(error).__name__}: {error}"


def _name_publicly() -> None:
    """Set the module of the exceptions to the public `interposer.errors`, so that tracebacks show that name."""
    for name in __all__:
        exported_object = globals()[name]
        if isinstance(exported_object, type):
            exported_object.__module__ = "interposer.errors"


_name_publicly()
