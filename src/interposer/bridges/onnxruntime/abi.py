"""The functions of ONNX Runtime's C interface that the bridge calls, as data, and their calls.

ONNX Runtime's tables of functions only grow, so the numbers hold for all versions from `FLOOR` on. The C code tries
some of them before it uses the table.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataType
from interposer.frontends.onnx.tensors import data_type

__all__ = ["FAIL", "INVALID_ARGUMENT", "OrtApi", "OrtError"]

FLOOR: Final = 23
FAIL: Final = 1
_INT: Final = 1
"""The number of the type of attributes with an integer."""
INVALID_ARGUMENT: Final = 2

_FUNCTIONS: Final = """
0 CreateStatus is p
2 GetErrorMessage p s
51 GetTensorMutableData pp
55 CastTypeInfoToTensorInfo pp
60 GetTensorElementType pp
61 GetDimensionsCount pp
62 GetDimensions ppn
63 GetSymbolicDimensions ppn
65 GetTensorTypeAndShape pp
90 KernelContext_GetInput pnp
91 KernelContext_GetOutput pnpnp
93 ReleaseStatus p v
96 ReleaseValue p v
99 ReleaseTensorTypeAndShapeInfo p v
211 CreateOpAttr spiip
272 ReadOpAttr pipnp
289 GetValueInfoName pp
290 GetValueInfoTypeInfo pp
291 GetModelEditorApi - p
298 GetKeyValuePairs pppp v
300 ReleaseKeyValuePairs p v
318 GetTensorSizeInBytes pp
326 ValueInfo_GetInitializerValue pp
331 ValueInfo_IsConstantInitializer pp
332 ValueInfo_IsFromOuterScope pp
333 Graph_GetName pp
334 Graph_GetModelPath pp
335 Graph_GetOnnxIRVersion pp
336 Graph_GetNumOperatorSets pp
337 Graph_GetOperatorSets pppn
340 Graph_GetNumOutputs pp
341 Graph_GetOutputs ppn
342 Graph_GetNumInitializers pp
343 Graph_GetInitializers ppn
344 Graph_GetNumNodes pp
345 Graph_GetNodes ppn
346 Graph_GetParentNode pp
349 Node_GetName pp
350 Node_GetOperatorType pp
351 Node_GetDomain pp
353 Node_GetNumInputs pp
354 Node_GetInputs ppn
355 Node_GetNumOutputs pp
356 Node_GetOutputs ppn
357 Node_GetNumImplicitInputs pp
358 Node_GetImplicitInputs ppn
359 Node_GetNumAttributes pp
360 Node_GetAttributes ppn
362 OpAttr_GetTensorAttributeAsOrtValue pp
363 OpAttr_GetType pp
364 OpAttr_GetName pp
365 Node_GetNumSubgraphs pp
368 Node_GetEpName pp
379 GetSessionOptionsConfigEntries pp
390 TensorTypeAndShape_HasShape p b
"""
"""The number of each function in the table ``OrtApi``, its name, the types of its arguments and of its result.

The letters are: - no argument, b bool, i int32, n size_t, p pointer, s text, v nothing. Without a
result, a function returns a status.
"""
_KINDS: Final[dict[str, Any]] = {
    "b": ctypes.c_bool, "i": ctypes.c_int32, "n": ctypes.c_size_t, "p": ctypes.c_void_p, "s": ctypes.c_char_p,
    "v": None,
}  # fmt: skip
_SINCE: Final = {"TensorTypeAndShape_HasShape": 24}
"""The versions of functions that are newer than `FLOOR`."""
_PARENTS: Final = 24
"""The version from which on ``Graph_GetParentNode`` gives the parent of a graph that a provider is asked about."""


class OrtError(Exception):
    """A function of ONNX Runtime failed; the message is that of its status."""


class OrtApi:
    """The functions of ONNX Runtime, at the address of its ``OrtApi``, and of its ``OrtEpApi``.

    Thread-safe. `address` is that of ``OrtApi``, and `version` the text of its version, such as "1.32.0".
    `gives_parents` is True if graphs of control flow have the parent node that runs them.
    """

    def __init__(self, address: int, ep_address: int, version: str) -> None:
        self.address, self.version = address, version
        minor = int(version.split(".")[1])
        self.gives_parents = minor >= _PARENTS
        self._functions = {
            name: _function(address, int(number), arguments, *result_type)
            for number, name, arguments, *result_type in map(str.split, _FUNCTIONS.strip().splitlines())
            if _SINCE.get(name, FLOOR) <= minor
        }
        self._add_nodes_to_fuse = _function(ep_address, 2, "ppnp")
        editor = self.call("GetModelEditorApi")
        self._create_node = _function(editor, 6, "ssspnpnpnp") if editor else None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function, and return its result unless that is a status.

        Raises:
            OrtError: the function returns a status, or this version of ONNX Runtime does not have it.
        """
        if name not in self._functions:
            raise OrtError(f"ONNX Runtime {self.version} has no function {name}; 1.{_SINCE[name]} and later have it")
        function = self._functions[name]
        returned_value = function(*arguments)
        if function.restype is not _Status:
            return returned_value
        self.check(returned_value.value)
        return None

    def check(self, status: int | None) -> None:
        """Release a status, and raise `OrtError` with its message, unless it is 0 or None."""
        if not status:
            return
        message = self._functions["GetErrorMessage"](status).decode("utf-8", "replace")
        self._functions["ReleaseStatus"](status)
        raise OrtError(message)

    def status(self, code: int, text: str) -> int:
        """Return the address of a new status for a caller in C."""
        return int(self._functions["CreateStatus"](code, text.encode("utf-8", "replace")))

    def pointer(self, name: str, owner: int) -> int:
        """Return the pointer that a function of one object returns by its last argument, or 0."""
        out = ctypes.c_void_p()
        self.call(name, owner, ctypes.byref(out))
        return out.value or 0

    def number(self, name: str, owner: int, kind: Any = ctypes.c_size_t) -> int:
        """Return the number that a function of one object returns by its last argument."""
        out = kind()
        self.call(name, owner, ctypes.byref(out))
        return int(out.value)

    def text(self, name: str, owner: int) -> str:
        """Return the text that a function of one object returns by its last argument."""
        out = ctypes.c_char_p()
        self.call(name, owner, ctypes.byref(out))
        return (out.value or b"").decode("utf-8", "replace")

    def listed(self, owner: int, attribute: str) -> list[int]:
        """Return the pointers of a list, such as ``Node`` and ``Inputs``: 0 for absent elements."""
        subject, _, plural = attribute.partition(".")
        count = self.number(f"{subject}_GetNum{plural}", owner)
        out = (ctypes.c_void_p * count)()
        if count:
            self.call(f"{subject}_Get{plural}", owner, out, count)
        return [address or 0 for address in out]

    def has(self, name: str) -> bool:
        """Return True if this version has the function."""
        return name in self._functions

    # --- tensors

    def array(self, value: int) -> Array:
        """Return the elements of a tensor as an array on its own memory; the shape is empty for a scalar.

        Raises:
            OrtError: the value is no tensor.
            ParseError: the type of its elements is not supported.
        """
        dtype, shape = self.tensor_type(value)
        return self.view(value, dtype, shape)

    def tensor_type(self, value: int) -> tuple[DataType, tuple[int, ...]]:
        """Return the type and the shape of a tensor."""
        info = self.pointer("GetTensorTypeAndShape", value)
        try:
            return data_type(self.number("GetTensorElementType", info, ctypes.c_int32)), self.dimensions(info)
        finally:
            self.call("ReleaseTensorTypeAndShapeInfo", info)

    def view(self, value: int, dtype: DataType, shape: Sequence[int]) -> Array:
        """Return an array on the memory of a tensor with this type and shape."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.numpy.itemsize
        if not size:
            return np.empty(shape, dtype.numpy)
        memory = memoryview((ctypes.c_char * size).from_address(self.pointer("GetTensorMutableData", value))).cast("B")
        return np.frombuffer(memory, dtype.numpy).reshape(shape)

    def content(self, value: int) -> bytes:
        """Return a copy of the bytes of a tensor, in which elements of less than a byte are packed."""
        size = self.number("GetTensorSizeInBytes", value)
        return ctypes.string_at(self.pointer("GetTensorMutableData", value), size) if size else b""

    def dimensions(self, info: int) -> tuple[int, ...]:
        """Return the dimensions in a ``OrtTensorTypeAndShapeInfo``; -1 for those that are not known."""
        rank = self.number("GetDimensionsCount", info)
        out = (ctypes.c_int64 * rank)()
        self.call("GetDimensions", info, out, rank)
        return tuple(out)

    # --- attributes

    def attribute(self, attribute: int, kind: int, element: Any) -> bytes:
        """Return the bytes of an attribute of this kind; `element` is the type of a single number, or None."""
        size = ctypes.c_size_t()
        read = self._functions["ReadOpAttr"]
        if element is not None:
            number = element()
            self.check(read(attribute, kind, ctypes.byref(number), ctypes.sizeof(number), ctypes.byref(size)).value)
            return bytes(number)
        needed = read(attribute, kind, None, 0, ctypes.byref(size)).value
        if needed:
            self.call("ReleaseStatus", needed)
        out = ctypes.create_string_buffer(max(size.value, 1))
        self.check(read(attribute, kind, out, size.value, ctypes.byref(size)).value)
        return out.raw[: size.value]

    def attribute_tensor(self, attribute: int) -> Array:
        """Return a copy of the tensor that an attribute has."""
        ort_value = self.pointer("OpAttr_GetTensorAttributeAsOrtValue", attribute)
        try:
            return self.array(ort_value).copy()
        finally:
            self.call("ReleaseValue", ort_value)

    # --- new nodes

    def new_attribute(self, name: str, kind: int, content: bytes) -> int:
        """Return the address of a new attribute with an integer (8 bytes) or a text, for `new_node`."""
        out, content_buffer = ctypes.c_void_p(), ctypes.create_string_buffer(content, max(len(content), 1))
        count = 1 if kind == _INT else len(content)
        self.call(
            "CreateOpAttr", name.encode(), ctypes.cast(content_buffer, ctypes.c_void_p), count, kind, ctypes.byref(out)
        )
        return out.value or 0

    def new_node(
        self,
        operator: tuple[str, str],
        name: str,
        names: tuple[Sequence[str], Sequence[str]],
        attributes: Sequence[int],
    ) -> int:
        """Return the address of a new node, which owns its attributes.

        Args:
            operator: the domain and the type of its operator.
            name: its name.
            names: the names of its inputs and of its outputs.
            attributes: the addresses of its attributes.

        Raises:
            OrtError: ONNX Runtime was built without its model editor, as minimal builds are, or refuses the node.
        """
        if self._create_node is None:
            raise OrtError(f"this build of ONNX Runtime {self.version} has no model editor, so it cannot create nodes")
        lists = [(ctypes.c_char_p * len(texts))(*(text.encode() for text in texts)) for texts in names]
        attribute_array, out = (ctypes.c_void_p * len(attributes))(*attributes), ctypes.c_void_p()
        domain, kind = operator
        status = self._create_node(
            *(kind.encode(), domain.encode(), name.encode()),
            *(lists[0], len(lists[0]), lists[1], len(lists[1])),
            *(attribute_array, len(attribute_array), ctypes.byref(out)),
        )
        self.check(status.value)
        return out.value or 0

    # --- sessions

    def config_entries(self, options: int) -> dict[str, str]:
        """Return the configuration of a session by key, which has the options of providers too."""
        key_value_pairs = self.pointer("GetSessionOptionsConfigEntries", options)
        keys, values = (ctypes.POINTER(ctypes.c_char_p)() for _ in range(2))
        count = ctypes.c_size_t()
        self.call("GetKeyValuePairs", key_value_pairs, *map(ctypes.byref, (keys, values, count)))
        entries = {keys[n].decode(): values[n].decode("utf-8", "replace") for n in range(count.value)}
        self.call("ReleaseKeyValuePairs", key_value_pairs)
        return entries

    def claim(self, support: int, nodes: Sequence[int]) -> None:
        """Claim nodes as one group, whose constants ONNX Runtime need not keep."""
        pointers = (ctypes.c_void_p * len(nodes))(*nodes)
        options = _FusionOptions(FLOOR, True)
        self.check(self._add_nodes_to_fuse(support, pointers, len(nodes), ctypes.byref(options)).value)


class _FusionOptions(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("drop_constant_initializers", ctypes.c_bool))


class _Status(ctypes.c_void_p):
    """The address of a status; None for success. As a class of its own, it is not converted to an int."""


def _function(table: int, number: int, arguments: str, result: str = "") -> Any:
    """Return a function of a table at an address, with the types of `_FUNCTIONS`."""
    address = ctypes.c_void_p.from_address(table + number * ctypes.sizeof(ctypes.c_void_p)).value or 0
    restype = _KINDS[result] if result else _Status
    return ctypes.CFUNCTYPE(restype, *(_KINDS[letter] for letter in arguments if letter != "-"))(address)
