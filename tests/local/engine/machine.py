"""
The frame of random programs on engines of one file.
"""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from tableorm.protocol.codes import Fault
from tableorm_local.engine import Engine


class EngineMachine(RuleBasedStateMachine):
    """Has so many engines on a new file, which are closed in the end."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.engines = [Engine(Path(self.folder.name) / "data") for _ in range(count)]

    def teardown(self) -> None:
        for engine in self.engines:
            self.run(engine.close())
        self.runner.close()
        self.folder.cleanup()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The result of a call, or the code of its fault."""

        async def outcome() -> Any:
            try:
                return await call
            except Fault as fault:
                return fault.code

        return self.runner.run(outcome())
