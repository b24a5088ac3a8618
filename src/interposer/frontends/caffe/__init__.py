"""The Caffe front end: ``load(source, weights=...)`` returns the network in a prototxt or caffemodel file."""

from interposer.core.families import import_families
from interposer.frontends.caffe.caffe_converters import layers
from interposer.frontends.caffe.importer import load, template, weights_of

__all__ = ["layers", "load", "template", "weights_of"]

import_families(__name__)  # they fill the table of converters
