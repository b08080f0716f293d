"""A stand-in for a PostgreSQL backend: messages of both sides, and a program that receives and sends them.

The program runs under the recorder and does what it is told on its standard input, so a test decides how
the bytes are cut. What the messages look like is PostgreSQL's manual, "Message Formats".
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType

SERVER = """
import ctypes, os, socket, sys
connections = {}
libc = ctypes.CDLL(None)

def receive(connection, size, call):
    if call == "recvmsg":
        return connection.recvmsg_into([bytearray(min(size, 7)), bytearray(max(0, size - 7))])[0]
    if call == "recvfrom":
        return len(connection.recvfrom(size)[0])
    if call == "__recv_chk":
        return libc.__recv_chk(connection.fileno(), ctypes.create_string_buffer(size), size, size, 0)
    return len(connection.recv(size))

def give(connection, data, call):
    if call == "sendmsg":
        return connection.sendmsg([data[:9], b"", data[9:]])
    if call == "sendto":
        return libc.sendto(connection.fileno(), data, len(data), 0, None, 0)
    return connection.send(data)

receiving, sending = "recv", "send"
print("ready", flush=True)
for line in sys.stdin:
    word, name, *rest = line.split()
    if word == "connect":
        connections[name] = socket.socket(fileno=int(rest[0]))
    elif word == "recv":
        for size in map(int, rest):
            assert receive(connections[name], size, receiving) == size
    elif word == "send":
        for part in rest:
            data = bytes.fromhex(part)
            assert give(connections[name], data, sending) == len(data)
    elif word == "offer":  # more than the socket takes: PostgreSQL sends what is left again
        data = bytes.fromhex(rest[0])
        connections[name].setblocking(False)
        taken = 0
        while taken < len(data):
            try:
                taken += connections[name].send(data[taken:])
            except BlockingIOError:
                break
        print("taken", taken, flush=True)
        connections[name].setblocking(True)
        continue
    elif word == "peek":
        assert len(connections[name].recv(int(rest[0]), socket.MSG_PEEK)) == int(rest[0])
    elif word == "use":
        receiving, sending = name, rest[0]
    elif word == "close":
        closed = connections[name].fileno()
        connections.pop(name).close()
        if rest:  # another connection gets the number
            other = connections.pop(rest[0])
            connections[rest[0]] = socket.socket(fileno=os.dup2(other.fileno(), closed))
    print("done", flush=True)
"""


def message(kind: bytes, body: bytes = b"") -> bytes:
    """One message of protocol 3, of either side."""
    return kind + struct.pack(">I", len(body) + 4) + body


def startup(code: int = 3 << 16, body: bytes = b"user\0postgres\0\0") -> bytes:
    return struct.pack(">II", len(body) + 8, code) + body


SSL_REQUEST, CANCEL = startup(80877103, b""), startup(80877102, bytes(8))


def token(client: int, sequence: int) -> int:
    return 7 * 10**18 + client * 10**12 + sequence


def query(text: str) -> bytes:
    return message(b"Q", text.encode() + b"\0")


def insert(client: int, sequence: int) -> bytes:
    return query(f"INSERT INTO h VALUES ('{token(client, sequence)}')")


def parse(text: str) -> bytes:
    return message(b"P", b"\0" + text.encode() + b"\0" + b"\0\0")


def bind(parameter: str) -> bytes:
    text = parameter.encode()
    return message(b"B", b"\0s\0" + struct.pack(">HHI", 0, 1, len(text)) + text + struct.pack(">H", 0))


EXECUTE, SYNC = message(b"E", b"\0" + bytes(4)), message(b"S")
COPY_DONE, COPY_FAIL = message(b"c"), message(b"f", b"no\0")


def copy_data(line: str) -> bytes:
    return message(b"d", line.encode())


def complete(tag: str) -> bytes:
    return message(b"C", tag.encode() + b"\0")


def ready(status: str) -> bytes:
    return message(b"Z", status.encode())


ERROR = message(b"E", b"SERROR\0\0")
NOTICE = message(b"N", b"SNOTICE\0C00000\0\0")
COPY_IN = message(b"G", b"\0\0\0")
PARSED = message(b"1") + message(b"2")
ROW = message(b"D", struct.pack(">HI", 1, 8) + b"C\0\0\0\x05Z\0E")


class Backend:
    """One recorded process and three connections to it. Use it in a ``with`` statement."""

    def __init__(self, start: Callable[[list[str], list[int]], subprocess.Popen[str]]) -> None:
        self._start = start
        self._pairs: dict[str, tuple[socket.socket, socket.socket]] = {}
        self._names = ("a", "b", "c")

    def __enter__(self) -> Backend:
        self._pairs = {name: socket.socketpair() for name in self._names}
        ours = [pair[0].fileno() for pair in self._pairs.values()]
        self.process = self._start([sys.executable, "-c", SERVER], ours)
        self._await("ready")
        for name, (theirs, _) in self._pairs.items():
            self._tell(f"connect {name} {theirs.fileno()}")
            theirs.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for _, peer in self._pairs.values():
            peer.close()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()

    def hears(self, data: bytes, *cuts: int, name: str = "a") -> None:
        """The client sends it, and the backend receives it in pieces that end at the cuts."""
        self._pairs[name][1].sendall(data)
        ends = [*cuts, len(data)]
        sizes = [end - begin for begin, end in zip([0, *cuts], ends, strict=True)]
        self._tell(f"recv {name} " + " ".join(str(size) for size in sizes if size))

    def says(self, data: bytes, *cuts: int, name: str = "a") -> None:
        """The backend sends it, by calls that end at the cuts."""
        ends = [*cuts, len(data)]
        parts = [data[begin:end].hex() for begin, end in zip([0, *cuts], ends, strict=True)]
        self._tell(f"send {name} " + " ".join(part for part in parts if part))

    def offers(self, data: bytes, name: str = "a") -> int:
        """The backend offers more than the socket takes; returns how many bytes it took."""
        return int(self._tell(f"offer {name} {data.hex()}", "taken").split()[1])

    def reads(self, count: int, name: str = "a") -> None:
        """The client takes bytes out of the socket."""
        while count > 0:
            count -= len(self._pairs[name][1].recv(count))

    def peeks(self, data: bytes, name: str = "a") -> None:
        """The client sends it, and the backend looks at it without taking it."""
        self._pairs[name][1].sendall(data)
        self._tell(f"peek {name} {len(data)}")

    def takes(self, count: int, name: str = "a") -> None:
        self._tell(f"recv {name} {count}")

    def uses(self, receiving: str, sending: str) -> None:
        """By which calls it receives and sends from now on."""
        self._tell(f"use {receiving} {sending}")

    def closes(self, name: str, successor: str = "") -> None:
        """The backend closes a connection; ``successor`` names the one that gets its descriptor."""
        self._tell(f"close {name} {successor}")

    def starts(self, name: str = "a") -> None:
        """A connection as far as its first ReadyForQuery."""
        self.hears(startup(), name=name)
        self.says(message(b"R", bytes(4)) + message(b"S", b"a\0b\0") + ready("I"), name=name)

    def _tell(self, line: str, answer: str = "done") -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._await(answer)

    def _await(self, answer: str) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(answer), line + self.process.stdout.read()
        return line
