"""
Random programs on blobs, by two engines on one file, compared with a dictionary.
"""

from collections.abc import AsyncIterator

import attrs
import hypothesis.strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tableorm.protocol.codes import Code
from tableorm.stores import BlobInfo
from tableorm_local.engine.blobs import Blobs
from tests.local.engine.machine import EngineMachine

CONTAINER = "container"
NAMES = st.sampled_from(["a", "a/b", "b", "é"])
# Within a chunk, at its edge, beyond it, and more than one transaction stages.
SIZES = st.sampled_from([0, 1, 1000, 262_143, 262_144, 262_145, 1_048_576, 1_400_000])
TAGS = st.sampled_from(["none", "none", "any", "current", "old"])


@attrs.frozen
class Known:
    """What the model knows of a blob."""

    data: bytes
    info: BlobInfo
    appended: bool


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


class Programs(EngineMachine):
    def __init__(self) -> None:
        super().__init__(2)
        self.model: dict[str, Known] = {}
        self.tags: dict[str, list[str]] = {}
        self.count = 0

    def blobs(self) -> Blobs:
        """Those of one engine and of the other in turn."""
        self.count += 1
        return self.engines[self.count % 2].blobs

    def data(self, size: int) -> bytes:
        """Bytes that no other write has."""
        self.count += 1
        return (self.count.to_bytes(4, "big") * (size // 4 + 1))[:size]

    def tag(self, name: str, choice: str) -> str | None:
        known = self.model.get(name)
        tags = {
            "none": None,
            "any": "*",
            "current": known.info.etag if known else '"0x1"',
            "old": self.tags.get(name, ['"0x1"'])[0],
        }
        return tags[choice]

    def met(self, name: str, tag: str | None) -> bool:
        known = self.model.get(name)
        return tag is None or (known is not None and tag in ("*", known.info.etag))

    def remember(self, info: BlobInfo, data: bytes, *, appended: bool) -> None:
        assert (info.length, info.etag in self.tags.get(info.name, [])) == (len(data), False)
        self.tags.setdefault(info.name, []).append(info.etag)
        self.model[info.name] = Known(data, info, appended)

    @initialize()
    def start(self) -> None:
        for engine in self.engines:
            self.run(engine.open())
        self.run(self.engines[0].blobs.create_container(CONTAINER))

    @rule(name=NAMES, size=SIZES, tag=TAGS, absent=st.booleans(), piece=st.sampled_from([0, 300_000]))
    def put(self, name: str, size: int, tag: str, piece: int, *, absent: bool) -> None:
        """Put bytes, in one or in pieces, under conditions that may not hold."""
        data, wanted = self.data(size), self.tag(name, tag)
        source = pieces(data, piece) if piece else data
        metadata = {"size": str(size)}
        call = self.blobs().put(CONTAINER, name, source, if_none_match=absent, if_match=wanted, metadata=metadata)
        info = self.run(call)
        if absent and name in self.model:
            assert info == Code.BLOB_EXISTS
        elif not self.met(name, wanted):
            assert info == Code.CONDITION_NOT_MET
        else:
            assert info.metadata == metadata
            self.remember(info, data, appended=False)

    @rule(name=NAMES, size=SIZES.filter(bool), create=st.booleans(), position=st.sampled_from(["none", "end", "zero"]))
    def append(self, name: str, size: int, position: str, *, create: bool) -> None:
        """Append where that may not be allowed."""
        known, data = self.model.get(name), self.data(size)
        end = len(known.data) if known else 0
        at = {"none": None, "end": end, "zero": 0}[position]
        info = self.run(self.blobs().append(CONTAINER, name, data, create=create, if_position=at))
        if known is None and not create:
            assert info == Code.BLOB_NOT_FOUND
        elif at not in (None, end):
            assert info == Code.APPEND_POSITION_NOT_MET
        elif known is not None and not known.appended:
            assert info == Code.INVALID_BLOB_TYPE
        else:
            self.remember(info, (known.data if known else b"") + data, appended=True)

    @rule(name=NAMES, tag=TAGS)
    def delete(self, name: str, tag: str) -> None:
        """Delete a blob, if it is there, under a condition."""
        wanted = self.tag(name, tag)
        outcome = self.run(self.blobs().delete(CONTAINER, name, if_match=wanted))
        if name not in self.model:
            assert outcome == Code.BLOB_NOT_FOUND
        elif not self.met(name, wanted):
            assert outcome == Code.CONDITION_NOT_MET
        else:
            assert outcome is None
            del self.model[name]

    @rule(name=NAMES, offset=SIZES, length=st.none() | SIZES.filter(bool))
    def read(self, name: str, offset: int, length: int | None) -> None:
        """Read a range."""
        known = self.model.get(name)
        data = self.run(self.blobs().read(CONTAINER, name, offset, length))
        if known is None:
            assert data == Code.BLOB_NOT_FOUND
        elif offset and offset >= len(known.data):
            assert data == Code.INVALID_RANGE
        else:
            assert data == known.data[offset:][:length]

    @rule(prefix=st.sampled_from(["", "a", "a/", "x"]), limit=st.sampled_from([1, 2, 5000]))
    def list_blobs(self, prefix: str, limit: int) -> None:
        """All pages of a list."""
        found: list[BlobInfo] = []
        continuation: str | None = None
        while True:
            page = self.run(self.blobs().list_blobs(CONTAINER, prefix, continuation, limit))
            found += page.blobs
            continuation = page.continuation
            if continuation is None:
                break
        assert found == [self.model[name].info for name in sorted(self.model) if name.startswith(prefix)]

    @rule()
    def drop(self) -> None:
        """Delete the container, and make it again."""
        self.run(self.blobs().delete_container(CONTAINER))
        assert self.run(self.blobs().list_blobs(CONTAINER)) == Code.CONTAINER_NOT_FOUND
        self.run(self.blobs().create_container(CONTAINER))
        self.model.clear()

    @rule()
    def reopen(self) -> None:
        """A restart changes nothing."""
        self.run(self.engines[0].close())
        self.run(self.engines[0].open())

    @invariant()
    def both_see_the_same(self) -> None:
        """Each engine tells of each blob what its writer was told."""
        if self.count:
            for engine in self.engines:
                for name, known in self.model.items():
                    assert self.run(engine.blobs.info(CONTAINER, name)) == known.info


TestPrograms = Programs.TestCase
