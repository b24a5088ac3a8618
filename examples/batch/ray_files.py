"""Recognize the digits in a folder of Parquet files with Ray, each row exactly once.

A task reads one file, and writes its result under the same name, with a rename at the end. A task that is repeated
because its actor was killed replaces only its own file. A job that is started again after a crash continues with the
files that have no result yet.
"""

from __future__ import annotations

import argparse
import uuid
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import ray

from interposer.batch import Predictor

MODEL = Path(__file__).resolve().parents[1] / "digits" / "digits.onnx"


class PredictFile:
    """Predicts the rows of one file in each call. Ray creates one object in each actor."""

    def __init__(self, predict: Predictor, target: str) -> None:
        self._predict, self._target = predict, Path(target)

    def __call__(self, file: dict[str, str]) -> dict[str, int]:
        source = Path(file["path"])
        table = pyarrow.parquet.read_table(source)
        pixels = np.stack(table["pixels"].to_numpy()).reshape(-1, 1, 8, 8)
        result = self._predict({"id": table["id"].to_numpy(), "pixels": pixels})
        digits = pyarrow.table({"id": result["id"], "digit": result["probabilities"].argmax(axis=-1)})
        partial = self._target / f".{source.name}.{uuid.uuid4().hex}"
        pyarrow.parquet.write_table(digits, partial)
        partial.replace(self._target / source.name)
        return {"rows": len(digits)}


def main() -> None:
    """Predict the files that have no result yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "source", type=Path, help="a folder of Parquet files with the columns id and pixels (64 numbers)"
    )
    parser.add_argument("target", type=Path, help="the folder for the results")
    parser.add_argument("--actors", type=int, default=2, help="how many processes predict")
    parser.add_argument("--cpus", type=float, default=0.5, help="processors that one of them reserves")
    parser.add_argument("--patience", type=int, default=300, help="seconds without progress after which the job fails")
    args = parser.parse_args()
    args.target.mkdir(parents=True, exist_ok=True)
    absent = sorted(path for path in args.source.glob("*.parquet") if not (args.target / path.name).exists())
    print(f"{len(absent)} files have no result")
    if absent:
        ray.data.DataContext.get_current().execution_no_progress_timeout_s = args.patience
        predict = Predictor(MODEL, inputs={"image": "pixels"}, keep=["id"])
        files = ray.data.from_items(
            [{"path": str(path.absolute())} for path in absent], override_num_blocks=len(absent)
        )
        results = files.map(
            PredictFile,
            fn_constructor_args=(predict, str(args.target.absolute())),
            compute=ray.data.ActorPoolStrategy(size=args.actors),
            num_cpus=args.cpus,  # a fraction: the other tasks of the job need processors too
            runtime_env={"env_vars": {"INTERPOSER_NUM_THREADS": "1"}},
        )
        print(f"{sum(row['rows'] for row in results.iter_rows())} rows are predicted")


if __name__ == "__main__":
    main()
