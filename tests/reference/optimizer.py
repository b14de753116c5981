"""The original's optimizer and learning rate schedule in NumPy (google-research/bert `optimization.py`)."""

import numpy as np


def learning_rate(step, peak, num_train_steps, num_warmup_steps, decay, end=0.0):
    """Returns the rate of one step, in double precision."""
    if step < num_warmup_steps:
        return peak * step / num_warmup_steps
    start = num_warmup_steps if decay == "linear" else 0
    done = min(step, num_train_steps) - start
    return (peak - end) * (1 - done / (num_train_steps - start)) + end


def global_norm(gradients):
    """Returns the square root of the sum of the squares of all numbers in all gradients."""
    return np.sqrt(sum(float(number) ** 2 for gradient in gradients for number in gradient.ravel()))


class AdamWeightDecay:
    """The original's update of a dict of variables, in double precision; `decayed` names those with weight decay."""

    def __init__(self, variables, decayed, weight_decay=0.01, clip_norm=1.0, bias_correction=False, epsilon=1e-6):
        self.variables = {name: np.array(value, np.float64) for name, value in variables.items()}
        self.m = {name: np.zeros_like(value) for name, value in self.variables.items()}
        self.v = {name: np.zeros_like(value) for name, value in self.variables.items()}
        self.decayed = decayed
        self.weight_decay, self.clip_norm = weight_decay, clip_norm
        self.bias_correction, self.epsilon = bias_correction, epsilon
        self.beta_1, self.beta_2 = 0.9, 0.999
        self.steps = 0

    def apply(self, gradients, rate):
        """Updates in place from a dict of gradients, in which a variable may be missing."""
        self.steps += 1
        norm = global_norm(gradients.values())
        m_correction = 1 - self.beta_1**self.steps if self.bias_correction else 1.0
        v_correction = 1 - self.beta_2**self.steps if self.bias_correction else 1.0
        for name, gradient in gradients.items():
            gradient = np.asarray(gradient, np.float64)
            if self.clip_norm is not None and norm > self.clip_norm:
                gradient = gradient * self.clip_norm / norm
            self.m[name] = self.beta_1 * self.m[name] + (1 - self.beta_1) * gradient
            self.v[name] = self.beta_2 * self.v[name] + (1 - self.beta_2) * gradient**2
            update = self.m[name] / m_correction / (np.sqrt(self.v[name] / v_correction) + self.epsilon)
            if name in self.decayed:
                update = update + self.weight_decay * self.variables[name]
            self.variables[name] = self.variables[name] - rate * update
