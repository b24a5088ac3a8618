"""Backends whose workloads fail to report their memory."""

import logging

import numpy as np

import interposer as ip
from interposer.backend import Backend, KernelTable, KernelWorkloadFactory, Workload
from interposer.ops import Addition

kernels = KernelTable()


@kernels(Addition)
def addition(op, a, b):
    return a + b


class Doubling(Workload):
    def execute(self, inputs, outputs):
        with inputs[0].mapped() as x, outputs[0].mapped() as y:
            y[...] = x * 2

    @property
    def memory(self):
        raise OSError("the device is busy")


class Factory(KernelWorkloadFactory):
    def create_workload(self, layer, info):
        return Doubling()


class Silent(Backend):
    id = "Silent"
    kernels = kernels

    def create_workload_factory(self, memory_manager, options):
        return Factory(kernels, memory_manager)


def test_a_network_is_loaded_if_a_workload_fails_to_report_its_memory(caplog):
    network = ip.Network("twice")
    x = network.add_input_layer(0, ip.TensorInfo((4,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
    with ip.Runtime() as runtime, caplog.at_level(logging.WARNING, "interposer.runtime"):
        runtime.registry.register("Silent", Silent)
        model = ip.load(network, ["Silent"], runtime=runtime)
        assert model(np.ones(4, np.float32)).tolist() == [2, 2, 2, 2]
        assert model.memory().unknown == ("Silent",)
    assert caplog.messages[-1] == "backend Silent does not report the memory of layer 'sum': the device is busy"
