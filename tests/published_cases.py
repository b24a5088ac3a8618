"""The operator cases that NNAPI publishes, which lie beside the checkout."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).resolve().parents[2] / "shared" / "conformance" / "nnapi_sample.jsonl.gz"


@cache
def nnapi_cases() -> list[dict[str, Any]]:
    """Return the cases as they were published, for several modules of tests; none if the file is absent."""
    if not SAMPLE.is_file():
        return []
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
