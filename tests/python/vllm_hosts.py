"""Two hosts on one machine: network namespaces, each with a name and shared memory of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

#: What a command of a host sees: nothing of the other's shared memory, its own name.
_ENTER = 'mount -t tmpfs -o size=4g shm /dev/shm && hostname "$0" && exec "$@"'


def can_make_hosts() -> bool:
    """Whether this machine lets us; containers often do not."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    name = f"wisp-{uuid.uuid4().hex[:6]}"
    try:
        if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
            return False
        probe = ["unshare", "-m", "-u", "bash", "-c", _ENTER, "probe", "true"]
        return subprocess.run(["ip", "netns", "exec", name, *probe], capture_output=True).returncode == 0
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Hosts:
    """Two, joined by a wire; and from this namespace the first one can be reached."""

    def __init__(self) -> None:
        token = uuid.uuid4().hex[:5]
        self.names = [f"wisp{token}{i}" for i in range(2)]
        subnet = _free_subnet()
        self.addresses = [f"{subnet}.1", f"{subnet}.2"]
        bridge = f"wb{token}"
        self._links = [bridge]
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{subnet}.254/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for name, address in zip(self.names, self.addresses, strict=True):
            outer, inner = f"o{name}"[:15], "eth0"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
            self._links.append(outer)
            _run("ip", "link", "set", outer, "master", bridge, "up")
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", inner)
            _run("ip", "-n", name, "link", "set", inner, "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")

    def command(self, host: int, *command: str | Path) -> list[str | Path]:
        """The command as it is started on that host."""
        enter = ["unshare", "-m", "-u", "bash", "-c", _ENTER, f"host-{host}"]
        return ["ip", "netns", "exec", self.names[host], *enter, *command]

    def close(self) -> None:
        for link in reversed(self._links):
            subprocess.run(["ip", "link", "del", link], capture_output=True)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _free_subnet() -> str:
    """One that no test has which runs beside this one, or was killed before it could clean up."""
    taken = subprocess.run(["ip", "-4", "route"], capture_output=True, text=True, check=True).stdout
    return next(
        subnet for third in range(256) if f"{(subnet := f'10.231.{third}')}.0/24" not in taken
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
