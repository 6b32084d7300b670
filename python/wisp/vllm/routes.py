"""HTTP routes of a server that follows a run, and the task that moves it in self mode."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from ..errors import Error, Invalid, Unavailable
from .conductor import Conductor, self_owner
from .settings import InitInfo, configured, same_run

__all__ = ["WispRoutes", "attach_to_server"]

_log = logging.getLogger("wisp.engine")
_MODES = ("keep", "wait", "abort")
_AGAIN = 5.0  # seconds after a switch that failed, in self mode


def attach_to_server() -> None:
    """Gives servers with the backend wisp their routes.

    vLLM wants routes of plugins named in VLLM_PLUGINS, since they are open to the network. Here
    `--weight-transfer-config` names the plugin.
    """
    from vllm import plugins

    original = plugins.load_endpoint_plugins
    if getattr(original, "knows_wisp", False):
        return

    def load_endpoint_plugins(*args: Any, **kwargs: Any) -> list[Any]:
        loaded = original(*args, **kwargs)
        if not any(isinstance(plugin, WispRoutes) for plugin in loaded):
            loaded = [*loaded, WispRoutes()]
        return loaded

    load_endpoint_plugins.knows_wisp = True  # type: ignore[attr-defined]
    plugins.load_endpoint_plugins = load_endpoint_plugins


class WispRoutes:
    """vLLM's EndpointPlugin."""

    name = "wisp"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._server: _Server | None = None

    def attach_router(self, app: FastAPI) -> None:
        """Adds the routes, unless the server has another backend."""
        args = getattr(app.state, "args", None)
        config = getattr(args, "weight_transfer_config", None)
        config = config if isinstance(config, dict) else vars(config or object)
        if config.get("backend") != "wisp":
            return
        router = APIRouter(prefix="/wisp")
        for path, method, handler in (
            ("/status", "GET", self._status),
            ("/init", "POST", self._init),
            ("/update", "POST", self._update),
            ("/verify", "POST", self._verify),
        ):
            router.add_api_route(path, handler, methods=[method])
        app.include_router(router)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Called when the engine is up."""
        config = getattr(engine_client, "vllm_config", None)
        transfer = config and config.weight_transfer_config
        if transfer is not None and transfer.backend == "wisp":
            self._server = _Server(engine_client, args)

    async def _status(self, request: Request) -> JSONResponse:
        async def answer(server: _Server) -> dict[str, Any]:
            asked = request.query_params
            if "step" not in asked:
                return server.conductor.status()
            wait = min(float(asked.get("wait", 0)), 3600.0)
            step = int(asked["step"])
            return await server.threaded(server.conductor.wait_status, step, wait)

        return await self._answer(request, answer)

    async def _init(self, request: Request) -> JSONResponse:
        async def answer(server: _Server) -> dict[str, Any]:
            told = await _body(request)
            return await server.init(told.get("init_info", told))

        return await self._answer(request, answer)

    async def _update(self, request: Request) -> JSONResponse:
        async def answer(server: _Server) -> dict[str, Any]:
            return await server.update(await _body(request))

        return await self._answer(request, answer)

    async def _verify(self, request: Request) -> JSONResponse:
        async def answer(server: _Server) -> dict[str, Any]:
            async with server.moving:
                counts = await server.core("wisp_verify")
            return {"differing": sum(counts), "ranks": len(counts)}

        return await self._answer(request, answer)

    async def _answer(
        self, request: Request, answer: Callable[[_Server], Awaitable[dict[str, Any]]]
    ) -> JSONResponse:
        server = self._server
        if server is None:
            return _error(503, "the server is not up yet")
        if not server.admits(request):
            return _error(401, "Unauthorized")
        try:
            return JSONResponse(await answer(server))
        except (ValueError, TypeError) as error:
            code = 409 if isinstance(error, Error) else 400
            return _error(code, str(error))
        except Error as error:
            return _error(503 if isinstance(error, Unavailable) else 409, str(error))
        except Exception as error:  # noqa: BLE001 - a driver must get an answer
            _log.exception("a request failed")
            return _error(500, f"{type(error).__name__}: {error}")


class _Server:
    def __init__(self, engine_client: Any, args: Namespace) -> None:
        self._client = engine_client
        self.conductor = Conductor(engine_client.vllm_config)
        self.moving = asyncio.Lock()
        self._configured = configured(engine_client.vllm_config)
        keys = [*(getattr(args, "api_key", None) or []), os.environ.get("VLLM_API_KEY", "")]
        self._keys = [hashlib.sha256(key.encode()).digest() for key in keys if key]
        self._by_itself = asyncio.get_running_loop().create_task(self._follow())

    def admits(self, request: Request) -> bool:
        """The same keys that guard /v1."""
        if not self._keys:
            return True
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        said = hashlib.sha256(token.encode()).digest()
        known = [secrets.compare_digest(said, key) for key in self._keys]
        return scheme.lower() == "bearer" and any(known)

    async def threaded(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(work, *args)

    async def core(self, method: str, *args: Any) -> Any:
        return await self._client.engine_core.call_utility_async(method, *args)

    async def init(self, told: dict[str, Any]) -> dict[str, Any]:
        info = InitInfo(**told)
        now = self.conductor.info()
        fixed = now or self._configured
        if fixed is not None and not same_run(fixed.run, info.run):
            raise Invalid(f"this server follows {fixed.run}, not {info.run}")
        if now is None:
            from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

            request = WeightTransferInitRequest(init_info=info.as_dict())
            await self._client.init_weight_transfer_engine(request)
        return self.conductor.status()

    async def update(self, told: dict[str, Any]) -> dict[str, Any]:
        unknown = set(told) - {"step", "mode", "timeout", "recompute"}
        mode, step = told.get("mode", "keep"), told.get("step")
        if unknown or mode not in _MODES or not isinstance(step, int | None):
            raise ValueError(
                f"an update has `step` (a number or null), `mode` ({', '.join(_MODES)}), `timeout` "
                f"and `recompute`; this one says {told}"
            )
        end = time.monotonic() + float(told.get("timeout", 300.0))
        async with self.moving:
            while True:
                left = max(0.0, end - time.monotonic())
                target = await self.threaded(self.conductor.ready, step, left)
                if target.served:
                    return target.answer()
                with contextlib.suppress(Unavailable):
                    return await self._switch(target.key, mode, bool(told.get("recompute")))
                if time.monotonic() >= end:
                    raise Unavailable(self.conductor.faults[-1])

    async def _switch(self, key: str, mode: str, recompute: bool) -> dict[str, Any]:
        answer = await self.core("wisp_update", key, mode, recompute)
        return self.conductor.note_switch(answer)

    async def _follow(self) -> None:
        """In self mode: whatever is staged is switched to, between two steps of the engine."""
        owner = False
        while True:
            try:
                info = self.conductor.info()
                if info is None or info.mode != "self":
                    await asyncio.sleep(0.2)
                    continue
                owner = owner or self_owner()
                if not owner:
                    return
                key = await self.threaded(self.conductor.wait_ahead, 1.0)
                if key is not None:
                    async with self.moving:
                        await self._switch(key, "keep", info.recompute)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the next step may do
                _log.warning("the switch failed, the step before is served on: %s", error)
                await asyncio.sleep(_AGAIN)


async def _body(request: Request) -> dict[str, Any]:
    raw = await request.body()
    if not raw:
        return {}
    told = await request.json()
    if not isinstance(told, dict):
        raise ValueError("the body must be a JSON object")
    return told


def _error(code: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=code)
