"""The options of a delegate: those of all bridges, and those of Arm NN's delegate under its names."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from interposer.bridges.claims import Claims
from interposer.bridges.options import OPTIONS, BridgeOptions, Option, bridge_options
from interposer.core.errors import FileWriteError, InvalidArgumentError
from interposer.core.records import dataclass
from interposer.optimizer import OptimizerOptions, check_choice
from interposer.profiling.external.options import ExternalProfilingOptions
from interposer.runtime import CreationOptions, Runtime
from interposer.session.option_texts import sorted_options, truth

__all__ = ["ARM_NN", "DelegateOptions", "delegate_options"]

_log: Final = logging.getLogger("interposer.bridges")
_ELSEWHERE: Final = ("GpuAcc", "GpuFsa", "EthosNAcc", "NpuAcc")
"""Backends of Arm NN that have no counterpart; programs that were written for Arm NN name them first."""
_FAST_MATH: Final = "FastMathEnabled"
_MOST_THREADS: Final = 64
_SEVERITIES: Final = {
    "trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR, "fatal": logging.CRITICAL,
}  # fmt: skip


@dataclass(frozen=True)
class DelegateOptions(BridgeOptions):
    """What the user of LiteRT asks of a delegate.

    Args:
        backends_path: the folder that is searched for backends in shared objects; empty for the default ones.
        fast_math: set the option ``FastMathEnabled`` of the backends that have it.
        expands_dims: accept declared shapes with more or fewer dimensions of 1 than the inferred ones.
        infers_shapes: False if the user asks not to infer shapes; they are inferred in any case.
        prints_tensors: report every tensor during a run on standard output.
        imports: whether tensors of the host are used in place; False copies.
        profiles: print the profile of each part when the host frees it.
        profile_detail: accepted; the profile is the same for 1 and 2.
        dot: the path of a file for the optimized network in the language dot; empty for none.
        external: the fields of `ExternalProfilingOptions` that are set.
        network_file: the path of a file for the compiled network, to which a digest is added; empty for none.
        saves_network: write this file, instead of only reading it.
    """

    backends_path: str = ""
    fast_math: bool = False
    expands_dims: bool = False
    infers_shapes: bool = False
    prints_tensors: bool = False
    imports: bool = True
    profiles: bool = False
    profile_detail: int = 1
    dot: str = ""
    external: Mapping[str, Any] = field(default_factory=dict)
    network_file: str = ""
    saves_network: bool = False

    def runtime(self) -> Runtime:
        """Return the runtime for these options; graphs with the same options share one."""
        if not self.backends_path and not self.external:
            return super().runtime()
        texts = tuple((backend, tuple(options.items())) for backend, options in self.backend_options.items())
        return _runtime(self.isolate, texts, self.backends_path, tuple(self.external.items()))

    def optimizer_options(self) -> OptimizerOptions:
        """Return the options of the optimizer, with the options of backends for networks."""
        options = super().optimizer_options()
        model_options = options.model_options
        return replace(
            options,
            model_options=self.with_default(model_options, [_FAST_MATH], True) if self.fast_math else model_options,
            allow_expanded_dims=self.expands_dims,
            debug=self.prints_tensors,
            import_enabled=self.imports,
            export_enabled=self.imports,
        )

    def for_threads(self, count: int) -> DelegateOptions:
        """Return the options for an interpreter with `count` threads, unless the user sets another number."""
        return self if self.threads is not None or count < 1 else replace(self, threads=count)

    @property
    def stores(self) -> bool:
        """True if compiled networks are looked for in files."""
        return super().stores or bool(self.network_file)

    @property
    def writes_store(self) -> bool:
        """True if networks that are compiled are stored in files."""
        return super().writes_store or self.saves_network

    def stored_at(self, digest: str) -> Path:
        """Return the path, without a suffix, of the files for a graph with this digest."""
        if self.cache_folder:
            return super().stored_at(digest)
        path = Path(self.network_file)
        return path.with_name(f"{path.stem}-{digest}")

    def essence(self) -> str:
        """Return the options that compiled networks follow from, as a text."""
        return super(DelegateOptions, replace(self, dot="", network_file="", saves_network=False)).essence()

    def write_dot(self, claimed: Claims) -> None:
        """Write the optimized networks of claims to the file that `dot` names, if it names one.

        A file that cannot be written is reported in the log: the host's program runs without it.
        """
        for number, group in enumerate(claimed.groups if self.dot else (), 1):
            path = Path(self.dot)
            try:
                group.optimized.to_dot(path if number == 1 else path.with_stem(f"{path.stem}_{number}"))
            except FileWriteError as error:
                _log.warning("serialize-to-dot has no effect: %s", error)
                return


@cache
def _runtime(
    isolate: tuple[str, ...] | None,
    texts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    path: str,
    external_options: tuple[tuple[str, Any], ...],
) -> Runtime:
    profiling = ExternalProfilingOptions(**dict(external_options)) if external_options else None
    options = CreationOptions(isolate=isolate, dynamic_backends_path=path or None)
    of_runtime: Mapping[str, Mapping[str, Any]] = {}
    if texts:
        of_runtime, _ = sorted_options({name: dict(pairs) for name, pairs in texts}, Runtime(options), "the option")
    return Runtime(replace(options, backend_options=of_runtime, profiling=profiling))


def delegate_options(texts: Mapping[str, str]) -> DelegateOptions:
    """Return the options that a host passes as texts by name.

    Raises:
        InterposerError: an option is unknown, or its text is not valid; a backend is unknown or not available.
    """
    chosen_options = bridge_options(texts, (), {**OPTIONS, **ARM_NN}, DelegateOptions())
    assert isinstance(chosen_options, DelegateOptions)
    if chosen_options.infers_shapes and chosen_options.expands_dims:
        raise InvalidArgumentError("infer-output-shape and allow-expanded-dims exclude each other; choose one")
    if chosen_options.saves_network and not chosen_options.network_file:
        raise InvalidArgumentError("save-cached-network needs cached-network-filepath, which names the file")
    chosen_options = _without_elsewhere(chosen_options)
    runtime = chosen_options.runtime()
    chosen_options.check_isolated()
    check_choice(chosen_options.backends, runtime.device_spec, chosen_options.optimizer_options())
    return chosen_options


def _without_elsewhere(options: DelegateOptions) -> DelegateOptions:
    """Return the options without the backends that only Arm NN has, if there are others."""
    registry = options.runtime().registry
    absent_backends = [name for name in options.backends if name in _ELSEWHERE and name not in registry]
    kept_backends = tuple(name for name in options.backends if name not in absent_backends)
    if not absent_backends or not kept_backends:
        return options
    _log.warning(
        "Interposer has no backend %s; %s will be used", " and no ".join(absent_backends), ", ".join(kept_backends)
    )
    return replace(options, backends=kept_backends)


# --- Arm NN's names ---------------------------------------------------------------------------------------------------


def _set(name: str, read: Callable[[str], Any]) -> Callable[[BridgeOptions, str], BridgeOptions]:
    def change(options: BridgeOptions, text: str) -> BridgeOptions:
        return replace(options, **{name: read(text)})

    return change


def _switch(name: str, meaning: str) -> Option:
    return Option("true or false", meaning, _set(name, truth))


def _external(name: str, expected: str, meaning: str, read: Callable[[str], Any]) -> Option:
    """Return an option that sets a field of `ExternalProfilingOptions`."""

    def change(options: BridgeOptions, text: str) -> BridgeOptions:
        assert isinstance(options, DelegateOptions)
        return replace(options, external={**options.external, name: read(text)})

    return Option(expected, meaning, change)


def _without_effect(reason: str, expected: str = "a text") -> Option:
    """Return an option that is accepted because programs for Arm NN set it; a warning says why it has no effect."""

    def change(options: BridgeOptions, text: str) -> BridgeOptions:
        _log.warning("an option has no effect: %s", reason)
        return options

    return Option(expected, reason, change)


def _threads(text: str) -> int | None:
    if not 0 <= int(text) <= _MOST_THREADS:
        raise ValueError
    return int(text) or None


def _detail(text: str) -> int:
    if int(text) not in (1, 2):
        raise ValueError
    return int(text)


def _folder(text: str) -> str:
    if not text.strip():
        raise ValueError
    return str(Path(text).expanduser().absolute())


def _period(text: str) -> int:
    return int(text.rstrip("uU"))  # Arm NN's own documentation writes 10000u


def _log_from(options: BridgeOptions, text: str) -> BridgeOptions:
    """Write the log of Interposer from a severity on to standard error, unless the program has its own handlers."""
    if text.lower() not in _SEVERITIES:
        raise ValueError
    logger = logging.getLogger("interposer")
    logger.setLevel(_SEVERITIES[text.lower()])
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        logger.addHandler(handler)
    return options


_GPU: Final = "no backend takes the tuning and profiling options of Arm NN's backends for GPUs"
ARM_NN: Final[dict[str, Option]] = {
    "logging-severity": Option(
        "trace, debug, info, warning, error or fatal", "the least severity of what is written to the log", _log_from
    ),
    "dynamic-backends-path": Option(
        "the path of a folder", "the folder that is searched for backends", _set("backends_path", _folder)
    ),
    "number-of-threads": Option(
        f"a number from 0 to {_MOST_THREADS}; 0 for the default", "the same as threads", _set("threads", _threads)
    ),
    "enable-fast-math": _switch("fast_math", "the option FastMathEnabled of the backends that have it"),
    "allow-expanded-dims": _switch("expands_dims", "accept dimensions of 1 that a declared shape lacks or adds"),
    "infer-output-shape": _switch("infers_shapes", "accepted; shapes are always inferred"),
    "memory-import": _switch("imports", "use the host's tensors in place, which is the default"),
    "debug-data": _switch("prints_tensors", "print every tensor of a run"),
    "enable-internal-profiling": _switch("profiles", "print the profile of each part as JSON when it is freed"),
    "internal-profiling-detail": Option("1 or 2", "accepted; the profile is the same", _set("profile_detail", _detail)),
    "serialize-to-dot": Option(
        "the path of a file", "a file for the optimized network in the language dot", _set("dot", _folder)
    ),
    "cached-network-filepath": Option(
        "the path of a file", "a file for the compiled network; a digest is added", _set("network_file", _folder)
    ),
    "save-cached-network": _switch("saves_network", "write the file of cached-network-filepath"),
    "disable-tflite-runtime-fallback": _switch("strict", "the same as strict"),
    "enable-external-profiling": _external("enable_profiling", "true or false", "send counters to a collector", truth),
    "timeline-profiling": _external("timeline_enabled", "true or false", "send the timeline too", truth),
    "outgoing-capture-file": _external("outgoing_capture_file", "a path", "a file for what is sent", _folder),
    "incoming-capture-file": _external("incoming_capture_file", "a path", "a file for what is received", _folder),
    "file-only-external-profiling": _external("file_only", "true or false", "write to files only", truth),
    "counter-capture-period": _external("capture_period", "a number of microseconds", "accepted", _period),
    "profiling-file-format": _external("file_format", "binary", "the format of the files", str),
    "reduce-fp32-to-bf16": _without_effect(
        "reduce-fp32-to-bf16 is ignored, as Arm NN's delegate does", "true or false"
    ),
    "gpu-tuning-level": _without_effect(_GPU),
    "gpu-tuning-file": _without_effect(_GPU),
    "gpu-mlgo-tuning-file": _without_effect(_GPU),
    "gpu-enable-profiling": _without_effect(_GPU),
    "gpu-kernel-profiling-enabled": _without_effect(_GPU),
}
"""The options of Arm NN's delegate, by name, that are not among those of all bridges."""
