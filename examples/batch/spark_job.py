"""Recognize the digits in Parquet files with Spark.

Spark writes the files of a job to a temporary folder and moves them at the end, so a task that is repeated because its
worker was killed adds no row twice, and a job that failed leaves no result.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType

from interposer.batch import Predictor

MODEL = Path(__file__).resolve().parents[1] / "digits" / "digits.onnx"


def main() -> None:
    """Predict all rows of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="a folder of Parquet files with the columns id and pixels (64 numbers)")
    parser.add_argument("target", help="the folder for the results; an earlier result is replaced")
    parser.add_argument(
        "--master", default="local[2,4]", help="the address of Spark; here 2 tasks at a time, 4 attempts"
    )
    args = parser.parse_args()
    predict = Predictor(MODEL)

    def make_predict() -> Callable[..., Any]:
        return predict.arrays

    probabilities = predict_batch_udf(
        make_predict, return_type=ArrayType(FloatType()), batch_size=256, input_tensor_shapes=[[1, 8, 8]]
    )
    spark = (
        SparkSession.builder.master(args.master).config("spark.executorEnv.INTERPOSER_NUM_THREADS", "1").getOrCreate()
    )
    rows = spark.read.parquet(args.source)
    rows.select("id", probabilities("pixels").alias("probabilities")).write.mode("overwrite").parquet(args.target)
    spark.stop()


if __name__ == "__main__":
    main()
