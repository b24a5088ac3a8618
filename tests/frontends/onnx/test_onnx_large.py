"""Models whose weights take more than 2 GiB: they lie beside the model and are mapped, not read."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

ROWS, WIDTH = 10_000_000, 64
BYTES = ROWS * WIDTH * 4  # 2.56 GB
ROOT = Path(__file__).resolve().parents[3]

RUN = """
import resource, sys
import numpy as np
import interposer as ip
resource.setrlimit(resource.RLIMIT_DATA, (1 << 31, 1 << 31))  # what is mapped from files does not count
model = ip.load(sys.argv[1], backends=["CpuRef"])
first = model({"rows": np.int64([3, 9_999_999, 0])})
print(first[:, 0].tolist())
"""


def embedding(folder):
    """A table of rows in a file with holes, so that it takes hardly any room on the disk; three rows are not zero."""
    with open(folder / "table.bin", "wb") as file:
        for row in (0, 3, ROWS - 1):
            file.seek(row * WIDTH * 4)
            file.write(np.full(WIDTH, row + 1, np.float32).tobytes())
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[ROWS, WIDTH])
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value="table.bin")
    rows = helper.make_tensor_value_info("rows", TensorProto.INT64, [3])
    tensor_value_info = helper.make_tensor_value_info("found", TensorProto.FLOAT, [3, WIDTH])
    node = helper.make_node("Gather", ["table", "rows"], ["found"])
    graph = helper.make_graph([node], "embedding", [rows], [tensor_value_info], [table])
    path = folder / "embedding.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def holes_cost_nothing(folder):
    probe = folder / "probe"
    with open(probe, "wb") as file:
        file.truncate(1 << 24)
    return os.stat(probe).st_blocks * 512 < 1 << 20


@pytest.mark.needs_cpuref
def test_a_table_of_more_than_2_gib_is_mapped_and_only_the_rows_that_are_asked_for_are_read(tmp_path):
    if not holes_cost_nothing(tmp_path):
        pytest.skip("the file system stores holes in files")
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < 2 * BYTES:
        pytest.skip("the process may not map that much")
    command = [sys.executable, "-c", RUN, str(embedding(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[4.0, 10000000.0, 1.0]"
