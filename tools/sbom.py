"""The software bill of materials of a wheel: what was compiled and linked into it, as CycloneDX 1.6 (PEP 770)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["add_to", "sbom_of"]

LINKED: Final = (
    (rb"GLIBCXX|St9exception|St13runtime_error", "libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    (rb"NSt3__1", "libc++", "Apache-2.0 WITH LLVM-exception"),
)
"""A mark in a shared object, the C++ library that is linked statically if the mark is there, and its license."""


def add_to(wheel: Path) -> None:
    """Write the bill of materials into a wheel, in the folder ``sboms`` of its metadata, with its line in RECORD."""
    fresh = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as new:
        files = {name: old.read(name) for name in old.namelist()}
        record = next(name for name in files if name.endswith(".dist-info/RECORD"))
        info = record.rpartition("/")[0]
        name = f"{info}/sboms/{info.partition('-')[0]}.cdx.json"
        text = json.dumps(sbom_of(files), indent=2).encode()
        row = f"{name},sha256={_digest(text)},{len(text)}\n"
        for member in old.infolist():
            if member.filename == record:
                new.writestr(name, text)
                new.writestr(member, files[record] + row.encode())
            else:
                new.writestr(member, files[member.filename], zipfile.ZIP_DEFLATED)
    shutil.move(fresh, wheel)


def sbom_of(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the bill of materials of a wheel whose files are given by name, the same for the same files."""
    metadata = next(text for name, text in files.items() if name.endswith(".dist-info/METADATA")).decode()
    name, version = (re.search(rf"^{key}: (.+)$", metadata, re.MULTILINE)[1] for key in ("Name", "Version"))  # type: ignore[index]
    root = _component("library", name, version, "Apache-2.0") | {"purl": f"pkg:pypi/{name}@{version}"}
    objects = {path: content for path, content in sorted(files.items()) if path.endswith(".so")}
    libraries = {part["bom-ref"]: part for content in objects.values() for part in _libraries(content)}
    parts = [_file(path, content) for path, content in objects.items()]
    edges = [(root["bom-ref"], [part["bom-ref"] for part in parts])]
    edges += [(path, [part["bom-ref"] for part in _libraries(content)]) for path, content in objects.items()]
    number = uuid.uuid5(uuid.NAMESPACE_URL, "".join(sorted(_hex(content) for content in objects.values())) + version)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": root},
        "components": [*parts, *libraries.values()],
        "dependencies": [{"ref": ref, "dependsOn": needed} for ref, needed in edges],
    }


def _component(kind: str, name: str, version: str, license: str) -> dict[str, Any]:
    ref = f"{name}@{version}" if version else name
    return {
        "type": kind,
        "bom-ref": ref,
        "name": name,
        **({"version": version} if version else {}),
        "licenses": [{"expression": license}],
    }


def _file(path: str, content: bytes) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": _hex(content)}]
    return {"type": "file", "bom-ref": path, "name": path, "hashes": hashes, "licenses": [{"expression": "Apache-2.0"}]}


def _libraries(content: bytes) -> list[dict[str, Any]]:
    """Return the C++ library and the compiler's support library that are linked into a shared object."""
    compiler = re.search(rb"GCC: \([^)]*\) ([\d.]+)|clang version ([\d.]+)", content)
    if compiler is None:
        return []
    version = (compiler[1] or compiler[2]).decode()
    library, license = next(
        ((name, license) for mark, name, license in LINKED if re.search(mark, content)),
        ("libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    )
    support = "libgcc" if library == "libstdc++" else "compiler-rt and libunwind"
    return [_component("library", name, version, license) for name in (library, support)]


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
