"""Backends for the tests of several hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

import interposer as ip
from interposer.testing.replay import backend_of

CUSTOM = Path(__file__).parents[2] / "examples" / "custom_native" / "c" / "custom.c"
CHANGES = {
    "#include <stdlib.h>": "#include <stdatomic.h>\n#include <stdlib.h>\n#include <time.h>",
    "IPR_CAP_CONCURRENT_EXECUTE | ": "",
    "typedef struct part {": "typedef struct part {\n  atomic_int inside;",
    "const part* p = executable;": """part* p = executable;
  if (atomic_fetch_add(&p->inside, 1)) return ipr_fail(error, IPR_FAILED, IPR_ITEM_NONE, -1, "two concurrent runs");
  nanosleep(&(struct timespec){0, 100000}, NULL);""",
    "  return IPR_OK;\n}\n\nstatic int32_t create": "  p->inside = 0;\n  return IPR_OK;\n}\n\nstatic int32_t create",
}


@pytest.fixture
def serial_backend(natives, tmp_path):
    """The id of the example in C, changed to refuse concurrent runs and to fail if there are some."""
    source = CUSTOM.read_text(encoding="utf-8")
    for old, new in CHANGES.items():
        assert old in source
        source = source.replace(old, new)
    backend = backend_of(str(natives.install(tmp_path, "Example_Custom_backend.so", source, "-std=gnu11")))
    ip.process_registry().register(backend.id, lambda: backend)
    yield backend.id
    ip.process_registry().deregister(backend.id)
