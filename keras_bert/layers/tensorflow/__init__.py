"""Fast paths that the layers take when Keras runs on TensorFlow.

Each computes what its layer's `keras.ops` form computes, with a handwritten gradient that reads the activations less
often than TensorFlow's own. These gradients cannot be differentiated again: doing so raises.
"""
