"""The foundation of all other packages: types, shapes, operator schemas, errors, settings, files and the cache."""

from interposer._distribution import overwritten

_reason = overwritten()
if _reason:
    raise ImportError(_reason, name="interposer")
