"""Front ends: each turns a model file, or plain data, into a `Network`."""
