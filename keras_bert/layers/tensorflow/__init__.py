"""The part of this room that needs TensorFlow: fast paths that the layers take when Keras runs on it.

Each computes what its layer's `keras.ops` form computes, and brings a gradient written by hand that passes over the
activations less often than the one TensorFlow would derive. These gradients cannot be differentiated again: trying to
raises.
"""
