"""The releases of Arm NN, and what each of them added to the format."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import InvalidArgumentError, did_you_mean

__all__ = ["RELEASES", "SINCE", "Release", "release_of", "since_type"]

RELEASES: Final = (
    "20.08", "20.11", "21.02", "21.05", "21.08", "21.11", "22.02", "22.05", "22.08", "22.11", "23.02", "23.05", "23.08",
    "23.11", "24.02", "24.05",
)  # fmt: skip
"""The releases for which files can be written. Later ones read files that are written for 24.05."""

SINCE: Final = {
    "ElementwiseUnary": "20.11",
    "LogicalBinary": "20.11",
    "Reduce": "21.02",
    "Cast": "21.05",
    "Shape": "21.08",
    "UnidirectionalSequenceLstm": "21.08",
    "ChannelShuffle": "21.11",
    "Convolution3d": "21.11",
    "Pooling3d": "22.02",
    "GatherNd": "22.05",
    "BatchMatMul": "22.11",
    "ElementwiseBinary": "23.05",
    "ReverseV2": "23.08",
    "Tile": "23.08",
    "ScatterNd": "24.05",
}
"""The first release that reads each kind of layer; other kinds are read by all releases.

The reader of 20.08 fails on ElementwiseUnary, although its writer writes it.
"""

_TYPES: Final = {"Signed64": "23.11"}


def since_type(name: str) -> str:
    """Return the first release that reads tensors of a type, which has one of Arm NN's names."""
    return _TYPES.get(name, RELEASES[0])


class Release:
    """The release for which a file is written, or the oldest one that can read the file if `target` is None.

    `needed` is the oldest release that reads all layers that were added so far.
    """

    def __init__(self, target: str | None = None) -> None:
        self.target = target
        self.needed = RELEASES[0]

    def has(self, since: str) -> bool:
        """Return True if what release `since` added can be written."""
        return self.target is None or self.target >= since

    def prefers(self, since: str) -> bool:
        """Return True if the file is for release `since` or a later one, so that the form of that time is written."""
        return self.target is not None and self.target >= since

    def use(self, since: str) -> None:
        """Record that the file needs release `since`."""
        self.needed = max(self.needed, since)


def release_of(name: str | None) -> Release:
    """Return the release with a name such as ``20.08``; None is the oldest one that can read the file.

    Raises:
        InvalidArgumentError: there is no such release, or it is not supported.
    """
    if name is not None and name not in RELEASES:
        hint, known_releases = did_you_mean(str(name), RELEASES), ", ".join(RELEASES)
        raise InvalidArgumentError(
            f"release: Arm NN has no release {name!r} that is supported{hint} (known: {known_releases})"
        )
    return Release(name)
