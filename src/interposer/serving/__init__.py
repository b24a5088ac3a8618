"""A server for models, with the Open Inference Protocol (version 2).

`app` makes an ASGI application of models, for any ASGI server. The command ``interposer serve`` runs one with uvicorn,
and adds gRPC, folders of models, several processes and an orderly end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interposer.core.errors import InvalidArgumentError, expect
from interposer.serving.core import Core
from interposer.serving.http import http_app
from interposer.serving.loading import served_model
from interposer.serving.options import ServeOptions
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.repository import Repository
from interposer.session import Model

__all__ = ["ServeOptions", "ServingError", "Status", "app"]


def app(models: Mapping[str, Model], options: ServeOptions | None = None) -> Any:
    """Return an ASGI application that answers requests of the Open Inference Protocol for models.

    Each model is version 1 of its name. The application runs in one process with one event loop; the models run in the
    threads of their runtimes. The caller closes the models after the application has ended.

    Args:
        models: the models by the names that requests use.
        options: limits and behaviour; None means the defaults. Models are not loaded or unloaded on request.

    Raises:
        MissingDependencyError: the packages of the extra ``serve`` are not installed.
        InvalidArgumentError: there is no model, a name has a slash, or the protocol cannot express an input or an
            output.

    Example:
        >>> import interposer as ip
        >>> from interposer.serving import app
        >>> application = app({"double": ip.load(network)})  # doctest: +SKIP
    """
    expect(models, Mapping, "the models must be a mapping from names to models")
    if not models:
        raise InvalidArgumentError("no models were given, so there is nothing to serve")
    for name, model in models.items():
        expect(model, Model, f"the model {name!r} must be a Model, such as the result of interposer.load")
        if not name or "/" in name:
            raise InvalidArgumentError(f"the name of a model is part of a path, so it cannot be {name!r}")
    options = ServeOptions() if options is None else options
    sequences = options.sequence_idle, options.max_sequences
    served_models = [served_model(name, "1", model, sequences=sequences) for name, model in models.items()]
    return http_app(Core(Repository(served=served_models), options))
