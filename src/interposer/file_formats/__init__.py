"""File formats of models: how each is recognized, read and written, and the registry that finds them.

A format is a class derived from `Format`. Packages add formats with the entry point group ``interposer.formats``; the
formats of this package are listed there as well.
"""

from interposer.file_formats.format import Certainty, Content, Format, Reading, WriteOption
from interposer.file_formats.registry import FormatRecord, Formats, process_formats

__all__ = ["Certainty", "Content", "Format", "FormatRecord", "Formats", "Reading", "WriteOption", "process_formats"]
