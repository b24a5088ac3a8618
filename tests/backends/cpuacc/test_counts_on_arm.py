"""The gate on executed instructions of tools/arm.py."""

from __future__ import annotations

from tools.arm import compared, merged

RECORDED = {"cortex-a53": {"add": 1000, "exp": 500}, "neoverse-n1": {"add": 900, "exp": 400}}


def test_a_count_of_two_percent_more_passes_and_of_three_percent_fails(capsys):
    assert compared({"cortex-a53": {"add": 1020}}, RECORDED) == 0
    assert compared({"cortex-a53": {"add": 1030, "exp": 500}}, RECORDED) == 1
    assert "cortex-a53 add: 1030 instructions, 1000 recorded (+3.0%)" in capsys.readouterr().out


def test_a_layer_without_a_recorded_count_fails(capsys):
    assert compared({"cortex-a53": {"new": 10}}, RECORDED) == 1
    assert "cortex-a53 new: 10 instructions, 0 recorded (not recorded)" in capsys.readouterr().out


def test_lower_counts_pass_and_are_reported(capsys):
    assert compared({"cortex-a53": {"add": 900, "exp": 499}}, RECORDED) == 0
    assert "2 counts compared with counts.txt: 0 too high, 1 lower" in capsys.readouterr().out


def test_recording_one_processor_keeps_what_was_not_counted():
    result = merged(RECORDED, {"neoverse-n1": {"exp": 390, "new": 10}})
    assert result == {"cortex-a53": {"add": 1000, "exp": 500}, "neoverse-n1": {"add": 900, "exp": 390, "new": 10}}
