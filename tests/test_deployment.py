"""The files in deploy/: they start the server with options and ports that it has, and read metrics that it exports."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interposer.cli.arguments.serve import configure

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
yaml = pytest.importorskip("yaml", reason="the package PyYAML is not installed")


def documents(path: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / path).read_text(encoding="utf-8")))


def containers() -> Iterator[tuple[str, Any]]:
    [runtime] = documents("kserve/cluster-serving-runtime.yaml")
    yield "KServe", runtime["spec"]["containers"][0]
    [deployment] = documents("kubernetes/deployment.yaml")
    yield "Kubernetes", deployment["spec"]["template"]["spec"]["containers"][0]


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    configure(parser)
    return parser.parse_args([word.replace("{{.Name}}", "name") for word in words])


def test_the_arguments_of_all_files_are_options_of_the_server():
    [compose] = documents("compose/compose.yaml")
    assert parsed(compose["services"]["interposer"]["command"]).metrics_port == 8082
    for _, container in containers():
        assert parsed(container["args"]).metrics_port == 8082
    template = (DEPLOY / "helm/interposer/templates/deployment.yaml").read_text(encoding="utf-8")
    [values] = documents("helm/interposer/values.yaml")
    options = re.findall(r"- (--[a-z-]+)=\{?", template)
    assert parsed(["/models", *values["args"], *(f"{option}=1" for option in options)]).workers == 1


@pytest.mark.parametrize(
    ("url", "is_valid"),
    [
        (f"s3://models/a.onnx#sha256={'0' * 64}", True),
        (f"oci://registry.example/models/a@sha256:{'0' * 64}", True),
        (f"s3://models/a.onnx@sha256:{'0' * 64}", False),
        ("s3://models/a.onnx", False),
        ("/models/a.onnx", False),
    ],
)
def test_the_chart_takes_the_urls_that_the_server_takes(url, is_valid):
    schema = json.loads((DEPLOY / "helm/interposer/values.schema.json").read_text(encoding="utf-8"))
    pattern = schema["properties"]["models"]["properties"]["urls"]["items"]["pattern"]
    assert bool(re.search(pattern, url)) is is_valid


@pytest.mark.parametrize("name", ["KServe", "Kubernetes"])
def test_probes_ask_the_port_for_health_and_containers_have_limits(name):
    container = dict(containers())[name]
    args = parsed(container["args"])
    ports = {port.get("name"): port["containerPort"] for port in container["ports"]}
    for probe, path in (("livenessProbe", "/v2/health/live"), ("readinessProbe", "/v2/health/ready")):
        request = container[probe]["httpGet"]
        assert (request["path"], ports.get(request["port"], request["port"])) == (path, args.health_port)
    assert container["lifecycle"]["preStop"]
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_metrics_of_rules_dashboards_and_scaling_are_those_of_the_server():
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from tests.serving.running import doubler, infer_body, model, running, serving

    dashboard = json.loads((DEPLOY / "compose/grafana/dashboards/interposer.json").read_text(encoding="utf-8"))
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    texts += [str(documents(path)) for path in ("compose/rules.yaml", "kubernetes/hpa.yaml", "kubernetes/adapter.yaml")]
    used = {name for text in texts for name in re.findall(r"(?<![:\w])interposer_\w+(?!:)", text)}
    with running(serving({"m": model(doubler())})) as server:
        assert server.client.post("/v2/models/m/infer", infer_body()).status == 200
        exported = server.client.get("/metrics").body.decode()
    known = set(re.findall(r"^# TYPE (\w+)", exported, re.MULTILINE))
    missing = {name for name in used if name not in known and re.sub("_(bucket|sum|count)$", "", name) not in known}
    assert missing == set()


def test_the_image_has_no_root_and_no_compiler():
    text = (DEPLOY.parent / "Containerfile").read_text(encoding="utf-8")
    final = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d*$", final, re.MULTILINE)
    assert "HEALTHCHECK" in final
    assert not re.search(r"g\+\+|gcc|apt-get", final)
