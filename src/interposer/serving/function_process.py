"""The program that runs Python functions of ensembles, one call after another. It imports nothing of Interposer.

Its argument is the folder of the modules. Calls come on standard input and answers go to standard output, each as a
pickle after its length in eight bytes. What functions print goes to standard error.
"""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable
from typing import IO, Any

import numpy as np

LENGTH = struct.Struct("<Q")


def function_of(name: str) -> Callable[..., Any]:
    """Return the function ``module:function``; raise an error if there is none."""
    module, _, path = name.partition(":")
    loaded_object: Any = importlib.import_module(module)
    for part in path.split("."):
        loaded_object = getattr(loaded_object, part)
    if not callable(loaded_object):
        raise TypeError(f"{name} is no function but {type(loaded_object).__name__}")
    function: Callable[..., Any] = loaded_object
    return function


def arrays_of(result: Any, outputs: list[str]) -> dict[str, Any]:
    """Return what a function returned as arrays by the names of the outputs; a single output needs no dict."""
    if not isinstance(result, dict):
        if len(outputs) != 1:
            raise TypeError(f"the function must return a dict with {', '.join(outputs)}, not {type(result).__name__}")
        result = {outputs[0]: result}
    missing_names = [name for name in outputs if name not in result]
    if missing_names:
        raise KeyError(f"the function returned no {', '.join(missing_names)}")
    return {name: plain(result[name]) for name in outputs}


def plain(value: Any) -> Any:
    """Return a value as an array of numbers, booleans, or of objects that are texts."""
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else np.ascontiguousarray(array).reshape(array.shape)


def answer_of(call: tuple[str, dict[str, Any] | None, list[str]]) -> tuple[Any, ...]:
    """Return ``(arrays,)``, or the name of an error, its text, its traceback, and whether a value was wrong.

    Without inputs, only look for the function.
    """
    name, inputs, outputs = call
    try:
        function = function_of(name)
        return ({} if inputs is None else arrays_of(function(**inputs), outputs),)
    except BaseException as error:
        is_of_value = isinstance(error, ValueError)
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        return type(error).__name__, str(message)[:2000], traceback.format_exc(), is_of_value


def main(calls: IO[bytes], answers: IO[bytes]) -> None:
    """Answer calls until standard input ends."""
    while head := calls.read(LENGTH.size):
        (size,) = LENGTH.unpack(head)
        answer = answer_of(pickle.loads(calls.read(size)))  # from the server that has started this process
        try:
            answer_bytes = pickle.dumps(answer, protocol=5)
        except Exception as error:  # an array of objects of any kind
            answer_bytes = pickle.dumps((type(error).__name__, f"the result cannot be sent: {error}", "", False))
        answers.write(LENGTH.pack(len(answer_bytes)) + answer_bytes)
        answers.flush()


if __name__ == "__main__":
    own_input, own_output = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path.insert(0, sys.argv[1])
    main(own_input, own_output)
