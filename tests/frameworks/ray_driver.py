"""A driver of a fleet, as a process that can be killed: publishes a step, and does not switch to it.

usage: python ray_driver.py ADDRESS RUN MODEL FLEET_OPTIONS_AS_JSON
Prints the servers' URLs, as JSON, when the step is in the run.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import ray
from byte_model import weights_of
from test_ray import moved, rollouts

from wisp.ray import Fleet, PublisherActor

if __name__ == "__main__":
    address, run, model, options = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, namespace="wisp")
    publisher = PublisherActor.remote(run)
    weights = weights_of(Path(model))
    ray.get(publisher.publish.remote(weights, 0))
    fleet = Fleet(run, model, on_node=rollouts, **json.loads(options))
    fleet.wait_ready(900)
    fleet.move(0)
    ray.get(publisher.publish.remote(moved(weights, 1), 1))
    print(json.dumps(fleet.urls), flush=True)
    signal.pause()
