"""What the reader and the writer of Arm NN's files share: the schema."""
