"""Recognize spoken words: python keyword_spotting.py MODEL FEATURES.npy [--backends CpuAcc CpuRef].

The model is a TensorFlow Lite file whose input is a spectrogram of a second of sound. FEATURES.npy has spectrograms in
the input's type and shape, one after the other along a first dimension.
"""

import argparse

import numpy as np
from common import Runner, real

WORDS = ["down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown"]


def main():
    """Print the word with the highest score for each spectrogram, and the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("features")
    parser.add_argument("--backends", nargs="+", default=["CpuAcc", "CpuRef"])
    parser.add_argument("--save", help="write the outputs to this .npz file")
    arguments = parser.parse_args()

    runner, outputs = Runner(arguments.model, arguments.backends), []
    [(_, info)] = runner.outputs
    for features in np.load(arguments.features):
        [scores] = runner.run(np.ascontiguousarray(features))
        outputs.append(scores.copy())
        numbers = real(scores, info).reshape(-1)
        print(f"{WORDS[numbers.argmax()] if len(numbers) == len(WORDS) else numbers.argmax()} {numbers.max():.4f}")
    if arguments.save:
        np.savez(arguments.save, **{f"output{number}": array for number, array in enumerate(outputs)})


if __name__ == "__main__":
    main()
