"""The answers of the server against the schemas of the protocol's published description, version 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.running import Running, doubler, infer_body, model, running, serving, two_by_two

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref

DATATYPES = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
]  # fmt: skip
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
    known = {name.rstrip("?"): inner for name, inner in schema.items()}
    yield from (f"{path}: unknown field {name}" for name in value if name not in known)
    for name, inner in schema.items():
        if name.rstrip("?") in value:
            yield from problems(value[name.rstrip("?")], inner, f"{path}.{name}")
        elif not name.endswith("?"):
            yield f"{path}: {name} is missing"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(serving({"doubler": model(doubler()), "two": model(two_by_two())})) as result:
        yield result


INFER = "/v2/models/doubler/infer"
TWO = {"inputs": [{"name": name, "datatype": "FP32", "shape": [1, 3], "data": [[1, 2, 3]]} for name in "ab"]}


@pytest.mark.parametrize(
    ("schema", "path", "body", "status"),
    [
        ("server", "/v2", None, 200),
        ("live", "/v2/health/live", None, 200),
        ("ready", "/v2/health/ready", None, 200),
        ("model", "/v2/models/doubler", None, 200),
        ("model", "/v2/models/two/versions/1", None, 200),
        ("model_ready", "/v2/models/two/ready", None, 200),
        ("model_ready", "/v2/models/two/versions/1/ready", None, 200),
        ("infer", INFER, infer_body(), 200),
        ("infer", INFER, infer_body(id="a", parameters={"explain": True}), 200),
        ("infer", "/v2/models/two/versions/1/infer", TWO, 200),
        ("error", INFER, infer_body(datatype="INT8"), 400),
        ("error", "/v2/models/none", None, 404),
        ("error", "/v2/models/none/ready", None, 404),
        ("error", "/v2/none", None, 404),
    ],
)
def test_each_answer_has_the_fields_of_the_protocol(server, schema, path, body, status):
    answer = server.client.get(path) if body is None else server.client.post(path, body)
    assert answer.status == status
    assert list(problems(answer.json, SCHEMAS[schema])) == []
    assert answer.headers["content-type"] == "application/json"
