"""Training beyond Keras' `fit`: the names that a program of one's own needs, loaded when first used.

Example:

>>> keras_bert.training.Trainer.__name__
'Trainer'
"""

import importlib

_LAZY_NAMES = {
    "Cluster": "cluster",
    "RunDirectory": "run_dir",
    "TrainStep": "step",
    "Trainer": "trainer",
    "TrainerSettings": "trainer_settings",
    "TrainingDiverged": "trainer",
    "TrainingInterrupted": "trainer",
    "WorkerLostError": "cluster",
    "make_strategy": "strategy",
}

__all__ = [*_LAZY_NAMES]


def __getattr__(name):
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its public names are {sorted(__all__)}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
