"""HTTP routes of a server that follows a run, and the task that moves it in self mode."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import os
import secrets
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from ..errors import DeniedError, Error, InternalError, InvalidError, UnavailableError
from .backend import is_ours
from .fan_out import ask_engines, values_of
from .metrics import show_metrics
from .settings import ALLOW_INIT, InitInfo, configured, may_strangers_init, same_run
from .update_coordinator import UpdateCoordinator, self_owner
from .versions import told_lack

__all__ = ["WispRoutes", "attach_to_server"]

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("wisp.engine")
_MODES = ("keep", "wait", "abort")
_FIT = 5.0  # seconds that an init waits for the ranks to know whether the run fits
_RETRY = 0.2  # seconds after a switch that may do a moment later
_AGAIN = 5.0  # seconds after a switch that failed, in self mode
_CODES = {
    UnavailableError: 503,
    DeniedError: 403,
    InternalError: 500,
}  # all other errors of wisp: 409
#: Who comes with one of these speaks for somebody else: a proxy, or a browser for some page.
_GO_BETWEENS = ("origin", "forwarded", "x-forwarded-for", "x-real-ip", "via")


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
        loaded: list[Any] = original(*args, **kwargs)
        if isinstance(loaded, list) and not any(isinstance(p, WispRoutes) for p in loaded):
            loaded = [*loaded, WispRoutes()]
        return loaded

    load_endpoint_plugins.knows_wisp = True  # type: ignore[attr-defined]
    plugins.load_endpoint_plugins = load_endpoint_plugins


class WispRoutes:
    """vLLM's EndpointPlugin.

    It is asked in every server of a machine that has this package, also in those with another
    backend: what goes wrong here is a line in the log, and the routes answer with it.
    """

    name = "wisp"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._broken = ""

    def attach_router(self, app: FastAPI) -> None:
        """Adds the routes, unless the server has another backend."""
        with self._surviving("the routes /wisp"):
            self._attach(app)

    def _attach(self, app: FastAPI) -> None:
        args = getattr(app.state, "args", None)
        if not is_ours(getattr(args, "weight_transfer_config", None)):
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
        with self._surviving("what moves this server"):
            config = getattr(engine_client, "vllm_config", None)
            if is_ours(getattr(config, "weight_transfer_config", None)):
                self._server = _Server(engine_client, args)

    @contextlib.contextmanager
    def _surviving(self, part: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._broken = told_lack(part, error)
            _log.warning("%s", self._broken, exc_info=True)

    async def _status(self, request: Request) -> JSONResponse:
        async def answer(server: _Server) -> dict[str, Any]:
            asked = request.query_params
            if "step" not in asked:
                return server.coordinator.status()
            wait = min(float(asked.get("wait", 0)), 3600.0)
            step = int(asked["step"])
            return await server.threaded(server.coordinator.wait_status, step, wait)

        return await self._answer(request, answer)

    async def _init(self, request: Request) -> JSONResponse:
        async def answer(server: _Server) -> dict[str, Any]:
            told = await _body(request)
            return await server.init(request, told.get("init_info", told))

        return await self._answer(request, answer)

    async def _update(self, request: Request) -> JSONResponse:
        async def answer(server: _Server) -> dict[str, Any]:
            return await server.update(await _body(request))

        return await self._answer(request, answer)

    async def _verify(self, request: Request) -> JSONResponse:
        async def answer(server: _Server) -> dict[str, Any]:
            async with server.moving:
                answers = await ask_engines(server.cores, "wisp_verify")
            counts = [count for ranks in values_of(answers) for count in ranks]
            found = server.coordinator.status()
            beyond = {kind: found[kind] for kind in ("missing", "unused") if found[kind]}
            return {"differing": sum(counts), "ranks": len(counts), **beyond}

        return await self._answer(request, answer)

    async def _answer(
        self, request: Request, answer: Callable[[_Server], Awaitable[dict[str, Any]]]
    ) -> JSONResponse:
        server = self._server
        if server is None:
            return _error(503, self._broken or "the server is not up yet")
        if not server.admits(request):
            return _error(401, "Unauthorized")
        try:
            return JSONResponse(await answer(server))
        except Error as error:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), 409)
            return _error(code, str(error))
        except (ValueError, TypeError) as error:
            return _error(400, str(error))
        except Exception as error:
            _log.exception("a request failed")
            return _error(500, f"{type(error).__name__}: {error}")


class _Server:
    def __init__(self, engine_client: Any, args: Namespace) -> None:
        self._client = engine_client
        self.coordinator = UpdateCoordinator(engine_client.vllm_config)
        self.moving = asyncio.Lock()
        self._configured = configured(engine_client.vllm_config)
        keys = [*(getattr(args, "api_key", None) or []), os.environ.get("VLLM_API_KEY", "")]
        self._keys = [hashlib.sha256(key.encode()).digest() for key in keys if key]
        show_metrics(self.coordinator.status, self.coordinator.switches)
        self._by_itself = asyncio.get_running_loop().create_task(self._follow())

    def admits(self, request: Request) -> bool:
        """The same keys that guard /v1."""
        if not self._keys:
            return True
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        said = hashlib.sha256(token.encode()).digest()
        known = [secrets.compare_digest(said, key) for key in self._keys]
        return scheme.lower() == "bearer" and any(known)

    async def threaded(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs what blocks on a thread of its own."""
        return await asyncio.to_thread(work, *args, **kwargs)

    @property
    def cores(self) -> Any:
        """vLLM's client to the engine cores."""
        return self._client.engine_core

    async def init(self, request: Request, told: dict[str, Any]) -> dict[str, Any]:
        info = InitInfo(**told)
        fixed = self.coordinator.info() or self._configured
        if fixed is None:
            self._refuse_strangers(request, info)
        elif not same_run(fixed.run, info.run):
            raise InvalidError(f"this server follows {fixed.run}, not {info.run}")
        elif fixed.is_laxer_than(info):
            raise InvalidError(
                f"this server follows {fixed.run} with other settings of trust, min_serial or "
                "run_id than it is asked for; start it with these"
            )
        wanted = info if fixed is None else fixed.allowing(info)
        more = fixed is not None and wanted.allowed != fixed.allowed
        if more:
            self._refuse_strangers(request, info)
        if more or not self.coordinator.is_complete:  # those that follow know the rest already
            call = ("init_weight_transfer_engine", None, (), {"init_info": wanted.as_dict()})
            values_of(await ask_engines(self.cores, "collective_rpc", *call))
        await self.threaded(self.coordinator.wait_fit, _FIT)
        return self.coordinator.status()

    def _refuse_strangers(self, request: Request, info: InitInfo) -> None:
        """To say which run to follow is to say what is served, and to name paths on this host."""
        if self._keys or _is_from_here(request):
            return
        if not may_strangers_init():
            raise DeniedError(
                "without a key, only programs on the server's host may say which run to follow: "
                "start the server with --api-key, or name the run there (WISP_RUN, "
                f"--additional-config), or let everybody who reaches it name one ({ALLOW_INIT}=1)"
            )
        if info.base or info.scratch:
            raise DeniedError(
                "without a key, only programs on the server's host may name `base` and `scratch`; "
                "start the server with --api-key, or with WISP_BASE and WISP_SCRATCH"
            )

    async def update(self, told: dict[str, Any]) -> dict[str, Any]:
        unknown = set(told) - {"step", "mode", "timeout", "recompute"}
        mode, step = told.get("mode", "keep"), told.get("step")
        if (
            unknown
            or mode not in _MODES
            or isinstance(step, bool)
            or not isinstance(step, int | None)
        ):
            raise ValueError(
                f"an update has `step` (a number or null), `mode` ({', '.join(_MODES)}), `timeout` "
                f"and `recompute`; this one says {told}"
            )
        end = time.monotonic() + float(told.get("timeout", 300.0))
        async with self.moving:
            while True:
                left = max(0.0, end - time.monotonic())
                target = await self.threaded(self.coordinator.ready, step, left)
                if target.served:
                    return target.answer()
                with contextlib.suppress(UnavailableError):
                    return await self._switch(target.key, mode, bool(told.get("recompute")))
                if time.monotonic() >= end:
                    raise UnavailableError(self.coordinator.faults[-1])
                await asyncio.sleep(_RETRY)  # every try stops the engine for a moment

    async def _switch(self, key: str, mode: str, recompute: bool) -> dict[str, Any]:
        answers = await ask_engines(self.cores, "wisp_update", key, mode, recompute)
        answer = self.coordinator.note_switch(key, answers)
        await self.threaded(self.coordinator.wait_told, key)
        return answer

    async def _follow(self) -> None:
        """In self mode: whatever is staged is switched to, between two steps of the engine."""
        owner = False
        while True:
            try:
                info = self.coordinator.info()
                if info is None or info.mode != "self":
                    await asyncio.sleep(0.2)
                    continue
                owner = owner or self_owner()
                if not owner:
                    return
                key = await self.threaded(self.coordinator.wait_ahead, 1.0)
                if key is not None:
                    async with self.moving:
                        await self._switch(key, "keep", info.recompute)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                _log.warning("the switch failed, the step before is served on: %s", error)
                await asyncio.sleep(_AGAIN)


def _is_from_here(request: Request) -> bool:
    """A program on this host, which speaks for itself."""
    if any(name in request.headers for name in _GO_BETWEENS):
        return False
    if request.client is None:
        return True  # through a socket file: its permissions decide
    address = ipaddress.ip_address(request.client.host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


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
