"""The options of the backend of `torch.compile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from interposer.core.errors import InvalidArgumentError, did_you_mean, expect
from interposer.core.records import dataclass
from interposer.optimizer import OptimizerOptions
from interposer.runtime import Runtime
from interposer.session.limits import Limits
from interposer.session.runtimes import default_runtime

__all__ = ["CompileOptions"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options of ``torch.compile(module, backend="interposer", options={...})``.

    Args:
        backends: ids of backends in order of preference; None means the default ones, as for `load`.
        options: options of the optimizer.
        limits: the most memory and arithmetic that a graph may need.
        runtime: the runtime that loads the networks; None means the default runtime.
        fallback: as of `load`: what to do if a backend fails to prepare or run its part.
        strict: True raises an error for a graph that Interposer does not run, instead of leaving it to PyTorch.
    """

    backends: Sequence[str] | str | None = None
    options: OptimizerOptions | None = None
    limits: Limits | None = None
    runtime: Runtime | None = None
    fallback: bool | None = None
    strict: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, mode: Any) -> CompileOptions:
        """Return the options that `torch.compile` has passed.

        Raises:
            InvalidArgumentError: an option is unknown or has the wrong type, or a mode other than "default" is given.
        """
        if mode not in (None, "default"):
            raise InvalidArgumentError(f"the backend 'interposer' has no mode {mode!r}; use options={{...}}")
        known_options = [field.name for field in fields(cls)]
        for name in options or {}:
            if name not in known_options:
                raise InvalidArgumentError(
                    f"the backend 'interposer' has no option {name!r}{did_you_mean(str(name), known_options)} "
                    f"(it has: {', '.join(known_options)})"
                )
        chosen_options = cls(**(options or {}))
        expect(chosen_options.options, OptimizerOptions | None, "the option 'options' must be OptimizerOptions(...)")
        expect(chosen_options.limits, Limits | None, "the option 'limits' must be Limits(...)")
        expect(chosen_options.runtime, Runtime | None, "the option 'runtime' must be a Runtime")
        expect(chosen_options.strict, bool, "the option 'strict' must be True or False")
        return chosen_options

    def chosen_runtime(self) -> Runtime:
        """Return the runtime that networks are loaded in."""
        return default_runtime() if self.runtime is None else self.runtime
