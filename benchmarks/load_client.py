"""Sends requests at a constant rate and checks every answer; run by locust, in a process of its own.

The environment variable LOAD_JOB is a JSON object: `requests`, a file of pairs of a text and its answer; `pacing`,
seconds between requests of a user; `tries`, the maximum number of times that a request is sent while the answer is
503; and `output`, a file for a list with an object per request.
"""

import itertools
import json
import os
import time
from pathlib import Path

from locust import FastHttpUser, constant_pacing, events, task

JOB = json.loads(os.environ["LOAD_JOB"])
REQUESTS = itertools.cycle(json.loads(Path(JOB["requests"]).read_text()))
ANSWERS = []


def is_right(response, expected):
    """Compares numbers to 1e-5: padding to the longest row of a batch changes the last digits."""
    try:
        (answer,) = response.json()["predictions"]
        scores = zip(answer["probabilities"], expected["probabilities"], strict=True)
        return answer["label"] == expected["label"] and all(abs(a - b) <= 1e-5 for a, b in scores)
    except (KeyError, TypeError, ValueError):  # of another form
        return False


class User(FastHttpUser):
    """A client that sends a request every few seconds."""

    wait_time = constant_pacing(JOB["pacing"])
    connection_timeout = network_timeout = 60.0

    @task
    def predict(self):
        """Sends the next text, again if the server refuses it for now."""
        text, expected = next(REQUESTS)
        start = time.monotonic()
        for tries in range(1, JOB["tries"] + 1):
            request = {"json": {"instances": [text]}, "catch_response": True}
            with self.client.post("/v1/models/reviews:predict", **request) as response:
                response.success()  # the outcome is ours
                status = response.status_code
                if status != 503 or tries == JOB["tries"]:
                    break
                time.sleep(float(response.headers["Retry-After"]))
        if status == 200:
            outcome = "right" if is_right(response, expected) else "wrong"
        else:
            outcome = f"status {status}" if status else f"without answer ({response.error})"
        milliseconds = 1e3 * (time.monotonic() - start)
        ANSWERS.append({"start": start, "milliseconds": milliseconds, "outcome": outcome, "tries": tries})


@events.quit.add_listener
def write(exit_code, **_):
    """Writes the outcomes."""
    Path(JOB["output"]).write_text(json.dumps(ANSWERS))
