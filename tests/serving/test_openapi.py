"""The OpenAPI document that the server sends: it is valid, complete, and true for the answers of the server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from interposer.serving.core import Core
from interposer.serving.http import http_app
from interposer.serving.options import ServeOptions
from interposer.serving.protocol.openapi import openapi_document
from tests.serving.running import Running, infer_body, model, running, serving, two_by_two

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref
NOT_OFFERED = re.compile("/v2/(cudasharedmemory|trace|logging|models/{model}/trace)|/v2/$")
TWO = {
    "inputs": [{"name": name, "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]} for name in "ab"],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(serving({"two": model(two_by_two())}), ServeOptions(shared_memory=True)) as running_server:
        yield running_server


def test_the_document_is_served_and_valid(server):
    document = server.client.get("/openapi.json").json
    assert document == openapi_document()
    validator = pytest.importorskip("openapi_spec_validator", reason="openapi-spec-validator is not installed")
    validator.validate(document)


def test_the_document_has_all_paths_of_the_server_and_no_others(server):
    application = http_app(Core(server.core.repository, server.core.options))
    routes = application._app._app.routes  # after the check of the header Host and the shortcut for inference
    served = {(method.lower(), route.path) for route in routes for method in route.methods - {"HEAD"}}
    expected = {(method, path) for method, path in served if not NOT_OFFERED.match(path)}
    documented = {(method, path) for path, item in openapi_document()["paths"].items() for method in item}
    assert documented == expected


def test_references_lead_to_schemas_and_all_schemas_are_used():
    text = repr(openapi_document())
    used = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert used == openapi_document()["components"]["schemas"].keys()


GETS = [
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/stats", "/v2/models/{model}",
    "/v2/models/{model}/versions/{version}", "/v2/models/{model}/ready", "/v2/models/{model}/config",
    "/v2/models/{model}/stats", "/v2/systemsharedmemory/status",
]  # fmt: skip


def schema_of(method: str, path: str, status: str) -> dict[str, Any]:
    document = openapi_document()
    schema = document["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
    return {**schema, "components": document["components"]}


@pytest.mark.parametrize("path", GETS)
def test_answers_are_as_the_document_says(server, path):
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    answer = server.client.get(path.format(model="two", version="1"))
    jsonschema.validate(answer.json, schema_of("get", path, str(answer.status)))


def test_answers_to_inference_and_errors_are_as_the_document_says(server):
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    path = "/v2/models/{model}/infer"
    body = {**TWO, "id": "q", "parameters": {"explain": True}}
    jsonschema.validate(body, {**_ref("InferRequest"), "components": openapi_document()["components"]})
    answer = server.client.post("/v2/models/two/infer", body)
    jsonschema.validate(answer.json, schema_of("post", path, "200"))
    for name, wrong, status in (("none", TWO, "404"), ("two", infer_body("z"), "400")):
        refused = server.client.post(f"/v2/models/{name}/infer", wrong)
        assert str(refused.status) == status
        jsonschema.validate(refused.json, schema_of("post", path, status))
    index = server.client.post("/v2/repository/index", {})
    jsonschema.validate(index.json, schema_of("post", "/v2/repository/index", "200"))


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
