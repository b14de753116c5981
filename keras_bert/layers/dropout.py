"""Dropout with different masks on the replicas of a distribution strategy."""

from collections.abc import MutableMapping
from typing import Any

import keras
import numpy as np

from keras_bert.layers.base_layer import BaseLayer
from keras_bert.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class Dropout(BaseLayer):
    """Zeroes elements with probability `rate` in training, and scales up the others (paper, appendix A.2).

    The state of the random numbers, which start from `seed`, is saved with the layer.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate must be at least 0 and below 1, got {rate}")
        self.rate = rate
        self.seed = seed
        if rate:
            self.seed_generator = keras.random.SeedGenerator(seed)
            if keras.backend.backend() == "tensorflow":
                from keras_bert.layers.tensorflow.fast_dropout import make_trackable

                # tf.train.Checkpoint does not find a SeedGenerator; a resumed run would draw other numbers.
                self.checkpointed_seed_state = make_trackable(self.seed_generator.state)
        self.built = True

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Drops elements of `x` in training."""
        if not training or not self.rate:
            return x
        if keras.backend.backend() != "tensorflow":
            return keras.random.dropout(x, self.rate, seed=self.seed_generator)
        from keras_bert.layers.tensorflow.fast_dropout import dropout

        return dropout(x, self.rate, self.seed_generator.next())

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Saves the state of the random numbers."""
        if self.rate:
            store["seed_generator_state"] = np.array(self.seed_generator.state)

    def load_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Restores the state of the random numbers."""
        if self.rate:
            self.seed_generator.state.assign(store["seed_generator_state"])
