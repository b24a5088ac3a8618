"""`Predictor`: runs a model on batches of rows, in the workers of Ray Data, Spark and other batch systems."""

from interposer.batch.predictor import Predictor

__all__ = ["Predictor"]
