"""Calls that have their turns. Nothing here says how long anything takes."""

import math
import time

import pytest

from interposer.session.timing import LONG, Timing, take_turns, undecided


def test_turns_go_forwards_and_backwards(monkeypatch):
    monkeypatch.setattr("interposer.session.timing.LONG", math.inf)  # no turn is cut short on a busy machine
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}

    result = take_turns(calls, rounds=2, seconds=0)

    assert "".join(order) == "aaaaaa" + "bbbbbb" * 2 + "aaaaaa"  # three to warm up and three that count
    assert all(len(timing.turns) == 2 and 0 <= timing.least <= min(timing.turns) for timing in result.values())


def test_a_call_that_fails_is_left_out_and_told():
    reported = []

    def broken():
        raise ValueError("broken")

    result = take_turns({"a": broken, "b": int}, 3, 0, lambda name, error: reported.append((name, str(error))))

    assert reported == [("a", "broken")]
    assert {*result} == {"b"}
    with pytest.raises(ValueError, match="broken"):
        take_turns({"a": broken}, 1, 0)


def test_a_ratio_is_taken_turn_by_turn():
    ours, theirs = Timing((1.0, 10.0, 1.0), 1.0), Timing((3.0, 30.0, 9.0), 3.0)

    assert ours.faster_than(theirs) == 3.0
    assert (ours.median, theirs.median) == (1.0, 9.0)


def test_calls_that_take_long_are_made_once_a_turn_and_once_before_it() -> None:
    calls: list[int] = []

    def slow() -> None:
        calls.append(0)
        time.sleep(LONG)

    take_turns({"slow": slow}, rounds=2, seconds=0.0)
    assert len(calls) == 4


def test_what_wins_a_turn_now_and_then_is_not_settled():
    best = Timing((1.0, 1.0, 1.0, 1.0, 1.0, 1.0), 1.0)
    close = Timing((1.1, 0.9, 1.1, 0.9, 1.1, 1.1), 0.9)
    slower = Timing((1.1, 0.9, 1.1, 1.1, 1.1, 1.1), 0.9)

    assert undecided({"slower": slower, "close": close, "best": best}) == ["best", "close"]
    assert undecided({}) == []


def test_turns_are_put_behind_others():
    assert Timing((2.0, 3.0), 1.0).followed_by(Timing((4.0,), 0.5)) == Timing((2.0, 3.0, 4.0), 0.5)
