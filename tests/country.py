"""A land for tests: houses (network namespaces) on streets (bridges), with cables to cut, heal and slow.

A namespace lives as long as somebody holds it open: this process by a file descriptor, and what runs in the
house, which dies with this process. So nothing has a name outside and nothing is left behind, however a
test ends. It knows nothing of swarms.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

NEW_NETWORK = 0x40000000
EVERY_PROTOCOL = 0x0003
SIOCETHTOOL = 0x8946
TX_CHECKSUMS, SEGMENTS, GENERIC_SEGMENTS, GENERIC_RECEIVE = 0x17, 0x1F, 0x24, 0x2C
"""What a card takes over from the kernel, and a cable of our own cannot finish."""
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """Why no land can be made here; None where it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    try:
        with Land() as land:
            land.street().house()
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces cannot be made here: {error}"
    return None


class Ground:
    """One network namespace."""

    def __init__(self) -> None:
        before = _here()
        try:
            _check(_libc.unshare(NEW_NETWORK))
            self._held = _here()
            _check(_libc.setns(before, NEW_NETWORK))
        finally:
            os.close(before)
        self.path = f"/proc/{os.getpid()}/fd/{self._held}"
        for kind in ("all", "default"):
            self.set(f"ipv6/conf/{kind}/disable_ipv6", "1")
        self.ip("link set lo up")

    @contextmanager
    def entered(self) -> Generator[None]:
        """What this thread opens or starts meanwhile is in the namespace, and stays there."""
        before = _here()
        _check(_libc.setns(self._held, NEW_NETWORK))
        try:
            yield
        finally:
            _check(_libc.setns(before, NEW_NETWORK))
            os.close(before)

    def ip(self, *commands: str) -> None:
        with self.entered():
            subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)

    def set(self, name: str, value: str) -> None:
        with self.entered():
            (Path("/proc/sys/net") / name).write_text(value)

    def close(self) -> None:
        os.close(self._held)


class Land:
    """Where the streets are. Leaving it ends all that runs there."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._count = 0
        try:
            self.middle = self.ground()
        except BaseException:
            self._ends.close()
            raise

    def __enter__(self) -> "Land":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def ground(self) -> Ground:
        ground = Ground()
        self._ends.callback(ground.close)
        return ground

    def street(self) -> "Street":
        return Street(self, self.number())

    def number(self) -> int:
        self._count += 1
        return self._count

    def start(self, ground: Ground, *command: str, **how: Any) -> "subprocess.Popen[str]":
        """A process that dies with this one, stopped or not, if the land does not end it before."""
        with ground.entered():
            process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], text=True, **how)
        self._ends.callback(_end, process)
        return process

    def join(self, one: "Street", other: "Street") -> "Link":
        """A link between two streets, which then are one network."""
        number = self.number()
        self.middle.ip(f"link add a{number} type veth peer name b{number}")
        self.middle.ip(f"link set a{number} up", f"link set b{number} up")
        link = Link(self.middle, [(f"a{number}", one.name), (f"b{number}", other.name)])
        link.heal()
        return link


class Street:
    """A local network: a bridge."""

    def __init__(self, land: Land, number: int) -> None:
        self.land = land
        self.name = f"street{number}"
        self._houses = 0
        land.middle.ip(f"link add {self.name} type bridge mcast_snooping 0", f"link set {self.name} up")

    def house(self, *, way_out: bool = True) -> "House":
        """With a way out it has a default route, as behind a gateway; there is none to answer."""
        self._houses += 1
        # All streets share a network, so that two that are joined are one.
        street = int(self.name.removeprefix("street"))
        return House(self, f"10.77.{street}.{self._houses}", way_out=way_out)


class Link:
    """What is plugged into streets. Cut, it is silent: nobody is told, as when a switch dies far away."""

    def __init__(self, middle: Ground, plugs: Iterable[tuple[str, str]]) -> None:
        self._middle = middle
        self._plugs = list(plugs)

    def cut(self) -> None:
        self._middle.ip(*(f"link set {port} nomaster" for port, _ in self._plugs))

    def heal(self) -> None:
        self._middle.ip(*(f"link set {port} master {street}" for port, street in self._plugs))


class House:
    """A machine: a namespace with one card, and the cable to its street."""

    def __init__(self, street: Street, address: str, *, way_out: bool) -> None:
        self.address = address
        self._land = street.land
        self._ground = self._land.ground()
        self._street = street
        self._port = f"port{self._land.number()}"
        self._land.middle.ip(f"link add {self._port} type veth peer name eth0 netns {self._ground.path}")
        self._ground.ip(f"addr add {address}/16 dev eth0", "link set eth0 up")
        if way_out:
            self._ground.ip("route add default dev eth0")
        with self._ground.entered():
            for offered in (TX_CHECKSUMS, SEGMENTS, GENERIC_SEGMENTS, GENERIC_RECEIVE):
                _turn_off("eth0", offered)
        self._land.middle.ip(f"link set {self._port} up")
        self.link = Link(self._land.middle, [(self._port, street.name)])
        self.link.heal()

    def start(self, *command: str, **how: Any) -> "subprocess.Popen[str]":
        return self._land.start(self._ground, *command, **how)

    def slow(self, delay_s: tuple[float, float], lost: float, seed: int = 1) -> "Cable":
        """From now on its cable delays and loses, each way by itself."""
        self.link.cut()
        port, number = self._port, self._land.number()
        self._land.middle.ip(f"link add in{number} type veth peer name out{number}")
        self._land.middle.ip(f"link set in{number} up", f"link set out{number} up master {self._street.name}")
        program = str(Path(__file__).with_name("cable.py"))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 1}
        process = self._land.start(
            self._land.middle, sys.executable, program, port, f"in{number}", str(seed), **pipes
        )
        cable = Cable(process)
        cable.set(delay_s, lost)
        return cable

    @contextmanager
    def entered(self) -> Generator[None]:
        with self._ground.entered():
            yield


class Cable:
    """A cable of our own; `tests/cable.py` is what copies the frames."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def set(self, delay_s: tuple[float, float], lost: float) -> dict[str, int]:
        """Says what it has carried and lost so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"delay_s": delay_s, "lost": lost}) + "\n")
        return json.loads(self._process.stdout.readline())


class Tap:
    """Hears every frame that crosses the streets, as anybody on them may."""

    def __init__(self, land: Land) -> None:
        with land.middle.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self._socket.settimeout(0.1)
        self._ended = threading.Event()
        self._heard: list[bytes] = []
        self._thread = threading.Thread(target=self._listen, name="tap")

    def __enter__(self) -> "Tap":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()

    @property
    def heard(self) -> bytes:
        return b"\0".join(self._heard)

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                self._heard.append(self._socket.recv(1 << 16))
            except TimeoutError:
                continue


def _here() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _turn_off(interface: str, offered: int) -> None:
    asked = ctypes.create_string_buffer(struct.pack("II", offered, 0))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(asked))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe.fileno(), SIOCETHTOOL, request)


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):  # what was written and never read
                pipe.close()
