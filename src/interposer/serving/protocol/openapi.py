"""The OpenAPI document of the server: its paths, parameters, and the schemas of requests and answers."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

from interposer._version import __version__

__all__ = ["openapi_document"]

_Json: TypeAlias = "dict[str, Any]"
_DATATYPES: Final = (
    "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
)  # fmt: skip


def _object(required: str = "", /, **properties: _Json) -> _Json:
    """Return the schema of an object; `required` has the names that it must have, separated by spaces."""
    schema: _Json = {"type": "object", "properties": properties}
    return schema | {"required": required.split()} if required else schema


def _list(items: _Json) -> _Json:
    return {"type": "array", "items": items}


def _to(name: str) -> _Json:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Final[_Json] = {"type": "string"}
_FLAG: Final[_Json] = {"type": "boolean"}
_COUNT: Final[_Json] = {"type": "integer", "minimum": 0}
_SHAPE: Final = _list({"type": "integer"})
_NAMES: Final[_Json] = {"type": "object", "additionalProperties": _TEXT}
_PARAMETERS: Final[_Json] = {
    "type": "object",
    "additionalProperties": {"type": ["boolean", "integer", "number", "string"]},
}
_DATATYPE: Final[_Json] = {"type": "string", "enum": list(_DATATYPES)}
_DATA: Final[_Json] = {"type": "array", "description": "elements in row-major order, flat or nested"}
_REGION: Final = {"key": _TEXT, "offset": _COUNT, "byte_size": _COUNT}

_SCHEMAS: Final[_Json] = {
    "Error": _object("error", error=_TEXT),
    "Ready": _object("ready", ready=_FLAG),
    "Live": _object("live", live=_FLAG),
    "ModelReady": _object("name ready", name=_TEXT, ready=_FLAG),
    "ServerMetadata": _object("name version extensions", name=_TEXT, version=_TEXT, extensions=_list(_TEXT)),
    "TensorMetadata": _object("name datatype shape", name=_TEXT, datatype=_DATATYPE, shape=_SHAPE),
    "ModelMetadata": _object(
        "name platform inputs outputs",
        name=_TEXT,
        versions=_list(_TEXT),
        platform=_TEXT,
        inputs=_list(_to("TensorMetadata")),
        outputs=_list(_to("TensorMetadata")),
        parameters=_PARAMETERS,
    ),
    "ModelConfiguration": _object(
        "name platform input output",
        name=_TEXT,
        platform=_TEXT,
        backend=_TEXT,
        max_batch_size=_COUNT,
        input=_list(_to("ConfiguredTensor")),
        output=_list(_to("ConfiguredTensor")),
        ensemble_scheduling=_object("step", step=_list(_to("EnsembleStep"))),
        sequence_batching=_object("max_sequence_idle_microseconds", max_sequence_idle_microseconds=_COUNT),
    ),
    "EnsembleStep": _object(
        "model_name model_version input_map output_map",
        model_name=_TEXT,
        model_version={"type": "integer", "minimum": -1},
        input_map=_NAMES,
        output_map=_NAMES,
    ),
    "ConfiguredTensor": _object("name data_type dims", name=_TEXT, data_type=_TEXT, dims=_SHAPE),
    "RequestInput": _object(
        "name datatype shape", name=_TEXT, datatype=_DATATYPE, shape=_SHAPE, parameters=_PARAMETERS, data=_DATA
    ),
    "RequestOutput": _object("name", name=_TEXT, parameters=_PARAMETERS),
    "InferRequest": _object(
        "inputs",
        id=_TEXT,
        parameters=_PARAMETERS,
        inputs=_list(_to("RequestInput")),
        outputs=_list(_to("RequestOutput")),
    ),
    "ResponseOutput": _object(
        "name datatype shape", name=_TEXT, datatype=_DATATYPE, shape=_SHAPE, parameters=_PARAMETERS, data=_DATA
    ),
    "InferResponse": _object(
        "model_name outputs",
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        parameters=_PARAMETERS,
        outputs=_list(_to("ResponseOutput")),
    ),
    "Duration": _object("count ns", count=_COUNT, ns=_COUNT),
    "ModelStatistics": _object(
        "name version",
        name=_TEXT,
        version=_TEXT,
        last_inference=_COUNT,
        inference_count=_COUNT,
        execution_count=_COUNT,
        inference_stats={"type": "object", "additionalProperties": _to("Duration")},
        batch_stats=_list(_object("batch_size", batch_size=_COUNT, compute_infer=_to("Duration"))),
    ),
    "Statistics": _object("model_stats", model_stats=_list(_to("ModelStatistics"))),
    "RepositoryIndex": _list(
        _object("name version state", name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT),
    ),
    "RepositoryIndexRequest": _object("", ready=_FLAG),
    "Region": _object("key byte_size", **_REGION),
    "Regions": _list(_object("name key byte_size", name=_TEXT, **_REGION)),
    "Empty": {"type": "object"},
}


@cache
def openapi_document() -> _Json:
    """Return the document; the caller must not change it."""
    paths: dict[str, _Json] = {}
    for method, path, summary, answer, body in _operations():
        paths.setdefault(path, {})[method] = _operation(method, path, summary, answer, body)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Interposer",
            "version": __version__,
            "description": "The Open Inference Protocol, version 2, with extensions of Triton Inference Server.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operations() -> list[tuple[str, str, str, str, str]]:
    """Return method, path, summary, schema of the answer and schema of the body of each operation."""
    region = "/v2/systemsharedmemory/region/{region}"
    operations = [
        ("get", "/v2", "Name, version and extensions of the server", "ServerMetadata", ""),
        ("get", "/v2/health/live", "Whether the server lives", "Live", ""),
        ("get", "/v2/health/ready", "Whether the server is ready for requests", "Ready", ""),
        ("get", "/v2/models/stats", "Statistics of all models", "Statistics", ""),
        ("get", "/openapi.json", "This document", "Empty", ""),
        ("get", "/metrics", "Metrics for Prometheus", "text", ""),
        ("get", "/", "The status page", "page", ""),
        ("post", "/v2/repository/index", "All models with their states", "RepositoryIndex", "RepositoryIndexRequest"),
        ("post", "/v2/repository/models/{model}/load", "Load a model, or load it again", "Empty", "Empty"),
        ("post", "/v2/repository/models/{model}/unload", "Unload a model", "Empty", "Empty"),
        ("get", "/v2/systemsharedmemory/status", "Regions of shared memory", "Regions", ""),
        ("get", f"{region}/status", "One region of shared memory", "Regions", ""),
        ("post", f"{region}/register", "Register a region of shared memory", "Empty", "Region"),
        ("post", f"{region}/unregister", "Unregister a region of shared memory", "Empty", "Empty"),
        ("post", "/v2/systemsharedmemory/unregister", "Unregister all regions", "Empty", "Empty"),
    ]
    for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        operations += [
            ("get", path, "Inputs, outputs and versions of a model", "ModelMetadata", ""),
            ("get", f"{path}/ready", "Whether a model can run", "ModelReady", ""),
            ("get", f"{path}/config", "Configuration of a model", "ModelConfiguration", ""),
            ("get", f"{path}/stats", "Statistics of a model", "Statistics", ""),
            ("post", f"{path}/infer", "Run a model", "InferResponse", "InferRequest"),
            (
                "post",
                f"{path}/infer_stream",
                "Run a model several times",
                "events",
                "InferRequest",
            ),
        ]
    return operations


def _operation(method: str, path: str, summary: str, answer: str, body: str) -> _Json:
    operation: _Json = {
        "summary": summary,
        "operationId": _identifier(method, path),
        "responses": {"200": _answer(answer)} | {"default": {"description": "an error", **_json("Error")}},
    }
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters: list[_Json] = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names]
    if path.endswith("/ready"):
        schema = "ModelReady" if "{model}" in path else "Ready"
        operation["responses"]["503"] = {"description": "not ready", **_json(schema)}
    if path.endswith("/infer"):
        parameters.append(_header("Inference-Header-Content-Length", "length of the JSON object before binary data"))
        operation["responses"]["200"]["content"]["application/octet-stream"] = {}
        operation["responses"] |= {code: _refusal(text) for code, text in _REFUSALS.items()}
    if path in ("/", "/metrics") or any(
        part in path for part in ("/repository/models/", "systemsharedmemory", "stats")
    ):
        operation["security"] = [{"token": []}]
    elif path.endswith("/infer"):
        operation["security"] = [{}, {"token": []}]  # the server has clients with tokens if it was started so
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = {"required": body in ("InferRequest", "Region"), **_json(body)}
    if body == "InferRequest":
        operation["requestBody"]["content"]["application/octet-stream"] = {}
    return operation


_MEDIA_TYPES: Final = {"text": "text/plain", "page": "text/html", "events": "text/event-stream"}
_REFUSALS: Final = {
    "400": "the request is damaged, or does not fit the model",
    "404": "there is no such model or version",
    "413": "the body is too large",
    "429": "the model gets more requests than it may",
    "503": "too many requests wait, the model is not loaded, or the server stops",
    "504": "the deadline has passed",
}


def _refusal(text: str) -> _Json:
    return {"description": text, **_json("Error")}


def _header(name: str, description: str) -> _Json:
    return {"name": name, "in": "header", "description": description, "schema": _COUNT}


def _json(schema: str) -> _Json:
    return {"content": {"application/json": {"schema": _to(schema)}}}


def _answer(schema: str) -> _Json:
    if schema in _MEDIA_TYPES:
        media_type = _MEDIA_TYPES[schema]
        return {"description": "the answer", "content": {media_type: {"schema": _TEXT}}}
    return {"description": "the answer", **_json(schema)}


def _identifier(method: str, path: str) -> str:
    words = [part.strip("{}").replace(".", "_") for part in path.split("/") if part and part != "v2"]
    return "_".join([method, *words]) if words else f"{method}_server" if path == "/v2" else f"{method}_page"
