"""A client of the coordinator: globals and tries by unary calls, sagas and locks over the stream.

Copy it and change it as you like: it is a few hundred lines over the generated code, not a package.
The generated code is expected in the folder `generated` beside this file (see README.md).
"""

import contextlib
import json
import pathlib
import queue
import secrets
import sys
import threading
import time
import uuid

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).with_name("generated")))

from handfast.v1 import coordinator_pb2 as wire  # noqa: E402
from handfast.v1 import coordinator_pb2_grpc as service  # noqa: E402

AGENT = "handfast-python-example/1"
# A connection that says nothing for this long is given up. The default of gRPC is: never.
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]
# Failures after which the same request may be sent again: no answer, or "not here, not now".
SEND_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# The same, as the stream says it.
NOT_NOW = ("HF-TC-BUSY", "HF-TC-NOT-LEADING", "HF-TC-STOPPING")
ATTEMPT_S_MAX = 5.0
# A lock counts as lost this much before its lease can end: clocks run at different speeds.
LEASE_MARGIN = 0.01


class HandfastError(Exception):
    """The coordinator refused a request; `code` is stable and listed in docs/errors.md."""

    def __init__(self, code: str, message: str):
        super().__init__(f"{message} ({code})")
        self.code = code


class RolledBack(Exception):
    """The global is rolled back: nothing of it stays."""


class OutcomeUnknown(Exception):
    """The coordinator has not answered a decision in time. Ask `status` later; never roll back."""


class Refused(Exception):
    """A participant has refused its try. The global can only be rolled back."""


class Coordinator:
    """A connection to the coordinator. One for a process; threads may share it."""

    def __init__(self, address: str, application: str, token: str | None = None):
        self.application = application
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        # For a coordinator with certificates: grpc.secure_channel(address, credentials, ...).
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._calls = service.CoordinatorStub(self._channel)
        self._stream: Stream | None = None
        self._opening = threading.Lock()
        self._acquisitions = 0
        self._client = secrets.token_bytes(16)

    def close(self) -> None:
        if self._stream:
            self._stream.close()
        self._channel.close()

    # ---- globals ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, name: str, timeout_s: float = 30.0):
        """Runs the block as one global: commits at its end, rolls back if it raises."""
        xid = self.begin(name, timeout_s)
        try:
            yield xid
        except BaseException as error:
            self.roll_back(xid, str(error))
            raise
        self.commit(xid)

    def begin(self, name: str, timeout_s: float = 30.0) -> str:
        request = wire.BeginRequest(
            application=self.application, name=name, timeout_ms=int(timeout_s * 1000)
        )
        # Sent again after a lost answer, it begins another global; the first ends at its timeout.
        return self._ask(self._calls.Begin, request).xid

    def try_branch(self, xid: str, url: str, value, timeout_s: float = 10.0) -> None:
        """Has a participant over HTTP registered and its try called."""
        request = wire.TryBranchRequest(
            xid=xid,
            branch_id=secrets.randbits(63) or 1,  # the same when the request is sent again
            resource_id=url,
            input=json.dumps(value).encode(),
            timeout_ms=int(timeout_s * 1000),
        )
        reply = self._ask(self._calls.TryBranch, request, attempt_s=timeout_s + ATTEMPT_S_MAX)
        match reply.WhichOneof("result"):
            case "done":
                return
            case "refused":
                raise Refused(reply.refused.error)
            case _:
                raise Refused(f"no answer: {reply.unanswered.error}")

    def commit(self, xid: str) -> None:
        try:
            reply = self._end(xid, wire.DECISION_COMMIT, "", wire.REPLY_WHEN_DECIDED)
        except HandfastError as error:
            # Its timeout has passed, or it had no branch when the coordinator crashed.
            if error.code in ("HF-TC-ALREADY-DECIDED", "HF-TC-UNKNOWN-XID"):
                raise RolledBack(str(error)) from error
            raise
        if reply.status not in (wire.GLOBAL_STATUS_COMMITTING, wire.GLOBAL_STATUS_COMMITTED):
            raise RolledBack(wire.RollbackReason.Name(reply.rollback_reason))

    def roll_back(self, xid: str, reason: str = "") -> None:
        """Waits until every branch is undone. If that takes too long, the coordinator goes on."""
        with contextlib.suppress(HandfastError, OutcomeUnknown):
            self._end(xid, wire.DECISION_ROLL_BACK, reason, wire.REPLY_WHEN_FINISHED)

    def status(self, xid: str) -> str:
        reply = self._ask(self._calls.GetStatus, wire.GetStatusRequest(xid=xid))
        return wire.GlobalStatus.Name(reply.status).removeprefix("GLOBAL_STATUS_").lower()

    def _end(self, xid, decision, reason, reply_when):
        request = wire.EndRequest(
            xid=xid, decision=decision, reason=reason, reply_when=reply_when
        )
        try:
            return self._ask(self._calls.End, request, attempt_s=30.0)
        except grpc.RpcError as error:
            # An unanswered commit is never followed by a rollback: it may have been taken.
            raise OutcomeUnknown(xid) from error

    def _ask(self, call, request, attempt_s: float = ATTEMPT_S_MAX, within_s: float = 30.0):
        """Sends a request, and sends it again while there is no answer."""
        until, pause = time.monotonic() + within_s, 0.1
        while True:
            try:
                return call(request, timeout=attempt_s, metadata=self._metadata)
            except grpc.RpcError as error:
                if error.code() not in SEND_AGAIN:
                    code = dict(error.trailing_metadata() or ()).get("handfast-code")
                    if code:
                        raise HandfastError(code, error.details()) from error
                    raise
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    # ---- sagas -----------------------------------------------------------------------------------

    def start_saga(self, key: str, name: str, steps: list, timeout_s: float | None = None):
        """Starts a saga, or finds the one with this key. `steps` are of `saga_step`."""
        definition = wire.SagaDefinition(name=name, steps=steps)
        if timeout_s is not None:
            definition.timeout_ms = int(timeout_s * 1000)
        request = wire.StartSagaRequest(
            application=self.application, key=key, definition=definition
        )
        return self.stream().ask("start_saga", request, "saga")

    def saga(self, xid: str, wait_s: float = 0.0):
        """Returns the state of a saga; waits for its end if asked to."""
        when = wire.REPLY_WHEN_FINISHED if wait_s else wire.REPLY_WHEN_DECIDED
        request = wire.GetSagaRequest(xid=xid, reply_when=when)
        return self.stream().ask("get_saga", request, "saga", within_s=wait_s or 30.0)

    def signal_saga(self, xid: str, signal: str, payload=None):
        """Ends the step that waits for this signal; the payload is the step's output."""
        request = wire.SignalSagaRequest(
            xid=xid, signal=signal, payload=json.dumps(payload).encode()
        )
        return self.stream().ask("signal_saga", request, "saga")

    def cancel_saga(self, xid: str, reason: str):
        """Compensates a saga whose pivot has not begun."""
        request = wire.CancelSagaRequest(xid=xid, reason=reason)
        return self.stream().ask("cancel_saga", request, "saga")

    # ---- named locks -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self, name: str, lease_s: float = 30.0, wait_s: float = 0.0, label: str = ""):
        """Holds a named lock for the block. Raises `LockBusy` if it is not granted in time."""
        self._acquisitions += 1
        token = wire.LockToken(client=self._client, number=self._acquisitions)
        lock = Lock(self, name, token, lease_s)
        lock.acquire(wait_s, label)
        try:
            yield lock
        finally:
            lock.release()

    def stream(self) -> "Stream":
        with self._opening:
            if self._stream is None:
                self._stream = Stream(self._calls, self._metadata, self.application)
            return self._stream


def saga_step(name, kind, resource="", action="", value=None, group=0, takes=()):
    """A step of a saga. `kind` is compensable, harmless, pivot, retriable or signal."""
    return wire.SagaStep(
        name=name,
        group=group,
        kind=wire.SagaStepKind.Value(f"SAGA_STEP_KIND_{kind.upper()}"),
        resource_id=resource,
        action=action,
        input=b"" if kind == "signal" else json.dumps(value).encode(),
        takes=takes,
    )


def saga_status(reply) -> str:
    return wire.SagaStatus.Name(reply.status).removeprefix("SAGA_STATUS_").lower()


def step_state(step) -> str:
    return wire.SagaStepState.Name(step.state).removeprefix("SAGA_STEP_STATE_").lower()


class LockBusy(Exception):
    """Another client holds the lock."""


def now_s() -> float:
    """Seconds on a clock that counts the time in which the machine was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lock:
    """A lease of a named lock, renewed in the background until it is released or lost."""

    def __init__(self, coordinator: Coordinator, name: str, token, lease_s: float):
        self.name, self.fence = name, 0
        self._coordinator, self._token, self._lease_s = coordinator, token, lease_s
        self._held_until = 0.0
        self._ended = threading.Event()

    def acquire(self, wait_s: float, label: str) -> None:
        request = wire.AcquireLockRequest(
            name=self.name,
            token=self._token,
            label=label,
            lease_ms=int(self._lease_s * 1000),
            wait_ms=int(wait_s * 1000),
        )
        sent = now_s()
        stream = self._coordinator.stream()
        try:
            reply = stream.ask("acquire_lock", request, "acquire_lock", within_s=wait_s + 30.0)
        except TimeoutError:
            self.release(is_doubtful=True)  # it may be granted yet
            raise
        if reply.WhichOneof("result") != "granted":
            raise LockBusy(f"{self.name} is held by {reply.busy.holder.label or 'another client'}")
        self.fence = reply.granted.fence
        self._extend(sent + reply.granted.waited_ms / 1000)
        threading.Thread(target=self._renew, daemon=True).start()

    def is_held(self) -> bool:
        """Whether no other client can hold it yet. Between this answer and a write time passes:
        the fencing token, checked by the database, is what makes the write safe."""
        return not self._ended.is_set() and now_s() < self._held_until

    def release(self, is_doubtful: bool = False) -> None:
        self._ended.set()
        request = wire.ReleaseLockRequest(
            name=self.name, token=self._token, is_doubtful=is_doubtful
        )
        with contextlib.suppress(TimeoutError):  # it ends by time then
            self._coordinator.stream().ask(
                "release_lock", request, "release_lock", within_s=self._lease_s
            )

    def _renew(self) -> None:
        request = wire.RenewLocksRequest(
            tokens=[self._token], lease_ms=int(self._lease_s * 1000)
        )
        while not self._ended.wait(self._lease_s / 3):
            left_s, sent = self._held_until - now_s(), now_s()
            if left_s <= 0:
                return self._ended.set()  # a lost lock stays lost
            with contextlib.suppress(TimeoutError):
                reply = self._coordinator.stream().ask(
                    "renew_locks", request, "renew_locks", within_s=left_s
                )
                if not reply.held[0]:
                    return self._ended.set()
                self._extend(sent)

    def _extend(self, since: float) -> None:
        self._held_until = since + self._lease_s * (1 - LEASE_MARGIN) - 0.005


class Stream:
    """The stream `Connect`: made again when it breaks, and then every unanswered request is sent
    again under its number. At most REQUESTS_MAX requests wait for an answer."""

    REQUESTS_MAX = 1_000
    # An answered release is stored a moment later: it is sent again if the stream breaks by then.
    RELEASE_S = 1.0

    def __init__(self, calls, metadata, application: str):
        self._calls, self._metadata = calls, metadata
        self._hello = wire.Hello(
            client_id=str(uuid.uuid4()), application=application, agent=AGENT
        )
        self._lock = threading.Lock()
        self._number = 1  # of the hello
        self._unanswered: dict[int, tuple[wire.ClientMessage, queue.SimpleQueue]] = {}
        self._released: list[tuple[float, wire.ClientMessage]] = []
        self._outgoing: queue.SimpleQueue | None = None
        self._is_closed = False
        self._answers = None
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, kind: str, request, reply_kind: str, within_s: float = 30.0):
        """Sends a request and waits for its answer, through breaks of the stream."""
        until, pause = time.monotonic() + within_s, 0.1
        while True:
            reply = self._ask_once(kind, request, until)
            if reply.WhichOneof("body") != "rejected":
                return getattr(reply, reply_kind)
            if reply.rejected.code not in NOT_NOW or time.monotonic() + pause > until:
                raise HandfastError(reply.rejected.code, reply.rejected.message)
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _ask_once(self, kind: str, request, until: float):
        answer = queue.SimpleQueue()
        with self._lock:
            if len(self._unanswered) >= self.REQUESTS_MAX:
                raise HandfastError("HF-TC-BUSY", "too many unanswered requests of this process")
            self._number += 1
            number = self._number
            message = wire.ClientMessage(id=number, **{kind: request})
            self._unanswered[number] = (message, answer)
            if self._outgoing:
                self._outgoing.put(wire.ClientFrame(messages=[message]))
        try:
            reply = answer.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            raise TimeoutError(f"no answer to {kind} in time") from None
        finally:
            with self._lock:
                self._unanswered.pop(number, None)
        if kind == "release_lock":
            with self._lock:
                self._released = [*self._young_releases(), (time.monotonic(), message)]
        return reply

    def _young_releases(self) -> list:
        young = [it for it in self._released if it[0] > time.monotonic() - self.RELEASE_S]
        return young[-self.REQUESTS_MAX :]

    def close(self) -> None:
        self._is_closed = True
        if self._outgoing:
            self._outgoing.put(None)
        if self._answers:
            self._answers.cancel()

    def _run(self) -> None:
        pause = 0.1
        while not self._is_closed:
            try:
                self._serve()
                pause = 0.1
            except grpc.RpcError as error:
                if not self._is_closed:
                    print(f"stream to the coordinator: {error.details()}", file=sys.stderr)
            with self._lock:
                outgoing, self._outgoing = self._outgoing, None
            if outgoing:
                outgoing.put(None)  # ends the thread that sends
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _serve(self) -> None:
        outgoing = queue.SimpleQueue()
        with self._lock:
            released = [message for _, message in self._young_releases()]
            messages = [wire.ClientMessage(id=1, hello=self._hello), *released]
            messages += [message for message, _ in self._unanswered.values()]
            for message in messages:
                outgoing.put(wire.ClientFrame(messages=[message]))
            self._outgoing = outgoing
        self._answers = self._calls.Connect(iter(outgoing.get, None), metadata=self._metadata)
        for frame in self._answers:
            for message in frame.messages:
                if message.WhichOneof("body") == "go_away":
                    return  # it stops or does not lead: connect again
                with self._lock:
                    waiting = self._unanswered.get(message.id)
                if waiting:
                    waiting[1].put(message)
