"""The field ``sequence_batching`` of Triton's ``config.pbtxt``: states, inputs about the sequence, and limits."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from interposer.serving.sequence_batches import Control, SequenceSettings, StateTensor
from interposer.serving.triton_fields import Fields, check_known, message, number, whole, whole_or_any

__all__ = ["sequence_batching"]

_FIELDS: Final = {
    "max_sequence_idle_microseconds", "control_input", "state", "direct", "oldest", "iterative_sequence",
}  # fmt: skip
_OF_DIRECT: Final = {"max_queue_delay_microseconds", "minimum_slot_utilization"}
_OF_OLDEST: Final = {
    "max_queue_delay_microseconds", "max_candidate_sequences", "preferred_batch_size", "preserve_ordering",
}  # fmt: skip
_READ_OF_STRATEGY: Final = {"max_queue_delay_microseconds", "max_candidate_sequences", "minimum_slot_utilization"}
_IDLE: Final = 1.0
"""Triton's seconds without requests after which a sequence ends, for files that do not say."""
_KINDS: Final = {
    "CONTROL_SEQUENCE_START": "start",
    "CONTROL_SEQUENCE_END": "end",
    "CONTROL_SEQUENCE_READY": "ready",
    "CONTROL_SEQUENCE_CORRID": "id",
}
_VALUES: Final = ("int32_false_true", "fp32_false_true", "bool_false_true")
_OF_STATE: Final = {
    "input_name", "output_name", "data_type", "dims", "initial_state", "use_same_buffer_for_input_output",
    "use_growable_memory",
}  # fmt: skip
_OF_INITIAL: Final = {"name", "data_type", "dims", "zero_data", "data_file"}


def sequence_batching(
    fields: Fields | None, rows: list[int]
) -> tuple[SequenceSettings | None, float | None, list[str]]:
    """Return the settings, the seconds that a request waits for others, and the names of fields that are ignored.

    Args:
        fields: the message; None without one.
        rows: the sizes before those of the file: [1] if the model has a batch size, else an empty list.

    Raises:
        ValueError: there is no such field, or its value is wrong.
    """
    if fields is None:
        return None, None, []
    check_known("sequence_batching.", fields, _FIELDS)
    strategy, known_names = ("oldest", _OF_OLDEST) if "oldest" in fields else ("direct", _OF_DIRECT)
    of_strategy = message(fields, strategy) or {}
    check_known(f"sequence_batching.{strategy}.", of_strategy, known_names)
    idle_microseconds = number(fields, "max_sequence_idle_microseconds", None)
    delay = number(of_strategy, "max_queue_delay_microseconds", None)
    settings = SequenceSettings(
        idle_microseconds / 1e6 if idle_microseconds else _IDLE,
        number(of_strategy, "max_candidate_sequences", None) or None,
        dict(_state(state, rows) for state in fields.get("state", [])),
        dict(_control(control) for control in fields.get("control_input", [])),
        strategy,
        _part(
            "sequence_batching.direct.minimum_slot_utilization", of_strategy.get("minimum_slot_utilization", ["0"])[-1]
        ),
    )
    ignored_names = [f"sequence_batching.{strategy}.{name}" for name in of_strategy if name not in _READ_OF_STRATEGY]
    if "iterative_sequence" in fields:
        ignored_names.append("sequence_batching.iterative_sequence")
    return settings, None if delay is None else delay / 1e6, ignored_names


def _state(state: Any, rows: list[int]) -> tuple[str, StateTensor]:
    fields = _checked("state", state, _OF_STATE)
    names = [str(fields.get(key, [""])[-1]) for key in ("input_name", "output_name")]
    if not all(names):
        raise ValueError("sequence_batching.state needs input_name and output_name")
    initial_message = message(fields, "initial_state")
    if initial_message is None:  # Triton begins with 1 for sizes that are open
        open_sizes = [abs(whole_or_any("sequence_batching.state.dims", size)) for size in fields.get("dims", [])]
        return names[0], StateTensor(names[1], (*rows, *open_sizes) if open_sizes else None)
    check_known("sequence_batching.state.initial_state.", initial_message, _OF_INITIAL)
    if "data_file" in initial_message:
        raise ValueError("sequence_batching.state.initial_state.data_file is not offered; states begin with zero_data")
    sizes = [whole("sequence_batching.state.initial_state.dims", size) for size in initial_message.get("dims", [])]
    return names[0], StateTensor(names[1], (*rows, *sizes))


def _control(control: Any) -> tuple[str, Control]:
    fields = _checked("control_input", control, {"name", "control"})
    name, controls = str(fields.get("name", [""])[-1]), fields.get("control", [])
    if not name or len(controls) != 1:
        raise ValueError("sequence_batching.control_input needs a name and one control")
    details = _checked("control_input.control", controls[0], {"kind", "data_type", *_VALUES})
    kind = details.get("kind", ["CONTROL_SEQUENCE_START"])[-1]
    if kind not in _KINDS:
        raise ValueError(f"sequence_batching.control_input {name!r} has the unknown kind {kind!r}")
    values = next((details[key] for key in _VALUES if key in details), ["0", "1"])
    if len(values) != 2:
        raise ValueError(f"sequence_batching.control_input {name!r} needs two values, for false and true")
    return name, Control(_KINDS[kind], *map(_value, values))


def _part(name: str, text: Any) -> float:
    with suppress(ValueError, TypeError):
        part = float(text)
        if 0 <= part <= 1:
            return part
    raise ValueError(f"{name} is not a number from 0 to 1")


def _value(text: Any) -> float:
    return {"true": 1.0, "false": 0.0}[text] if text in ("true", "false") else float(text)


def _checked(name: str, fields: Any, known_names: set[str]) -> Fields:
    if not isinstance(fields, dict):
        raise ValueError(f"sequence_batching.{name} is not a message in braces")
    check_known(f"sequence_batching.{name}.", fields, known_names)
    return fields
