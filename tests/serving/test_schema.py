"""The answers of the server against the schemas of the protocol's published description, version 2.

The schemas here are our own, and stricter than the published ones: they have no other fields. Requests and answers are
checked against the published file open_inference_rest.yaml too, if the environment variable
INTERPOSER_OPEN_INFERENCE_YAML has its path, and PyYAML and openapi-schema-validator are installed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interposer.serving.options import ServeOptions
from tests.serving.running import Running, doubler, infer_body, model, running, serving, two_by_two

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref

DATATYPES = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
]  # fmt: skip
PUBLISHED = "INTERPOSER_OPEN_INFERENCE_YAML"
COMPONENTS = {
    "server": "metadata_server_response", "model": "metadata_model_response", "infer": "inference_response",
    "error": "inference_error_response",
}  # fmt: skip
"""The names of schemas in the published file; the answers to the other requests have no body there."""
COUNT = {"count": int, "ns": int}
DURATIONS = (
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cancel", "cache_hit", "cache_miss",
)  # fmt: skip
CONFIGURED = {"name": str, "data_type": str, "dims": [int]}
TENSOR = {"name": str, "datatype": DATATYPES, "shape": [int]}
# A type, a list of the possible values, a list with the schema of each element, or the fields of an object, of which
# those with a question mark are optional.
SCHEMAS: dict[str, Any] = {
    "server": {"name": str, "version": str, "extensions": [str]},
    "live": {"live": bool},
    "ready": {"ready": bool},
    "model": {
        "name": str, "versions?": [str], "platform": str, "inputs": [TENSOR], "outputs": [TENSOR], "parameters?": dict,
    },
    "model_ready": {"name": str, "ready": bool},
    "infer": {
        "model_name": str, "model_version?": str, "id?": str, "parameters?": dict,
        "outputs": [{**TENSOR, "parameters?": dict, "data": list}],
    },
    "binary": {
        "model_name": str, "model_version?": str, "outputs": [{**TENSOR, "parameters": {"binary_data_size": int}}],
    },
    "config": {
        "name": str, "platform": str, "backend": str, "max_batch_size": int, "input": [CONFIGURED],
        "output": [CONFIGURED],
    },
    "index": [{"name": str, "version": str, "state": ["READY", "UNAVAILABLE"], "reason": str}],
    "statistics": {"model_stats": [{
        "name": str, "version": str, "last_inference": int, "inference_count": int, "execution_count": int,
        "inference_stats": {name: COUNT for name in DURATIONS},
        "batch_stats": [{"batch_size": int, "compute_infer": COUNT}],
    }]},
    "error": {"error": str},
}  # fmt: skip


def problems(value: Any, schema: Any, path: str = "") -> Iterator[str]:
    """Yield where a value differs from a schema."""
    if isinstance(schema, type):
        if type(value) is not schema:
            yield f"{path}: {value!r} is no {schema.__name__}"
    elif isinstance(schema, list) and all(isinstance(item, str) for item in schema):
        if value not in schema:
            yield f"{path}: {value!r} is none of {schema}"
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
            return
        for number, item in enumerate(value):
            yield from problems(item, schema[0], f"{path}[{number}]")
    else:
        yield from _problems_of_object(value, schema, path)


def _problems_of_object(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    fields = {name.rstrip("?"): inner for name, inner in schema.items()}
    yield from (f"{path}: unknown field {name}" for name in value if name not in fields)
    for name, inner in schema.items():
        if name.rstrip("?") in value:
            yield from problems(value[name.rstrip("?")], inner, f"{path}.{name}")
        elif not name.endswith("?"):
            yield f"{path}: {name} is missing"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = {"doubler": model(doubler()), "two": model(two_by_two())}
    with running(serving(models), ServeOptions(max_body=10_000)) as running_server:
        yield running_server


INFER = "/v2/models/doubler/infer"
TWO = {"inputs": [{"name": name, "datatype": "FP32", "shape": [1, 3], "data": [[1, 2, 3]]} for name in "ab"]}
CASES: list[tuple[str, str, Any, int]] = [
    ("server", "/v2", None, 200),
    ("server", "/v2/", None, 200),
    ("live", "/v2/health/live", None, 200),
    ("ready", "/v2/health/ready", None, 200),
    ("model", "/v2/models/doubler", None, 200),
    ("model", "/v2/models/two/versions/1", None, 200),
    ("model_ready", "/v2/models/two/ready", None, 200),
    ("model_ready", "/v2/models/two/versions/1/ready", None, 200),
    ("config", "/v2/models/two/config", None, 200),
    ("config", "/v2/models/two/versions/1/config", None, 200),
    ("statistics", "/v2/models/stats", None, 200),
    ("statistics", "/v2/models/two/versions/1/stats", None, 200),
    ("index", "/v2/repository/index", {}, 200),
    ("index", "/v2/repository/index", {"ready": True}, 200),
    ("infer", INFER, infer_body(), 200),
    ("infer", INFER, infer_body(id="a", parameters={"explain": True}), 200),
    ("infer", INFER, infer_body(outputs=[{"name": "y", "parameters": {"classification": 2}}]), 200),
    ("infer", "/v2/models/two/versions/1/infer", TWO, 200),
    ("infer", "/v2/models/two/infer", TWO | {"outputs": [{"name": "total"}]}, 200),
    ("error", INFER, infer_body(datatype="INT8"), 400),
    ("error", INFER, infer_body(rows=[1, 2]), 400),
    ("error", INFER, infer_body(outputs=[{"name": "z"}]), 400),
    ("error", INFER, {"inputs": []}, 400),
    ("error", "/v2/repository/models/two/load", {}, 403),
    ("error", "/v2/models/none", None, 404),
    ("error", "/v2/models/two/versions/2", None, 404),
    ("error", "/v2/models/none/ready", None, 404),
    ("error", "/v2/models/none/infer", infer_body(), 404),
    ("error", "/v2/none", None, 404),
    ("error", INFER, None, 405),
    ("error", INFER, infer_body(id="a" * 10_000), 413),
    ("error", "/v2/logging", {}, 501),
    ("error", INFER, infer_body(parameters={"timeout": 1}), 504),
]


def ask(server: Running, path: str, body: Any) -> Any:
    return server.client.get(path) if body is None else server.client.post(path, body)


@pytest.mark.parametrize(("schema", "path", "body", "status"), CASES)
def test_each_answer_has_the_fields_of_the_protocol(server, schema, path, body, status):
    answer = ask(server, path, body)
    assert answer.status == status
    assert list(problems(answer.json, SCHEMAS[schema])) == []
    assert answer.headers["content-type"] == "application/json"


def test_the_object_before_binary_data_has_the_fields_of_the_extension(server):
    answer = ask(server, INFER, infer_body(parameters={"binary_data_output": True}))
    head = json.loads(answer.body[: int(answer.headers["inference-header-content-length"])])
    assert list(problems(head, SCHEMAS["binary"])) == []
    assert answer.headers["content-type"] == "application/octet-stream"


@pytest.fixture(scope="module")
def published() -> Any:
    """Return a function that yields where a value differs from a schema of the published file."""
    path = os.environ.get(PUBLISHED)
    if not path:
        pytest.skip(f"{PUBLISHED} has no path of the published description")
    yaml = pytest.importorskip("yaml", reason="the package PyYAML is not installed")
    openapi = pytest.importorskip("openapi_schema_validator", reason="openapi-schema-validator is not installed")
    components = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["components"]

    def check(value: Any, name: str) -> list[str]:
        schema = {"$ref": f"#/components/schemas/{name}", "components": components}
        return [error.message for error in openapi.OAS30Validator(schema).iter_errors(value)]

    assert check({"error": 1}, COMPONENTS["error"])
    return check


@pytest.mark.parametrize(("schema", "path", "body", "status"), [case for case in CASES if case[0] in COMPONENTS])
def test_each_answer_fits_the_published_description(server, published, schema, path, body, status):
    assert published(ask(server, path, body).json, COMPONENTS[schema]) == []
    if path.endswith("/infer") and body is not None:
        assert published(body, "inference_request") == []
