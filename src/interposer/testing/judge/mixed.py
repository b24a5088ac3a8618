"""Valid calls of a model mixed with invalid ones from several threads: no call may change what another one gets."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from interposer.core.errors import BindingError, InvalidValueError, LimitExceededError
from interposer.core.types import Array
from interposer.session import Model
from interposer.testing.bad_values import decisive_inputs, with_bad_arrays, with_bad_values, with_extreme_floats
from interposer.testing.tolerances import same

__all__ = ["mixed_problems"]

Feeds = Mapping[str, Array]


def mixed_problems(
    model: Model,
    feeds: Feeds,
    *,
    threads: int = 8,
    calls: int = 6,
    seed: int = 0,
    call: Callable[[Feeds], list[Any]] | None = None,
) -> list[str]:
    """Call a model from several threads, in turn with inputs that are valid and with some that are not.

    The others have indices and sizes out of range, extreme floats, or arrays that do not fit the model. Such a call may
    give any result or raise `InvalidValueError`, `LimitExceededError` or `BindingError`. Every valid call must give the
    same results, bit for bit, also while others are under way. `Model.explain` must always succeed, and no backend may
    be disabled.

    Args:
        model: the model, whose backends give the same bits in every run.
        feeds: valid inputs by name.
        threads: the number of threads.
        calls: the number of calls of each kind and thread.
        seed: chooses the invalid values.
        call: calls the model, for example through a server; None calls `Model.run`.

    Returns:
        A sentence for each problem; none if the model has no inputs.
    """
    run = model.run if call is None else call
    bindings = decisive_inputs(model.network.graph)
    names = [name for number, name in enumerate(model.inputs) if number in bindings]
    generator = np.random.default_rng(seed)
    kinds = with_bad_values(feeds, names, generator), with_extreme_floats(feeds), with_bad_arrays(feeds)
    bad_feeds = list(itertools.islice(_in_turn(*kinds), threads * calls))
    if not bad_feeds:
        return []
    expected, problems = run(feeds), list[str]()
    caller = partial(_call, model, run, feeds, bad_feeds, expected, calls, problems)
    workers = [threading.Thread(target=caller, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    problems += [f"an event was recorded: {event}" for event in model.events]
    return list(dict.fromkeys(problems))


def _in_turn(*kinds: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield an element of each iterator in turn, until all have ended."""
    for round_of_kinds in itertools.zip_longest(*kinds):
        yield from (feeds for feeds in round_of_kinds if feeds is not None)  # feeds may be empty


def _call(
    model: Model,
    run: Callable[[Feeds], list[Any]],
    feeds: Feeds,
    bad_feeds: list[dict[str, Any]],
    expected: list[Any],
    calls: int,
    problems: list[str],
    thread: int,
) -> None:
    for number in range(calls):
        problems += _of_invalid_call(run, bad_feeds[(thread * calls + number) % len(bad_feeds)])
        problems += _of_valid_call(run, feeds, expected)
        try:
            model.explain()
        except Exception as error:
            problems.append(f"explain raised {type(error).__name__}: {error}")


def _of_invalid_call(run: Callable[[Feeds], list[Any]], feeds: Feeds) -> Iterator[str]:
    try:
        run(feeds)
    except (InvalidValueError, LimitExceededError, BindingError):
        return
    except Exception as error:
        yield f"an invalid value gave {type(error).__name__}: {error}"


def _of_valid_call(run: Callable[[Feeds], list[Any]], feeds: Feeds, expected: list[Any]) -> Iterator[str]:
    try:
        outputs = run(feeds)
    except Exception as error:
        yield f"a valid call gave {type(error).__name__}: {error}"
        return
    for number, (output, expected_output) in enumerate(zip(outputs, expected, strict=True)):
        if not same(output, expected_output):
            yield f"output {number} of a valid call changed"
