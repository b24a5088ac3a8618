"""Memory of callers that a plug-in is given again and again, without a look at it in between."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from interposer import Network, TensorInfo, optimize
from interposer.core.errors import MemoryImportError

WITH_WORKSPACE = """
#include <stdlib.h>
#include <string.h>
#include "interposer/backend.h"

/* Adds its inputs into its workspace, and copies that to the output. */

#define UNUSED(x) (void)x
enum { COUNT = 64 };

static int32_t init(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error) {
  UNUSED(self), UNUSED(host), UNUSED(options), UNUSED(error);
  return IPR_OK;
}

static void stop(void* self) { UNUSED(self); }

static int32_t get_info(void* self, ipr_info* out, ipr_error* error) {
  UNUSED(self), UNUSED(error);
  out->capabilities |= IPR_CAP_CONCURRENT_EXECUTE;
  return IPR_OK;
}

static int32_t support(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                       ipr_error* error) {
  ipr_verdict* all = calloc(graph->layer_count + 1, sizeof *all);
  uint64_t n;
  UNUSED(self), UNUSED(options), UNUSED(error);
  for (n = 0; n < graph->layer_count; ++n) all[n].verdict = IPR_YES;
  out->verdicts = out->owner = all;
  out->verdict_count = graph->layer_count, out->verdict_stride = sizeof *all;
  out->release = free;
  return IPR_OK;
}

static int32_t compile(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                       ipr_error* error) {
  UNUSED(self), UNUSED(graph), UNUSED(options), UNUSED(error);
  out->workspace_size = COUNT * sizeof(float);
  return IPR_OK;
}

static int32_t execute(void* self, void* executable, const ipr_run* run, ipr_error* error) {
  float* room = run->workspace;
  const float *a = run->inputs[0].data, *b = run->inputs[1].data;
  int n;
  UNUSED(self), UNUSED(executable);
  if (run->workspace_size != COUNT * sizeof(float)) {
    return ipr_fail(error, IPR_FAILED, IPR_ITEM_NONE, -1, "no workspace");
  }
  for (n = 0; n < COUNT; ++n) room[n] = a[n] + b[n];
  memcpy(run->outputs[0].data, room, COUNT * sizeof(float));
  return IPR_OK;
}

static const ipr_backend table = {
    .magic = IPR_MAGIC, .struct_size = sizeof(ipr_backend), .init = init, .shutdown = stop, .get_info = get_info,
    .query_support = support, .compile = compile, .execute = execute,
};

IPR_EXPORT const char* GetBackendId(void) { return "Roomy"; }

IPR_EXPORT void GetVersion(uint32_t* major, uint32_t* minor) { *major = IPR_API_MAJOR, *minor = IPR_API_MINOR; }

IPR_EXPORT void* BackendFactory(void) { return (void*)&table; }
"""


def adding() -> Network:
    network = Network("sum")
    a, b = (network.add_input_layer(number, TensorInfo((64,))) for number in range(2))
    network.add_output_layer(0, network.add_addition_layer(a, b))
    return network


def aligned(value: float, offset: int = 0) -> np.ndarray:
    raw = np.empty(64 + 32, np.float32)
    start = (-raw.ctypes.data % 64 + offset) // 4
    raw[start : start + 64] = value
    return raw[start : start + 64]


@pytest.mark.parametrize("source", ["arithmetic.cpp", "kernels.cpp", WITH_WORKSPACE], ids=["one", "other", "roomy"])
def test_a_plug_in_reads_and_writes_imports_in_place(source, backend, runtime_with):
    plugin = backend(source)
    runtime = runtime_with(plugin)
    number = runtime.load_network(optimize(adding(), [plugin.id], runtime.device_spec))
    wrong = []

    def work(seed: int) -> None:
        a, b, y = aligned(seed), aligned(1), aligned(0)
        inputs, outputs = runtime.import_inputs(number, {0: a, 1: b}), runtime.import_outputs(number, {0: y})
        for turn in range(100):
            a += 1
            runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
            if not (y == seed + turn + 2).all():
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_memory_that_does_not_lie_as_the_plug_in_wants_it_is_refused_and_copied_in_a_plain_run(backend, runtime_with):
    plugin = backend("arithmetic.cpp")  # wants 64 bytes
    runtime = runtime_with(plugin)
    number = runtime.load_network(optimize(adding(), [plugin.id], runtime.device_spec))
    odd = aligned(3, 16)
    with pytest.raises(MemoryImportError) as caught:
        runtime.import_inputs(number, {0: odd})
    assert str(caught.value).endswith(
        "backend Arithmetic cannot use it without a copy; the address must be a multiple of 64 bytes"
    )
    assert list(runtime.copy_reasons(number, {0: odd, 1: aligned(1)})) == [("input", 0)]
    target = aligned(0, 4)
    runtime.enqueue_workload(number, {0: odd, 1: aligned(1)}, {0: target})
    assert (target == 4).all()


def test_checking_mode_looks_at_imports_in_every_run(opened, runtime_with):
    from interposer.plugins.capi.running.backend import DynamicBackend

    dynamic_backend = DynamicBackend(opened("kernels.cpp", checking=True))
    runtime = runtime_with(dynamic_backend)
    number = runtime.load_network(optimize(adding(), [dynamic_backend.id], runtime.device_spec))
    y = aligned(0)
    inputs, outputs = (
        runtime.import_inputs(number, {0: aligned(1), 1: aligned(2)}),
        runtime.import_outputs(number, {0: y}),
    )
    for _ in range(2):
        runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
        assert (y == 3).all()
