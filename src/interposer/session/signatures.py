"""`SignatureInfo`: the inputs and outputs of one signature of a model."""

from __future__ import annotations

from collections.abc import Mapping

from interposer.core.records import dataclass
from interposer.core.types import TensorInfo
from interposer.frontends.template import Template

__all__ = ["SignatureInfo"]


@dataclass(frozen=True, slots=True)
class SignatureInfo:
    """A named way to call a model.

    `inputs` and `outputs` map the names of the signature to tensor infos, in the order of calls with lists. The ranks
    of outputs are unknown until the network is created.
    """

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo | None]

    @classmethod
    def of(cls, template: Template) -> SignatureInfo:
        """Return the description of the signature whose network `template` creates."""
        return cls(dict(template.inputs), dict(template.outputs))
