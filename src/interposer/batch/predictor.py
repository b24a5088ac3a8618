"""`Predictor`: a picklable callable that maps a batch of columns to the outputs of a model."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import numpy as np

from interposer.batch.columns import check_rows, columns_of, rows_of
from interposer.batch.rows import Layout
from interposer.batch.runs import Runs
from interposer.core.errors import (
    BindingError,
    InvalidArgumentError,
    LoadError,
    ParseError,
    as_int,
    did_you_mean,
    expect,
)
from interposer.core.types import Array
from interposer.session import Model, load
from interposer.session.pickled import file_digest
from interposer.session.source import files_of_weights, is_saved_source

__all__ = ["Predictor"]

_EXCLUDED: Final = ("source", "runtime", "inputs", "outputs")
_OPTIONS: Final = tuple(name for name in inspect.signature(load).parameters if name not in _EXCLUDED)
"""The arguments of `load` that a predictor passes on."""
_DEFAULTS: Final[tuple[Any, ...]] = (None, None, (), None, "raise", "error", {})
"""The arguments of a predictor that copies another one."""


_FORM: Final = 2
"""The form of a pickled predictor, which changes with its attributes."""
_predictors: Final[weakref.WeakSet[Predictor]] = weakref.WeakSet()


class Predictor:
    """Runs a model on batches of rows: a mapping of columns in, a mapping of columns out.

    A predictor is pickled as the path of the model file or saved network, the SHA-256 digests of this file and of those
    with its weights, and the options. The model is loaded in the process that makes the first call. So an object of
    this class can be sent to the workers of a batch system, on other hosts too if they have the file under the same
    path::

        predict = interposer.batch.Predictor("net.onnx", inputs={"image": "pixels"}, keep=["id"])
        predict({"id": ids, "pixels": images})  # {"id": ..., "probabilities": ...}

    A column is an array whose first dimension is the rows, a list of rows, an array of objects with one array for each
    row, a Series of pandas or an array of Arrow. Batches may also be data frames and tables of Arrow. The arrays may be
    read-only; they are not changed. The first dimension of a model is its batch dimension if all inputs and outputs
    share it. If it is open, the rows of a call, or `batch_size` of them, are one run. If it has a size, the rows are
    divided into runs of this size, and the last run is filled up with copies of the last row, whose results are
    dropped. A model without a batch dimension runs once for each row. A batch without rows gives columns without rows.

    Rows must not depend on each other. Models with states are refused.

    Several threads may call a predictor at the same time.

    Args:
        path: the model file; a relative path is resolved when the predictor is created. Or another predictor, whose
            settings are copied; it must be the only argument. Batch systems that create the object in their workers
            from a class and arguments can be given `Predictor` and a predictor.
        inputs: the columns that are the inputs of the model, as a mapping from the name of an input to that of a
            column; one column name, for a model with one input; or column names in the order of the inputs. None: the
            columns have the names of the inputs, except that a batch with one column fits a model with one input.
        outputs: the columns of the result, as a mapping from the name of a column to that of an output or another value
            of the network; or names of outputs, as a list or one string. None: all outputs, under their own names.
        keep: names of columns of the batch that are added to the result unchanged, such as an id.
        batch_size: the number of rows in a run. The model is loaded with this size of its batch dimension. A saved
            network with an open batch dimension is used as it is, so that its variant with this size runs. None: the
            size that the model declares.
        on_error: "raise" raises the first error of a run. "row" repeats a run that failed row by row. A row has NaN, 0
            or "" in the outputs if it fails again, does not fit the inputs, or has an output of another shape than the
            first row. The column `error_column` then has the message; it is "" in all other rows. Errors of the batch
            itself, such as an absent column, are raised in both cases.
        error_column: the name of the column with messages.
        options: `backends`, `fallback`, `limits`, `plan` and the other arguments of `interposer.load`, but for
            `source`, `runtime`, `inputs` and `outputs`.

    Raises:
        ParseError: the file cannot be read.
        InvalidArgumentError: an argument has the wrong type, or is unknown.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Predictor,
        *,
        inputs: Mapping[str, str] | Sequence[str] | str | None = None,
        outputs: Mapping[str, str] | Sequence[str] | str | None = None,
        keep: Sequence[str] = (),
        batch_size: int | None = None,
        on_error: Literal["raise", "row"] = "raise",
        error_column: str = "error",
        **options: Any,
    ) -> None:
        if isinstance(path, Predictor):
            if (inputs, outputs, tuple(keep), batch_size, on_error, error_column, options) != _DEFAULTS:
                raise InvalidArgumentError("a predictor that copies another one takes no other arguments")
            self.__setstate__(path.__getstate__())
            return
        expect(path, str | os.PathLike, "the model must be the path of a file, which workers can read")
        batch_size = None if batch_size is None else as_int(batch_size, "batch_size must be a number of rows")
        expect(error_column, str, "error_column must be the name of a column")
        if batch_size is not None and batch_size < 1:
            raise InvalidArgumentError(f"batch_size must be at least 1, not {batch_size}")
        if on_error not in ("raise", "row"):
            raise InvalidArgumentError(f"on_error must be 'raise' or 'row', not {on_error!r}")
        for name in options:
            if name not in _OPTIONS:
                known_text = f" (known: {', '.join(_OPTIONS)})"
                raise InvalidArgumentError(f"load has no argument {name!r}{did_you_mean(name, _OPTIONS)}{known_text}")
        if batch_size is not None and "shapes" in options:
            raise InvalidArgumentError("batch_size and shapes exclude each other; give the batch size in the shapes")
        self._path = _absolute(path)
        self._options = _with_absolute_paths(options)
        self._digests = {name: file_digest(name) for name in _files(self._path, self._options)}
        self._inputs = _names("inputs", inputs)
        self._outputs = _names("outputs", outputs)
        self._keep = tuple(_listed("keep", keep))
        self._batch_size, self._on_error, self._error_column = batch_size, on_error, error_column
        if self._outputs is not None:
            self._check_result(tuple(self._outputs))
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loaded: tuple[Model, Layout] | None = None
        _predictors.add(self)

    def _check_result(self, outputs: Sequence[str]) -> None:
        """Raise an error if there are no outputs, or if two columns of the result have the same name."""
        if not outputs:
            raise InvalidArgumentError("outputs must name at least one output; None stands for all")
        names = [*self._keep, *outputs, *([self._error_column] if self._on_error == "row" else [])]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgumentError(f"the result would have several columns {name!r}; rename one with outputs")

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in ("_lock", "_loaded")}
        return state | {"form": _FORM}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("form", None) != _FORM:
            raise LoadError("the predictor was pickled by another version of interposer; create it again")
        vars(self).update(state)
        self._forget()

    @property
    def model(self) -> Model:
        """The model of this process; it is loaded when it is first needed.

        Raises:
            LoadError: the file has another content than when the predictor was created.
            InterposerError: any error that `interposer.load` raises, or the model has states.
        """
        return self._ready()[0]

    def _ready(self) -> tuple[Model, Layout]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[Model, Layout]:
        for path, digest in self._digests.items():
            if file_digest(path) != digest:
                raise LoadError(
                    f"the file {path!r} has another content here than where the predictor was created; copy the "
                    "same file to all hosts, or create the predictor again"
                )
        model = load(self._path, **self._options)
        self._check_outputs(model)
        layout = Layout.of(model)
        if self._batch_size is None or layout.size == self._batch_size:
            return model, layout
        if layout.size is None and is_saved_source(self._path, self._options.get("format")):
            return model, Layout(self._batch_size)  # the file may have a variant with this size
        resized = load(self._path, **self._options, shapes=_resized(model, self._batch_size))
        model.close()
        if Layout.of(resized).size != self._batch_size:
            raise InvalidArgumentError(
                f"the model {resized.name!r} has no batch dimension that all inputs and outputs share; "
                "create the predictor without batch_size"
            )
        return resized, Layout(self._batch_size)

    def _check_outputs(self, model: Model) -> None:
        """Raise an error if an output is unknown, or if two columns of the result have the same name."""
        values = self._values(model)
        self._check_result(tuple(values))
        with suppress(InvalidArgumentError):  # the values of the network are not known yet
            for name in values.values():
                if name not in model.outputs and name not in model.values:
                    known_names = [*model.outputs, *model.values]
                    raise BindingError(f"outputs: the model has no value {name!r}{did_you_mean(name, known_names)}")

    def __call__(self, batch: Mapping[str, Any] | Any) -> dict[str, Any]:
        """Return the columns `keep` of the batch, the outputs of the model for its rows, and the errors if requested.

        The batch is a mapping from column names to columns, a data frame of pandas, or a table of Arrow.

        Raises:
            BindingError: columns are absent, have different numbers of rows, or do not fit the inputs of the model.
            InterposerError: the model cannot be loaded, or a run failed and `on_error` is "raise".
        """
        batch = columns_of(batch)
        model, layout = self._ready()
        columns = self._columns(model, batch)
        kept_columns = {name: _kept(name, _column(batch, name)) for name in self._keep}
        count = _row_count(columns, kept_columns)
        results, errors = self._results(model, layout, columns, count)
        error_columns = {} if errors is None else {self._error_column: np.array(errors, dtype=object)}
        return {**kept_columns, **results, **error_columns}

    def arrays(self, *columns: Any) -> Any:
        """Return the outputs for one array for each input, in the order of the inputs; for Spark's `predict_batch_udf`.

        The result is an array if the predictor has one output, else a mapping of arrays by name.

        Raises:
            BindingError: the number of arrays is not that of the inputs.
            InterposerError: any error of a call with a batch.
        """
        model, layout = self._ready()
        if len(columns) != len(model.inputs):
            names = ", ".join(map(repr, model.inputs))
            raise BindingError(f"{len(columns)} arrays were given; the model has {len(model.inputs)} inputs ({names})")
        arrays = {name: rows_of(name, column) for name, column in zip(model.inputs, columns, strict=True)}
        results, errors = self._results(model, layout, arrays, _row_count(arrays, {}))
        if errors is not None:
            results[self._error_column] = np.array(errors, dtype=object)
        return results if len(results) > 1 else next(iter(results.values()))

    def _columns(self, model: Model, batch: Mapping[str, Any]) -> dict[str, Array | list[Any]]:
        names = self._column_names(model, batch)
        return {name: rows_of(column, _column(batch, column)) for name, column in names.items()}

    def _column_names(self, model: Model, batch: Mapping[str, Any]) -> dict[str, str]:
        """Return the column of each input, by the name of the input."""
        inputs = tuple(model.inputs)
        if isinstance(self._inputs, Mapping):
            for name in self._inputs:
                if name not in inputs:
                    raise BindingError(f"the model has no input {name!r}{did_you_mean(name, inputs)}")
            return {name: self._inputs.get(name, name) for name in inputs}
        if self._inputs is None:
            is_single = len(inputs) == len(batch) - len(self._keep) == 1
            return {inputs[0]: next(name for name in batch if name not in self._keep)} if is_single else _same(inputs)
        if len(self._inputs) != len(inputs):
            known_inputs = ", ".join(map(repr, inputs))
            raise BindingError(
                f"{len(self._inputs)} columns were named; the model has {len(inputs)} inputs ({known_inputs})"
            )
        return dict(zip(inputs, self._inputs, strict=True))

    def _values(self, model: Model) -> dict[str, str]:
        """Return the value of the network for each column of the result, by the name of the column."""
        if self._outputs is None:
            return _same(tuple(model.outputs))
        return dict(self._outputs) if isinstance(self._outputs, Mapping) else _same(self._outputs)

    def _results(
        self, model: Model, layout: Layout, columns: Mapping[str, Array | list[Any]], count: int
    ) -> tuple[dict[str, Array], list[str] | None]:
        """Return the columns of outputs, and the error message of each row if those are requested."""
        runs = Runs(model, layout, columns, self._values(model))
        results, errors = runs.results(count, by_row=self._on_error == "row")
        return results, errors if self._on_error == "row" else None


def _absolute(path: str | os.PathLike[str]) -> str:
    path_text = os.fsdecode(path)
    if not path_text:
        raise ParseError("the path of the model is empty")
    if "://" in path_text and not os.path.exists(path_text):
        raise ParseError("this is a URL; copy the file to a path that all workers can read", path=path_text)
    return os.path.abspath(path_text)


def _with_absolute_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `load` with absolute paths, because workers may run in other folders."""
    absolute = dict(options)
    for name in ("weights", "trusted_keys"):
        path_or_paths = options.get(name)
        if isinstance(path_or_paths, str | os.PathLike):
            absolute[name] = os.path.abspath(os.fsdecode(path_or_paths))
        elif isinstance(path_or_paths, Iterable) and name == "trusted_keys":
            absolute[name] = [os.path.abspath(os.fsdecode(path)) for path in path_or_paths]
    return absolute


def _files(path: str, options: Mapping[str, Any]) -> list[str]:
    """Return the paths of all files of a model: itself, and those with its weights."""
    if isinstance(options.get("weights"), str):
        return [path, options["weights"]]
    if os.path.isdir(path):
        return [path]
    with suppress(ParseError, InvalidArgumentError):  # `load` explains what is wrong with the file
        return [path, *map(os.fspath, files_of_weights(path, options.get("format")))]
    return [path]


def _names(
    argument: str, names: Mapping[str, str] | Sequence[str] | str | None
) -> Mapping[str, str] | list[str] | None:
    if names is None:
        return None
    if isinstance(names, Mapping):
        _listed(argument, [*names, *names.values()])
        return dict(names)
    return _listed(argument, [names] if isinstance(names, str) else names)


def _listed(argument: str, names: Any) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"{argument} must be names of columns, not {names!r}")
    return list(names)


def _same(names: Sequence[str]) -> dict[str, str]:
    return {name: name for name in names}


def _resized(model: Model, size: int) -> dict[str, list[int | None]]:
    """Return the shapes of all inputs with another batch size."""
    return {name: [size, *(None for _ in tuple(info.shape)[1:])] for name, info in model.inputs.items()}


def _column(batch: Mapping[str, Any], name: str) -> Any:
    if name not in batch:
        known_columns = ", ".join(map(repr, batch)) or "none"
        raise BindingError(
            f"the batch has no column {name!r}{did_you_mean(name, batch)} (its columns: {known_columns})"
        )
    return batch[name]


def _kept(name: str, column: Any) -> Any:
    check_rows(name, column)
    return column


def _row_count(columns: Mapping[str, Array | list[Any]], kept_columns: Mapping[str, Any]) -> int:
    """Return the number of rows, which all columns share."""
    counts = {name: len(column) for name, column in (*columns.items(), *kept_columns.items())}
    if len(set(counts.values())) > 1:
        counts_text = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise BindingError(f"the columns have different numbers of rows: {counts_text}")
    return next(iter(counts.values()), 0)


def _after_fork() -> None:
    """Replace the locks in a child process: another thread of the parent may have held them."""
    for predictor in _predictors:
        predictor._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
