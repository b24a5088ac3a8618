"""The TensorFlow Lite format: its schema as plain data."""
