"""The options of bridges: texts by name."""

from __future__ import annotations

import pytest

import interposer as ip
from interposer.bridges.options import BridgeOptions, bridge_options
from interposer.errors import InterposerError, InvalidArgumentError


def test_every_option_is_read():
    options = bridge_options(
        {
            "backends": "CpuAcc, CpuRef,CpuAcc",
            "min_nodes": "3",
            "threads": "2",
            "isolate": "CpuRef",
            "strict": "yes",
            "explain": "report.txt",
            "reduce-fp32-to-fp16": "on",
            "cache_dir": "/cache",
            "options.CpuAcc.NumberOfThreads": "1",
        }
    )
    assert options == BridgeOptions(
        backends=("CpuAcc", "CpuRef"), backend_options={"CpuAcc": {"NumberOfThreads": "1"}}, min_nodes=3, threads=2,
        isolate=("CpuRef",), strict=True, explain="report.txt", float16=True,
        cache_folder="/cache",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"backend": "CpuRef"},
            "there is no option 'backend'; did you mean 'backends'? (there are: backends, min-nodes, threads, isolate, "
            "strict, explain, plan, cache-dir, reduce-fp32-to-fp16, options.<backend>.<name>)",
        ),
        ({"backends": " , "}, "the option 'backends' is ' , '; expected ids of backends, such as CpuAcc,CpuRef"),
        ({"threads": "0"}, "the option 'threads' is '0'; expected a whole number from 1 to 4096"),
        ({"threads": "many"}, "the option 'threads' is 'many'; expected a whole number from 1 to 4096"),
        (
            {"plam": "plan.json"},
            "there is no option 'plam'; did you mean 'plan'? (there are: backends, min-nodes, "
            "threads, isolate, strict, explain, plan, cache-dir, reduce-fp32-to-fp16, options.<backend>.<name>)",
        ),
        (
            {"plan": "/no/plan.json"},
            "the option 'plan': /no/plan.json: the plan cannot be read: No such file or directory",
        ),
        ({"cache-dir": " "}, "the option 'cache-dir' is ' '; expected the path of a folder"),
        ({"strict": "perhaps"}, "the option 'strict' is 'perhaps'; expected true or false"),
        (
            {"options.CpuAcc": "1"},
            "the option 'options.CpuAcc' names no option of a backend; expected options.<backend>.<name>, such as "
            "options.CpuAcc.NumberOfThreads",
        ),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write_instead(texts, message):
    with pytest.raises(InvalidArgumentError) as caught:
        bridge_options(texts)
    assert str(caught.value) == message


def test_a_plan_has_its_own_backends(tmp_path):
    path = str(tmp_path / "plan.json")
    ip.Plan("net", ["CpuRef"], {"a": "Acme"}).save(path)
    options = bridge_options({"plan": path}, ["Vendor"])
    assert (options.backends, options.plan) == (("CpuRef", "Acme"), ip.Plan.load(path))
    with pytest.raises(InvalidArgumentError) as caught:
        bridge_options({"plan": path, "backends": "CpuRef"})
    assert str(caught.value) == ("the plan has its own backends (CpuRef); give either the option 'plan' or 'backends'")


def test_the_backends_of_a_vendor_are_the_default():
    assert bridge_options({}, ["Acme"]).backends == ("Acme",)
    assert bridge_options({"backends": "CpuRef"}, ["Acme"]).backends == ("CpuRef",)


@pytest.mark.needs_cpuref
def test_without_a_name_the_default_backends_take_nodes_and_the_reference_leaves_them_to_the_host():
    assert bridge_options({}).backends == ("CpuRef",)  # the only one, as the tests disable CpuAcc


def test_an_unknown_backend_is_named_with_the_nearest():
    options = bridge_options({"backends": "CpuRef", "options.CpuReff.speed": "1"})
    with pytest.raises(InterposerError, match=r"CpuReff.*did you mean 'CpuRef'"):
        options.optimizer_options()


def test_networks_with_the_same_options_share_a_runtime():
    first, second = (bridge_options({"backends": "CpuRef", "isolate": "CpuRef"}) for _ in range(2))
    assert first.runtime() is second.runtime()
    assert first.runtime().options.isolate == ("CpuRef",)


def test_networks_with_different_numbers_of_threads_share_a_runtime():
    first, second = (bridge_options({"backends": "CpuRef", "threads": text}) for text in ("1", "2"))
    assert first.runtime() is second.runtime()


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_is_the_option_of_backends_that_have_it(cpuacc, threads):
    options = bridge_options({"backends": "CpuAcc,CpuRef", "threads": str(threads)})
    assert options.optimizer_options().model_options == {"CpuAcc": {"NumberOfThreads": threads}}


def test_a_number_of_threads_that_a_backend_has_of_its_own_prevails(cpuacc):
    texts = {"backends": "CpuAcc", "threads": "2", "options.CpuAcc.NumberOfThreads": "1"}
    assert bridge_options(texts).optimizer_options().model_options == {"CpuAcc": {"NumberOfThreads": 1}}


def test_many_threads_are_as_many_as_a_backend_takes(cpuacc):
    texts = {"backends": "CpuAcc", "threads": "4096"}
    assert bridge_options(texts).optimizer_options().model_options == {"CpuAcc": {"NumberOfThreads": 256}}


def test_the_number_of_threads_is_also_that_of_the_backends_of_a_plan(cpuacc, tmp_path):
    ip.Plan("net", ["CpuAcc", "CpuRef"], {}).save(tmp_path / "plan.json")
    options = bridge_options({"plan": str(tmp_path / "plan.json"), "threads": "3"})
    assert options.optimizer_options().model_options == {"CpuAcc": {"NumberOfThreads": 3}}
