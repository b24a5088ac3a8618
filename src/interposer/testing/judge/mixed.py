"""Valid calls of a model mixed with invalid ones from several threads: no call may change what another one gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from interposer.core.errors import InvalidValueError, LimitExceededError
from interposer.core.types import Array
from interposer.session import Model
from interposer.testing.bad_values import decisive_inputs, with_bad_values
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

    An invalid call may only raise `InvalidValueError` or `LimitExceededError`, or give any result. Every valid call
    must give the same results, bit for bit, also while others are under way. `Model.explain` must always succeed, and
    no backend may be disabled.

    Args:
        model: the model, whose backends give the same bits in every run.
        feeds: valid inputs by name.
        threads: the number of threads.
        calls: the number of calls of each kind and thread.
        seed: chooses the invalid values.
        call: calls the model, for example through a server; None calls `Model.run`.

    Returns:
        A sentence for each problem; none if the model has no inputs that are indices or sizes.
    """
    run = model.run if call is None else call
    bindings = decisive_inputs(model.network.graph)
    names = [name for number, name in enumerate(model.inputs) if number in bindings]
    bad_feeds = list(with_bad_values(dict(feeds), names, np.random.default_rng(seed)))
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


def _call(
    model: Model,
    run: Callable[[Feeds], list[Any]],
    feeds: Feeds,
    bad_feeds: list[dict[str, Array]],
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
    except (InvalidValueError, LimitExceededError):
        return
    except Exception as error:
        yield f"an invalid value gave {type(error).__name__}: {error}"


def _of_valid_call(run: Callable[[Feeds], list[Any]], feeds: Feeds, expected: list[Any]) -> Iterator[str]:
    try:
        outputs = run(feeds)
    except Exception as error:
        yield f"a valid call gave {type(error).__name__}: {error}"
        return
    for number, (output, right) in enumerate(zip(outputs, expected, strict=True)):
        if not same(output, right):
            yield f"output {number} of a valid call changed"
