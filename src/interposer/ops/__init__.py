"""The operators: one module per family, one class per operator.

The examples in their docstrings begin with ``import numpy as np``, ``from interposer import *`` and
``from interposer.ops import *``.
"""

from interposer.ops.activation import *
from interposer.ops.attention import *
from interposer.ops.blocks import *
from interposer.ops.choice import *
from interposer.ops.containers import *
from interposer.ops.control import *
from interposer.ops.control_flow import *
from interposer.ops.convolution import *
from interposer.ops.convolution3d import *
from interposer.ops.deformable import *
from interposer.ops.detection import *
from interposer.ops.dynamic import *
from interposer.ops.einsum import *
from interposer.ops.elementwise import *
from interposer.ops.embedding import *
from interposer.ops.features import *
from interposer.ops.fused import *
from interposer.ops.gather import *
from interposer.ops.grid import *
from interposer.ops.images import *
from interposer.ops.linear_attention import *
from interposer.ops.lstm import *
from interposer.ops.matmul import *
from interposer.ops.matrices import *
from interposer.ops.normalization import *
from interposer.ops.pooling import *
from interposer.ops.pooling3d import *
from interposer.ops.quantization import *
from interposer.ops.quantized_recurrent import *
from interposer.ops.randomness import *
from interposer.ops.rearrange import *
from interposer.ops.recurrent import *
from interposer.ops.recurrent_sequence import *
from interposer.ops.reduction import *
from interposer.ops.regions import *
from interposer.ops.reshape import *
from interposer.ops.resize import *
from interposer.ops.scatter import *
from interposer.ops.selection import *
from interposer.ops.sequence import *
from interposer.ops.spectral import *
from interposer.ops.strings import *
from interposer.ops.trees import *
from interposer.ops.windowed import *
