"""The gateway of one world: every request of the agent passes here, is numbered once, and may be where the agent dies.

A kill is done here, by whoever holds the request: before it is passed on, or when it was acted on and is in the
ledger. So any program in any language can be killed at any of its requests, and needs no code for it.
"""

from __future__ import annotations

import json
import selectors
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from ..testing.twins.messages import Call, Page
from .boundary import Arrival, place_of
from .errors import CrashtestError
from .plan import Deed, Plan
from .process import kill_whole, send, state_of
from .reading import Reading
from .services.base import Answered, Backend
from .wire import BadRequest, Stream, write

UNDER_WAY_SECONDS_MAX = 30.0
HELD_SECONDS_MAX = 5.0
HOST_HEADER = "x-surefoot-crashtest-host"


class Gateway:
    """All ports of one world. `life` is set by the supervisor; `arrivals` is what came, in order."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        plan: Plan,
        *,
        models: frozenset[str] = frozenset(),
        ports: Mapping[str, int] | None = None,
        hosts: Mapping[str, Sequence[str]] | None = None,
        ignore: Sequence[str] = (),
        marker: str,
        late_seconds: float = 1.0,
        settle_seconds: float = 0.1,
        at_its_exit: bool = False,
        disarmed: bool = False,
    ) -> None:
        """Listens when this returns. `disarmed` leaves every kill out: the negative control of the harness itself.

        With `at_its_exit` a `recorded` kill also lands where the agent is about to end by itself.
        """
        self._backends, self._plan, self._models, self._ignore = backends, plan, models, ignore
        self._hosts = dict(hosts or {})
        self._marker, self._late, self._disarmed = marker, late_seconds, disarmed
        self._settle, self._at_its_exit = settle_seconds, at_its_exit
        self.life = 1
        self.arrivals: list[Arrival] = []
        self.unmatched: list[str] = []
        self.unrouted: list[str] = []
        self.refused: list[str] = []
        self.killed: set[int] = set()
        self.missed: set[int] = set()
        self.strays = 0
        self._finished: set[int] = set()
        self._replied: set[int] = set()
        self._lock = threading.Condition()
        self._counts: Counter[tuple[int, str, str]] = Counter()
        self._agents: dict[int, int] = {}
        self._open: set[socket.socket] = set()
        self._late_ones: list[threading.Thread] = []
        self._under_way = 0
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[int, socket.socket] = {}
        self.urls = {name: self._listen(name, (ports or {}).get(name, 0)) for name in backends}
        self.proxied = self._listen("", 0)
        threading.Thread(target=self._accept, name="surefoot-gateway", daemon=True).start()

    # --- sockets ----------------------------------------------------------------------------------------------------

    def _listen(self, name: str, port: int) -> str:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise CrashtestError(
                f"port {port} of services.{name} is in use ({error.strerror}): end what listens there, or leave "
                "port out and "
                "give the agent its address by env"
            ) from None
        listener.listen(128)
        self._listeners[listener.fileno()] = listener
        self._selector.register(listener, selectors.EVENT_READ, name)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def _accept(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(0.2):
                try:
                    connection = self._listeners[key.fd].accept()[0]
                except OSError:
                    continue
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.add(connection)
                threading.Thread(target=self._talk, args=(connection, key.data), daemon=True).start()

    def _talk(self, connection: socket.socket, service: str) -> None:
        stream = Stream(connection)
        try:
            while True:
                try:
                    arrived = stream.read()
                except (BadRequest, ValueError) as error:
                    write(connection, _said(400, f"no HTTP/1.1 request: {error}"), method="GET", keeps=False)
                    return
                if arrived is None:
                    return
                page, number = self._handle(service, arrived.call, arrived.target, connection)
                if page is None:
                    return
                try:
                    write(connection, page, method=arrived.call.method, keeps=arrived.keeps)
                finally:
                    self._replied.add(number)
                if not arrived.keeps:
                    return
        except OSError:
            return  # who asked is dead
        finally:
            self._open.discard(connection)
            connection.close()

    # --- one request ------------------------------------------------------------------------------------------------

    def _handle(self, service: str, call: Call, target: str, connection: socket.socket) -> tuple[Page | None, int]:
        """(the reply or None for none, the request's number)."""
        if not service:
            host = call.headers.pop(HOST_HEADER, call.headers.get("host", ""))
            service = self._service_of(host)
            if not service:
                with self._lock:
                    self.unrouted.append(host)
                text = f"surefoot crashtest: no service answers for {host}; give one hosts = [{host!r}]"
                return _said(502, text), 0
        arrival = self._number(service, call)
        with self._lock:
            self._under_way += 1
        try:
            return self._do(self._plan.ask(arrival), arrival, target, connection), arrival.number
        finally:
            with self._lock:
                self._under_way -= 1
                self._lock.notify_all()

    def _do(self, deed: Deed, arrival: Arrival, target: str, connection: socket.socket) -> Page | None:
        if deed is Deed.KILL_BEFORE:
            self.kill(arrival.life)
            return None
        if deed is Deed.LATE:
            self._act_later(arrival, target)
            return _cut(connection)
        if deed is Deed.PAUSE_BEFORE:
            self._pause(arrival.life)
        answered = self._answer(arrival, target)
        match deed:
            case Deed.KILL_EFFECT:
                self.kill(arrival.life)
                return None
            case Deed.LOSE_REPLY:
                return _cut(connection)
            case Deed.ERROR_AFTER:
                return _said(500, "internal error")
            case Deed.PAUSE_EFFECT:
                self._pause(arrival.life)
            case Deed.KILL_READ | Deed.KILL_RECORDED:
                ready = threading.Event()
                given = (arrival, connection, deed, ready)
                thread = threading.Thread(target=self._kill_after, args=given, daemon=True)
                self._late_ones.append(thread)
                thread.start()
                ready.wait()
            case _:
                pass
        return answered.page

    def _service_of(self, host: str) -> str:
        host = host.partition(":")[0].lower()
        for name, patterns in self._hosts.items():
            if any(host == p or (p.startswith("*.") and host.endswith(p[1:])) for p in patterns):
                return name
        return ""

    def _number(self, service: str, call: Call) -> Arrival:
        place = place_of(call, self._ignore)
        with self._lock:
            life = self.life
            self._counts[life, service, place] += 1
            arrival = Arrival(
                number=len(self.arrivals) + 1,
                service=service,
                place=place,
                occurrence=self._counts[life, service, place],
                life=life,
                call=call,
                at=time.monotonic(),
                is_model=service in self._models,
            )
            self.arrivals.append(arrival)
            return arrival

    def _answer(self, arrival: Arrival, target: str) -> Answered:
        answered = self._backends[arrival.service].answer(arrival.call, target)
        with self._lock:
            arrival.answered, arrival.tokens = answered.page.status, answered.tokens
            arrival.acted += answered.acted
            if answered.refused:
                self.refused.append(answered.refused)
            if answered.unmatched:
                self.unmatched.append(answered.unmatched)
        return answered

    def _act_later(self, arrival: Arrival, target: str) -> None:
        def act() -> None:
            time.sleep(self._late)
            self._answer(arrival, target)

        thread = threading.Thread(target=act, daemon=True)
        self._late_ones.append(thread)
        thread.start()

    def _pause(self, life: int) -> None:
        send(self._pid_of(life), signal.SIGSTOP)
        self._plan.paused.set()
        self._plan.resumed.wait()

    def _kill_after(self, arrival: Arrival, connection: socket.socket, deed: Deed, ready: threading.Event) -> None:
        """Kill when the reply has been read (`read`), or at the next request or some time after that (`recorded`).

        The reply may be sent once `ready` is set.
        """
        pid = self._pid_of(arrival.life)
        wanted = deed is Deed.KILL_READ or self._at_its_exit
        reading = tracer = None
        try:
            reading = Reading(connection, pid, is_sent=lambda: arrival.number in self._replied)
            tracer = reading.tracer(self._marker, deed) if wanted else None
        except OSError:
            pass  # who asked has closed the connection already
        self._plan.wait_for_next(arrival)
        ready.set()

        def waits() -> bool:
            return self._plan.waits_for_next(arrival)

        if reading is not None and deed is Deed.KILL_READ:
            reading.stand_where_it_is_read(tracer, waits)
        elif reading is not None:
            settle = self._settle
            if self._at_its_exit:  # held, it has its time; else, it was too fast before
                settle = 0.0 if tracer is None else max(settle, HELD_SECONDS_MAX)
            reading.stand_at_the_exit(tracer, settle, waits)
        if reading is not None:
            reading.close()
        if self._plan.take_kill(arrival):
            self.kill(arrival.life)

    # --- the agent --------------------------------------------------------------------------------------------------

    def name_agent(self, life: int, pid: int) -> None:
        """From now on the agent of this life can be killed."""
        with self._lock:
            self._agents[life] = pid
            self._lock.notify_all()

    def forget_agent(self, life: int) -> None:
        """It has ended; its pid may be anybody's. A kill of it that is under way is over when this returns."""
        with self._lock:
            self._agents[life] = 0
            self._lock.wait_for(lambda: life not in self.killed or life in self._finished, 30.0)

    def _pid_of(self, life: int) -> int:
        with self._lock:
            self._lock.wait_for(lambda: life in self._agents or self._closed, 10.0)
            return self._agents.get(life, 0)

    def kill(self, life: int) -> None:
        """SIGKILL this life of the agent and all that belongs to it; it is dead when this returns.

        One that has ended by itself before is in `missed`.
        """
        pid = self._pid_of(life)
        with self._lock:
            if life in self.killed or self._disarmed:
                return
            if not pid or state_of(pid) in ("Z", "X"):
                self.missed.add(life)
                return
            self.killed.add(life)
        strays = kill_whole(pid, self._marker)
        with self._lock:
            self.strays += strays
            self._finished.add(life)
            self._lock.notify_all()

    # --- the end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait for what acts late, and for requests that are still being answered although who asked is gone."""
        with self._lock:
            self._lock.wait_for(lambda: not self._under_way, UNDER_WAY_SECONDS_MAX)
        for thread in self._late_ones:
            thread.join(30.0)

    def close(self) -> None:
        """Stop listening and cut who still waits; the backends are closed too."""
        self._closed = True
        self._plan.resumed.set()
        for listener in self._listeners.values():
            listener.close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for backend in self._backends.values():
            backend.close()


def _said(status: int, text: str) -> Page:
    return Page(status=status, body=json.dumps({"error": text}).encode(), headers={"Content-Type": "application/json"})


def _cut(connection: socket.socket) -> None:
    """Nothing comes, and the connection is reset: what a client sees of a server that died."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
