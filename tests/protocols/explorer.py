"""
A checker of protocols: it tries every order in which a few clients can reach a table, with a fault at any write.

The store is a set of rows, each with an ETag that every write makes new, changed by entity group transactions. A client
is a generator that yields requests and is sent the replies: a row or None for `Get`, `(outcome, new ETag)` for a
`Write`. At each write the checker tries, as far as the budget of faults allows:

    lost    the effect without the reply, or neither the effect nor a reply; of a message that is put too
    late    no reply now, and the effect at any later moment or never
    crash   the client stops for good after any request that is not a read
    unread  a read is rejected, for clients that say what they do then

The state of a client is its program, its arguments and the replies so far; so a state of everything is a value that can
be hashed, and each one is visited once, breadth first: a trace is a shortest one. A program must be deterministic in
its replies. One that returns a `Goto` forgets them, which keeps states few.

Some orders are left out because others stand for them. A client that has crashed changes as little as one that waits
until all others have ended; so clients crash only then. The same holds of a write that never arrives; and one whose
condition can never hold again, since no ETag comes back, is forgotten at once.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple

import attrs
import pytest

from tests.torture import choose_rounds

Key = tuple[str, str]
"""PartitionKey and RowKey."""

Values = tuple[tuple[str, Any], ...]

OK, EXISTS, STALE, MISSING, LOST = "ok", "exists", "stale", "missing", "LOST"
"""What became of a write; of a lost one its sender does not know."""

ANY_FAULT: dict[str, Any] = {"lost": 1, "late": 1, "crash": 1}
"""One of each fault of a write, as arguments of a `Run`."""


class Row(NamedTuple):
    """A stored row."""

    etag: str
    content: Values

    def get(self, name: str) -> Any:
        """Return a property; None if the row does not have it."""
        return next((value for each, value in self.content if each == name), None)


def values(**properties: Any) -> Values:
    """Return the content of a row; a property that is None is left out."""
    return tuple(sorted((name, value) for name, value in properties.items() if value is not None))


class Get(NamedTuple):
    """Read a row."""

    key: Key


class _Operation(NamedTuple):
    verb: str
    key: Key
    content: Values
    if_match: str


class Write(NamedTuple):
    """Write rows of one partition, all or none."""

    operations: tuple[_Operation, ...]


class Put(NamedTuple):
    """Put a message into the queue."""

    message: tuple[Any, ...]


class Take(NamedTuple):
    """Take any message, which stays until it is acknowledged; None when all others have ended and none is left."""


class Ack(NamedTuple):
    """Delete a message."""

    message: tuple[Any, ...]


Request = Get | Write | Put | Take | Ack


class Goto(NamedTuple):
    """What a program returns that goes on as another one."""

    program: Callable[..., "Program"]
    arguments: tuple[Any, ...]


Program = Generator[Request, Any, object]
"""A client, or a part of one: it ends with a result or a `Goto`."""


def insert(key: Key, content: Values) -> Write:
    """Insert a row where there is none."""
    return Write((_Operation("insert", key, content, ""),))


def replace(key: Key, content: Values, etag: str) -> Write:
    """Replace a row that has this ETag; "*" for any."""
    return Write((_Operation("replace", key, content, etag),))


def upsert(key: Key, content: Values) -> Write:
    """Write a row whatever is there."""
    return Write((_Operation("upsert", key, content, ""),))


def delete(key: Key, etag: str) -> Write:
    """Delete a row that has this ETag; "*" for any."""
    return Write((_Operation("delete", key, (), etag),))


def together(*writes: Write) -> Write:
    """Return one entity group transaction of several writes."""
    return Write(tuple(operation for write in writes for operation in write.operations))


class Client(NamedTuple):
    """
    A client of the store.

    Args:
        name: Its name; its ETags begin with it.
        program: What it does.
        arguments: What the program is called with.
        fails: Whether it may crash, and its requests be lost or late.
        refused: What it goes on with if a read is rejected, given the program that has read, and its arguments; None if
            none of its reads is.
    """

    name: str
    program: Callable[..., Program]
    arguments: tuple[Any, ...] = ()
    fails: bool = True
    refused: Callable[..., Program] | None = None


class _Running(NamedTuple):
    writes: int
    program: Callable[..., Program]
    arguments: tuple[Any, ...]
    replies: tuple[Any, ...]
    begun: bool
    may_crash: bool


class _Ended(NamedTuple):
    result: object


_Rows = tuple[tuple[Key, Row], ...]


class _State(NamedTuple):
    rows: _Rows
    queue: tuple[tuple[Any, ...], ...]
    clients: tuple[_Running | _Ended, ...]
    late: tuple[tuple[Write, str], ...]
    budget: tuple[int, int, int, int]  # lost, late, crash, unread
    history: Any


_Step = tuple[tuple[object, ...], _State]
"""What happens, and the state after it."""


@attrs.frozen
class World:
    """
    What a judge sees of a state.

    Args:
        rows: All rows.
        results: What the clients that have ended have returned; "crashed" for a crash.
        running: The clients that have begun and not ended.
        history: What `watch` has returned last.
    """

    rows: Mapping[Key, Row]
    results: Mapping[str, object]
    running: frozenset[str]
    history: Any


Judge = Callable[[World], str | None]
"""Returns what is wrong with a state; None if nothing is."""


def is_committed(decision: Row | None) -> bool:
    """Return whether there is a decision row, and it says that its change has committed."""
    return decision is not None and decision.get("state") == "committed"


def committed_is_left(world: World) -> str | None:
    """Return what is wrong if a decision row still says so."""
    return "a decision row is left that is committed" if any(map(is_committed, world.rows.values())) else None


def _accept(world: World) -> str | None:
    return None


@attrs.frozen(kw_only=True)
class Run:
    """
    What is explored.

    Args:
        title: What it is called.
        clients: The clients.
        rows: The rows at the start.
        lost: How many requests or replies may be lost.
        late: How many requests may be late.
        crash: How many clients may crash.
        unread: How many reads may be rejected.
        always: Judges every state.
        at_end: Judges the states in which no client can go on.
        watch: Returns the history after each step, given the state with the history before it.
        large: Whether it has so many states that only `make torture` visits them.
    """

    title: str
    clients: tuple[Client, ...]
    rows: Mapping[Key, Row] = attrs.Factory(dict[Key, Row])
    lost: int = 0
    late: int = 0
    crash: int = 0
    unread: int = 0
    always: Judge = _accept
    at_end: Judge = _accept
    watch: Callable[[World], Any] | None = None
    large: bool = False


def run_with(**common: Any) -> Callable[..., Run]:
    """Return a function that returns the run of a title and clients, with arguments that all runs of a module have."""

    def run_of(title: str, *clients: Client, **given: Any) -> Run:
        return Run(title=title, clients=clients, **{**common, **given})

    return run_of


def runs(*given: Run) -> pytest.MarkDecorator:
    """Return the decorator that gives a test each `run`; the large ones in `make torture` alone."""
    chosen = [each for each in given if not each.large or choose_rounds(0, 1)]
    params = [pytest.param(each, id=each.title, marks=pytest.mark.torture) for each in chosen]
    return pytest.mark.parametrize("run", params)


def verify(run: Run) -> None:
    """
    Visit every state of a run.

    Raises:
        AssertionError: A state is wrong, as the trace says; or no state is an end.
    """
    explorer = _Explorer(run)
    trace = explorer.explore()
    assert trace is None, "\n  ".join([run.title, *(trace or ())])
    assert explorer.ends, f"{run.title}: no client ever ends"


def find_violation(run: Run) -> list[str]:
    """
    Return the shortest trace that leads to a wrong state; what is wrong comes last.

    Raises:
        AssertionError: No state is wrong.
    """
    explorer = _Explorer(run)
    trace = explorer.explore()
    assert trace is not None, f"{run.title}: none of {explorer.states} states is wrong"
    return trace


class _Explorer:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.names = [client.name for client in run.clients]
        self.states = self.ends = 0
        self._next: dict[tuple[Any, ...], object] = {}

    def explore(self) -> list[str] | None:
        """Return the trace of the first wrong state; None if there is none."""
        run = self.run
        clients = tuple(_Running(0, each.program, each.arguments, (), False, False) for each in run.clients)
        settled = tuple(self._settle(client) for client in clients)
        budget = run.lost, run.late, run.crash, run.unread
        start = self._watched(_State(tuple(sorted(run.rows.items())), (), settled, (), budget, None))
        came_from: dict[_State, _State | None] = {start: None}
        todo = deque([start])
        while todo:
            state = todo.popleft()
            problem = self._judge(state)
            if problem is not None:
                self.states = len(came_from)
                return [*self._trace(came_from, state), problem]
            for _, following in self._steps(state):
                seen = self._watched(following)
                if seen not in came_from:
                    came_from[seen] = state
                    todo.append(seen)
        self.states = len(came_from)
        return None

    def _trace(self, came_from: Mapping[_State, _State | None], state: _State) -> list[str]:
        found: list[str] = []
        before = came_from[state]
        while before is not None:
            happened = next(what for what, after in self._steps(before) if self._watched(after) == state)
            found.append(" ".join(map(str, happened)))
            state, before = before, came_from[before]
        return found[::-1]

    def _judge(self, state: _State) -> str | None:
        world = self._world(state)
        problem = self.run.always(world)
        if problem is None and not state.late and all(isinstance(each, _Ended) for each in state.clients):
            self.ends += 1
            problem = self.run.at_end(world)
        return problem

    def _world(self, state: _State) -> World:
        pairs = list(zip(self.names, state.clients, strict=True))
        results = {name: client.result for name, client in pairs if isinstance(client, _Ended)}
        running = [name for name, client in pairs if isinstance(client, _Running) and (client.replies or client.begun)]
        return World(dict(state.rows), results, frozenset(running), state.history)

    def _watched(self, state: _State) -> _State:
        watch = self.run.watch
        return state if watch is None else state._replace(history=watch(self._world(state)))

    def _next_of(self, client: _Running) -> object:
        """Return the request that a client sends next; its `Goto`, or its result as `_Ended`, if it sends none."""
        key = client.program, client.arguments, client.replies
        found = self._next.get(key)
        if found is None:
            program = client.program(*client.arguments)
            try:
                found = next(program)
                for reply in client.replies:
                    found = program.send(reply)
            except StopIteration as stop:
                found = stop.value if isinstance(stop.value, Goto) else _Ended(stop.value)
            self._next[key] = found
        return found

    def _settle(self, client: _Running) -> _Running | _Ended:
        following = self._next_of(client)
        while isinstance(following, Goto):
            client = client._replace(program=following.program, arguments=following.arguments, replies=(), begun=True)
            following = self._next_of(client)
        return following if isinstance(following, _Ended) else client

    def _steps(self, state: _State) -> Iterator[_Step]:
        """Return what can happen next."""
        active = [number for number in range(len(state.clients)) if self._goes_on(state, number)]
        for number, (write, etag) in enumerate(state.late):
            others = state.late[:number] + state.late[number + 1 :]
            outcome, rows = _apply(state.rows, write, etag)
            if outcome == OK:
                yield (etag, "arrives late:", write), _after(state, rows, late=others)
            if not active:
                yield (etag, "never arrives:", write), state._replace(late=others)
        lost, late, crash, unread = state.budget
        for number, client in enumerate(state.clients):
            if not isinstance(client, _Running):
                continue
            if number in active and len(active) <= crash and client.may_crash and self.run.clients[number].fails:
                crashed = (*state.clients[:number], _Ended("crashed"), *state.clients[number + 1 :])
                less = lost, late, crash - 1, unread
                yield (self.names[number], "crashes"), state._replace(clients=crashed, budget=less)
            yield from self._steps_of(state, number, client)

    def _goes_on(self, state: _State, number: int) -> bool:
        """Return whether a client has something to do: it has not ended, and does not wait for a message."""
        client = state.clients[number]
        return isinstance(client, _Running) and bool(state.queue or not isinstance(self._next_of(client), Take))

    def _steps_of(self, state: _State, number: int, client: _Running) -> Iterator[_Step]:
        name, fails = self.names[number], self.run.clients[number].fails
        lost, late, crash, unread = state.budget
        request = self._next_of(client)

        def answered(reply: Any, rows: _Rows = state.rows, **changes: Any) -> _State:
            writes = client.writes + isinstance(request, Write)
            replies = (*client.replies, reply)
            # A crash after a read is the same as one before it.
            now = client._replace(writes=writes, replies=replies, may_crash=not isinstance(request, Get))
            clients = (*state.clients[:number], self._settle(now), *state.clients[number + 1 :])
            return _after(state, rows, clients=clients, **changes)

        match request:
            case Get(key):
                row = next((row for at, row in state.rows if at == key), None)
                yield (name, request, "->", row), answered(row)
                instead = self.run.clients[number].refused
                if instead is not None and unread:
                    told = client._replace(
                        program=instead, arguments=(client.program, client.arguments), replies=(), begun=True
                    )
                    clients = (*state.clients[:number], self._settle(told), *state.clients[number + 1 :])
                    less = lost, late, crash, unread - 1
                    yield (name, request, "is rejected"), state._replace(clients=clients, budget=less)
            case Put(message):
                queue = tuple(sorted({*state.queue, message}))
                yield (name, request, OK), answered(OK, queue=queue)
                if fails and lost:
                    less = lost - 1, late, crash, unread
                    yield (name, request, "reply lost"), answered(LOST, queue=queue, budget=less)
                    yield (name, request, "request lost"), answered(LOST, budget=less)
            case Ack(message):
                left = tuple(each for each in state.queue if each != message)
                yield (name, request), answered(OK, queue=left)
            case Take():
                for message in state.queue:
                    yield (name, "takes", message), answered(message)
                if not state.queue and not state.late and self._others_have_ended(state, number):
                    yield (name, "finds no message"), answered(None)
            case Write():
                etag = f"{name}{client.writes + 1}"
                outcome, rows = _apply(state.rows, request, etag)
                yield (name, request, "->", outcome), answered((outcome, etag), rows)
                if fails and lost:
                    less = lost - 1, late, crash, unread
                    if outcome == OK:
                        yield (name, request, "applied, reply lost"), answered((LOST, etag), rows, budget=less)
                    yield (name, request, "request lost"), answered((LOST, etag), budget=less)
                if fails and late:
                    waiting = tuple(sorted((*state.late, (request, etag))))
                    less = lost, late - 1, crash, unread
                    yield (name, request, "late"), answered((LOST, etag), late=waiting, budget=less)
            case _:
                raise AssertionError(f"{name} yields {request!r}")

    def _others_have_ended(self, state: _State, number: int) -> bool:
        """Return whether nobody but clients of the same program is left, so that no more messages come."""
        program = self.run.clients[number].program
        return all(
            isinstance(each, _Ended) or self.run.clients[other].program is program
            for other, each in enumerate(state.clients)
        )


def _after(state: _State, rows: _Rows, **changes: Any) -> _State:
    """Return the state with other rows, without writes that can never be applied to them any more."""
    after = state._replace(rows=rows, **changes)
    if not after.late:
        return after
    etags = {row.etag for _, row in rows} | {etag for _, etag in after.late}
    return after._replace(late=tuple(each for each in after.late if _can_arrive(each[0], etags)))


def _can_arrive(write: Write, etags: set[str]) -> bool:
    """Return whether a write may be applied at some time, given the ETags of all rows that there are or may come."""
    return all(each.if_match in ("", "*") or each.if_match in etags for each in write.operations)


def _apply(rows: _Rows, write: Write, etag: str) -> tuple[str, _Rows]:
    """Return the outcome of a write and the rows after it."""
    keys = {each.key for each in write.operations}
    assert len({partition for partition, _ in keys}) == 1, f"one transaction, one partition: {write}"
    assert len(keys) == len(write.operations), f"one transaction, each row once: {write}"
    after = dict(rows)
    for verb, key, content, if_match in write.operations:
        stored = after.get(key)
        if verb == "insert" and stored is not None:
            return EXISTS, rows
        if verb in ("replace", "delete"):
            if stored is None:
                return MISSING, rows
            if if_match not in ("*", stored.etag):
                return STALE, rows
        if verb == "delete":
            del after[key]
        else:
            after[key] = Row(etag, content)
    return OK, tuple(sorted(after.items()))
