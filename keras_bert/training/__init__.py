"""Training beyond Keras' `fit`: the public names for custom training programs, loaded on first use.

Example:

>>> keras_bert.training.Trainer.__name__
'Trainer'
"""

import importlib
from typing import Any

_LAZY_NAMES = {
    "Cluster": "cluster",
    "RunDirectory": "run_dir",
    "TrainStep": "step",
    "Trainer": "trainer",
    "TrainerSettings": "trainer_settings",
    "TrainingDiverged": "trainer",
    "TrainingInterrupted": "trainer",
    "WorkerLostError": "lost_workers",
    "make_strategy": "strategy",
}

__all__ = [*_LAZY_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its public names are {sorted(__all__)}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
