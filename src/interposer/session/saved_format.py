"""The format of saved networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from interposer.file_formats import Certainty, Content, Format, Reading

if TYPE_CHECKING:
    from interposer.frontends.template import Template
    from interposer.ir.network import Network
    from interposer.session.model import Model
    from interposer.session.request import LoadRequest

__all__ = ["Saved"]


class Saved(Format):
    """Networks that `Model.save` has written, with their compiled parts."""

    title: ClassVar = "saved networks"
    files: ClassVar = "saved networks"
    suffixes: ClassVar = (".ipn",)
    served_suffixes: ClassVar = (".ipn",)
    options: ClassVar = frozenset({"signature", "trusted_keys"})
    binds_shapes: ClassVar = True

    def recognizes(self, content: Content) -> Certainty:
        """Return SIGNATURE for the first bytes of the container."""
        from interposer.saved.container import is_saved  # noqa: PLC0415 - formats are listed without this module

        return Certainty.SIGNATURE if is_saved(content.head) else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Network | Template:
        """Return the network as it was before it was optimized."""
        from interposer.session.saved import read_saved  # noqa: PLC0415

        return read_saved(source, reading.shapes, reading.signature, reading.trusted_keys)

    def open(self, request: LoadRequest) -> Model | None:
        """Return the model with its compiled parts; None if the request does not fit them."""
        from interposer.session.loading import load_saved  # noqa: PLC0415

        return load_saved(request) if request.reading.is_plain else None
