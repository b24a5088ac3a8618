"""The TFLite front end."""
