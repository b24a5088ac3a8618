"""The format of saved networks."""

from __future__ import annotations

from typing import Any, ClassVar

from interposer.file_formats import Certainty, Content, Format, Reading
from interposer.frontends.template import Template
from interposer.ir.network import Network
from interposer.plugins.capi.caching.recording import recording
from interposer.saved.container import is_saved
from interposer.saved.documents import SavedFile
from interposer.session.limits import Limits
from interposer.session.model import Model
from interposer.session.pauses import collector_paused
from interposer.session.request import LoadRequest
from interposer.session.saved import SavedBlueprint, read_saved, target_of

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
        return Certainty.SIGNATURE if is_saved(content.head) else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Network | Template:
        """Return the network as it was before it was optimized."""
        return read_saved(source, reading.shapes, reading.signature, reading.trusted_keys)

    def open(self, request: LoadRequest) -> Model | None:
        """Return the model with its compiled parts; None if the request does not fit them."""
        if not request.reading.is_plain:
            return None
        file = SavedFile(request.source, request.reading.trusted_keys)
        file.check_owner()
        target = target_of(file, request.runtime.registry, request.backends, request.options, request.plan)
        if target is None:
            return None
        with collector_paused(), recording(file.title):
            blueprint = SavedBlueprint(target, request.runtime, request.limits or Limits())
            ids = None if target.plan is not None else target.preferences
            return Model(blueprint, request.runtime, ids, target.options, request.limits, request.fallback, target.plan)
