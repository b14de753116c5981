"""Clients of TensorFlow Serving, one for each of its protocols."""
