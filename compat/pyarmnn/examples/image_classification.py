"""Classify a picture: python image_classification.py MODEL PICTURE.bmp [--labels FILE] [--backends CpuAcc CpuRef].

The model is a TensorFlow Lite or ONNX file with one image of shape (1, height, width, 3) as input.
"""

import argparse
from pathlib import Path

import numpy as np
from common import Runner, fitting, image, real


def main():
    """Print the five classes with the highest scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("picture")
    parser.add_argument("--labels", help="a file with the name of a class in each line")
    parser.add_argument("--backends", nargs="+", default=["CpuAcc", "CpuRef"])
    parser.add_argument("--names", nargs=2, default=["input", "output"], help="input and output of an ONNX model")
    parser.add_argument("--save", help="write the output to this .npz file")
    arguments = parser.parse_args()

    runner = Runner(arguments.model, arguments.backends, arguments.names)
    [(_, info)], [(_, scores_info)] = runner.inputs, runner.outputs
    shape = info.GetShape()
    [scores] = runner.run(fitting(image(arguments.picture, shape[1], shape[2]), info))
    if arguments.save:
        np.savez(arguments.save, output0=scores)
    labels = Path(arguments.labels).read_text().splitlines() if arguments.labels else None
    numbers = real(scores, scores_info).reshape(-1)
    for place in np.argsort(-numbers, kind="stable")[:5]:
        print(f"{numbers[place]:.4f} {labels[place].strip() if labels else place}")


if __name__ == "__main__":
    main()
