"""What the reader and the writer of a model file format share."""
