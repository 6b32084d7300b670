"""A fleet on Ray: a trainer's publisher, a feed per node, and vLLM servers that Ray keeps alive.

    publisher = PublisherActor.remote("s3://bucket/run")
    fleet = Fleet("s3://bucket/run", "/models/policy", gpus_per_replica=1)
    step = ray.get(publisher.publish.remote(weights))["step"]
    fleet.move(step)

See doc/frameworks/ray.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..frameworks.seams import find_seam

if TYPE_CHECKING:
    from .actors import FeedActor, PublisherActor, ReplicaActor
    from .fleet import Fleet

__all__ = ["FeedActor", "Fleet", "PublisherActor", "ReplicaActor"]

#: What actors and fleet use of Ray.
_SEAMS = {
    "ray": ("ObjectRef", "exceptions", "get", "kill", "nodes", "remote", "wait"),
    "ray.util.scheduling_strategies": ("NodeAffinitySchedulingStrategy",),
}


def __getattr__(name: str) -> object:
    # The process around a server is of this package, and has no use for Ray.
    if name in __all__:
        for module, names in _SEAMS.items():
            find_seam("ray", "2.60.0", module, *names)
    if name == "Fleet":
        from .fleet import Fleet

        return Fleet
    if name in __all__:
        from . import actors

        return getattr(actors, name)
    raise AttributeError(f"module 'wisp.ray' has no attribute '{name}'")
