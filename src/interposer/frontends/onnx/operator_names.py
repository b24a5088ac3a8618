"""Names of operators and of the domains that operators belong to."""

from __future__ import annotations

from typing import Final

from interposer.frontends.onnx.proto import Message

__all__ = ["MICROSOFT", "NCHWC", "NHWC", "domain_of", "title"]

MICROSOFT: Final = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
NCHWC: Final = "com.microsoft.nchwc"
"""The domain of ONNX Runtime's operators on images whose channels are in blocks."""
NHWC: Final = "com.ms.internal.nhwc"
"""The domain of ONNX Runtime's operators on images with channels last."""


def domain_of(message: Message) -> str:
    """Return the domain of a node or an operator set, empty for the standard one."""
    return "" if message.domain == "ai.onnx" else str(message.domain)


def title(domain: str, name: str) -> str:
    """Return the operator's name in messages and reports, such as ``Relu`` or ``com.example.Swish``."""
    return f"{domain}.{name}" if domain else name
