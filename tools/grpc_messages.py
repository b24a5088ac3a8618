"""Write the descriptors of the gRPC messages from their .proto files, with the compiler in the package grpcio-tools.

python tools/grpc_messages.py            # writes src/interposer/serving/protocol/descriptor.py
python tools/grpc_messages.py --check    # exit status 1 if that file is out of date
"""

from __future__ import annotations

import base64
import sys
import tempfile
import textwrap
from pathlib import Path

from interposer.serving import protocol

FOLDER = Path(protocol.__file__).resolve().parent
SOURCES = (FOLDER / "health.proto", FOLDER / "inference.proto")
TARGET = Path(__file__).resolve().parent.parent / "src" / "interposer" / "serving" / "protocol" / "descriptor.py"
HEAD = '''"""The descriptors of health.proto and inference.proto; written by tools/grpc_messages.py."""

from __future__ import annotations

from typing import Final

__all__ = ["FILES"]

FILES: Final = """
'''


def compiled() -> bytes:
    """Return the serialized ``FileDescriptorSet`` of the .proto files."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 - --help needs no package
    from grpc_tools import protoc  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "set")
        if protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={target}", *map(str, SOURCES)]):
            raise SystemExit("the compiler refuses the files")
        files = FileDescriptorSet.FromString(target.read_bytes())
    return bytes(files.SerializeToString(deterministic=True))


def text() -> str:
    """Return the module with the descriptors."""
    lines = textwrap.wrap(base64.b64encode(compiled()).decode(), 116)
    return HEAD + "\n".join(lines) + '\n"""\n"""A serialized FileDescriptorSet, in Base64."""\n'


def main() -> int:
    """Write or check the module."""
    module_text = text()
    if "--check" in sys.argv[1:]:
        return int(module_text != TARGET.read_text(encoding="utf-8"))
    TARGET.write_text(module_text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
