"""Packages that import their public names when they are first used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PACKAGES = ["plugins", "profiling", "saved", "session", "session.placement"]
LISTED = """
import importlib, json, sys
package = importlib.import_module(sys.argv[1])
print(json.dumps([sorted(set(package.__all__) - set(dir(package))), dir(package) == sorted(set(dir(package)))]))
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_listed_before_they_are_imported(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTED, f"interposer.{package}"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [[], True]


def test_a_name_that_a_package_has_not_is_refused() -> None:
    import interposer.saved

    with pytest.raises(AttributeError, match="^module 'interposer.saved' has no attribute 'absent'$"):
        interposer.saved.absent  # noqa: B018
