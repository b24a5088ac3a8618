"""Random networks for the conformance kit: each is identified by a kind, a seed and a number, and is always the same.

`random_network` draws one network of 1 to 12 operators and the arrays to run it on. It needs nothing but NumPy and
ml_dtypes, and draws from an integer stream of its own (`drawing`), so that a network does not depend on the machine,
the hash seed, or the versions of Python and NumPy.

`growth` holds the state of a network under construction. The growers add layers to it, one theme per module:
`convolution`, `pooling`, `matrix`, `normalization`, `recurrent`, `elementwise`, `reduction`, `movement`, `quantized`,
and `from_samples`, which attaches any sample of any operator.
"""

from interposer.testing.random_networks.network import (
    KINDS,
    RandomNetwork,
    check_favoured,
    check_kind,
    random_network,
)

__all__ = ["KINDS", "RandomNetwork", "check_favoured", "check_kind", "random_network"]
