"""Find objects in a picture: python object_detection.py MODEL PICTURE.bmp [--threshold 0.5] [--backends CpuAcc CpuRef].

The model is a TensorFlow Lite file that ends with TFLite_Detection_PostProcess, such as an SSD. Its outputs are boxes
of shape (1, N, 4) as top, left, bottom and right from 0 to 1, classes and scores of shape (1, N), and the number of
boxes.
"""

import argparse

import numpy as np
from common import Runner, fitting, image


def main():
    """Print the class, the score and the box of each object whose score reaches the threshold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("picture")
    parser.add_argument("--threshold", type=float, default=0.5)
    parser.add_argument("--backends", nargs="+", default=["CpuAcc", "CpuRef"])
    parser.add_argument("--save", help="write the outputs to this .npz file")
    arguments = parser.parse_args()

    runner = Runner(arguments.model, arguments.backends)
    [(_, info)] = runner.inputs
    shape = info.GetShape()
    results = runner.run(fitting(image(arguments.picture, shape[1], shape[2]), info))
    if arguments.save:
        np.savez(arguments.save, **{f"output{number}": array for number, array in enumerate(results)})
    boxes, classes, scores, count = results
    for place in range(int(count[0])):
        if scores[0, place] >= arguments.threshold:
            corners = " ".join(f"{corner:.3f}" for corner in boxes[0, place])
            print(f"{int(classes[0, place])} {scores[0, place]:.3f} {corners}")


if __name__ == "__main__":
    main()
