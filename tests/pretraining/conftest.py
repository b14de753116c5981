import pytest
from absl import logging


@pytest.fixture
def warnings(monkeypatch):
    """Logged warnings."""
    messages = []
    monkeypatch.setattr(logging, "warning", lambda message, *arguments: messages.append(message % arguments))
    return messages
