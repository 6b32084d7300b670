"""A server without weights, as a process: what a fleet sees of vLLM, started in a second.

usage: python scripted_server.py HOST PORT
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from engine_servers import ScriptedVllm


class HealthyServer(ScriptedVllm):
    """Also answers /health, and has nothing that could differ."""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path == "/health":
            return 200, {}
        if path == "/wisp/verify":
            return 200, {"differing": 0}
        return super().answer(method, path, body)


if __name__ == "__main__":
    HealthyServer(int(sys.argv[2]), host=sys.argv[1])
    threading.Event().wait()
