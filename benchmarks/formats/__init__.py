"""Whole classifiers and a detector as files of TensorFlow and Caffe, run by Interposer and by other readers."""
