"""The operators: one module per family, one class per operator."""

from interposer.ops.control import *
