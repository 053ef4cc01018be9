"""
The explorer for the terminal: tables on the left, the filter and its plan on top, rows and all of one row below.
"""

import ast
from collections.abc import Coroutine, Sequence
from copy import copy
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import ContentSwitcher, DataTable, Footer, Input, Static, Tree
from textual.widgets.tree import TreeNode

from ..advice import measure_table
from ..database.database import Database
from ..errors import DecodeError, TableOrmError, counted
from ..expressions import Comparison
from ..models.entity import Entity, schema_of
from ..protocol.redaction import escape_unprintable
from .picture import draw_bars
from .views import PAGE, UPKEEP, ParseCondition, Plan, SplitKey, View, describe

_SHORT, _LONG = 60, 4_000  # characters of a value that are shown in a cell, and of one below the rows
_RANGES = 8  # of keys, evenly spread, of which the picture reads the first page
_BESIDE = 36  # columns beside the picture
_MOST_COLUMNS = 40  # the others are shown below the rows


class Explorer(App[None]):
    """
    Shows the tables of a database. It reads pages and samples, and writes nothing unless it may.

    Args:
        db: The open database.
        models: The models whose entities are shown as such.
        parse: Reads the conditions of the filter line on the fields of a model.
        write: Whether a row can be deleted, and a value of it be changed.
    """

    TITLE = "tableorm browse"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #tables { width: 30; border-right: solid $primary; }
    #plan { height: auto; max-height: 9; padding: 0 1; color: $text-muted; }
    #plan.scan { color: $warning; }
    #plan.refused { color: $error; }
    #rows, #picture { height: 1fr; }
    #picture { padding: 1 2; }
    ContentSwitcher { height: 1fr; }
    #value { display: none; }
    #details { height: 12; border-top: solid $primary; padding: 0 1; }
    #status { height: auto; max-height: 3; padding: 0 1; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("slash", "focus('filter')", "Filter"),
        ("t", "focus('tables')", "Tables"),
        ("escape", "focus('rows')", "Rows"),
        ("n", "turn(1)", "Next"),
        ("p", "turn(-1)", "Previous"),
        ("c", "copy('cell')", "Copy cell"),
        ("r", "copy('row')", "Copy row"),
        ("y", "copy('query')", "Copy query"),
        ("e", "edit", "Edit"),
        ("d", "delete", "Delete"),
        ("q", "quit", "Quit"),
    ]

    def __init__(
        self, db: Database, models: Sequence[type[Entity]], parse: ParseCondition, *, write: bool = False
    ) -> None:
        super().__init__()
        self._db, self._models, self._parse, self._write = db, models, parse, write
        self._view: View  # the chosen one; without it the filter is disabled
        self._plan: Plan | None = None  # of the filter line
        self._shown: Plan | None = None  # of the rows
        self._agreed: Plan | None = None  # the plan whose scan was agreed to
        self._doomed: Any = None  # the row whose delete is to be confirmed
        self._cursors: list[str | None] = [None]  # where the pages begin, up to the one behind this one
        self._number = 0  # of the page
        self._items: list[Any] = []
        self._rows: list[dict[str, tuple[str, Any]]] = []
        self._names: list[str] = []  # of the columns
        self._tree = Tree[View | str]("tables", id="tables")
        self._filter = Input(placeholder="Choose a table or a kind before you filter", id="filter", disabled=True)
        self._value = Input(placeholder="New value, e.g. 7, 'text' or None; Enter saves it", id="value")
        self._cost = Static(id="plan", markup=False)
        self._status = Static("choose a table or a kind on the left", id="status", markup=False)
        self._table = DataTable[Text](id="rows", zebra_stripes=True, fixed_columns=2)
        self._detail, self._bars = Static(markup=False), Static(markup=False)
        below = VerticalScroll(self._detail, id="details")
        view = Vertical(self._filter, self._cost, self._table, self._value, below, id="view")
        self._switcher = ContentSwitcher(view, VerticalScroll(self._bars, id="picture"), initial="view")
        # Disabled until the outcome of a write is said.
        self._body = Horizontal(self._tree, Vertical(self._switcher, self._status))

    def compose(self) -> ComposeResult:
        """Lay out the widgets."""
        yield self._body
        yield Footer()

    def on_mount(self) -> None:
        """List the tables."""
        self._tree.show_root = False
        self._tree.focus()
        self._work(self._list_tables())

    async def _list_tables(self) -> None:
        for table in await self._db.tables():
            node = self._tree.root.add(_show(table))
            for view in View.of_table(table, self._models):
                node.add_leaf(view.label, view)
            node.add_leaf("partitions", table)
        schemas = [(each, schema_of(each)) for each in self._models]
        in_periods = [View(each.__name__, str(own.table), each) for each, own in schemas if own.periods]
        for view in (*in_periods, *UPKEEP):
            self._tree.root.add_leaf(view.label, view)
        self._tree.cursor_line = 0

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys that write, unless the explorer may; ignore all keys while a write is under way."""
        del parameters
        if action in ("edit", "delete") and not self._write:
            return False
        return None if self._body.disabled else True

    def action_help_quit(self) -> None:
        """Quit by Ctrl-C, as it ends every command; in a browser, where it copies, keep textual's hint."""
        if self.is_web:
            super().action_help_quit()
        else:
            self.exit()

    # Choosing

    @on(Tree.NodeSelected)
    def _choose(self, event: "Tree.NodeSelected[View | str]") -> None:
        chosen, table = event.node.data, event.node.parent
        if self._body.disabled:  # keys that came before it was would end a write under way
            return
        if isinstance(chosen, View):
            self._view = chosen
            self._filter.disabled = False
            self._filter.placeholder = f"Filter, e.g. age {'>' if chosen.model else 'gt'} 30"
            with self.prevent(Input.Changed):
                self._filter.value = ""
            self._plan_filter()
            self._run_plan()
        elif chosen is not None and table is not None:
            self._work(self._sample(chosen, table))

    async def _sample(self, table: str, node: "TreeNode[View | str]") -> None:
        self._say(f"reading a sample of {table} ...")
        measured = await measure_table(self._db, table, sample=_RANGES)
        self._bars.update("\n".join(draw_bars(str(measured).splitlines(), self.size.width - _BESIDE)))
        self._switcher.current = "picture"
        known = {str(each.label) for each in node.children}
        for kind in measured.kinds:
            if kind and kind not in known:
                node.add_leaf(_show(kind), View.of_kind(table, kind))
        self._say(f"{table}: kinds are listed on the left")

    # The filter and its plan

    @on(Input.Changed, "#filter")
    def _plan_filter(self) -> None:
        try:
            self._plan = self._view.plan(self._db, self._filter.value, self._parse)
            text = self._plan.text
        except (TableOrmError, ValueError) as error:
            self._plan, text = None, str(error).removeprefix("--where ")
        self._cost.update("\n".join(map(escape_unprintable, text.splitlines())))
        self._cost.set_classes("refused" if self._plan is None else "scan" * self._plan.scan)

    @on(Input.Submitted, "#filter")
    def _submit_filter(self) -> None:
        if self._body.disabled:
            return
        if self._plan is not None and self._plan.scan and self._agreed is not self._plan:
            self._agreed = self._plan
            self._say("this scans every partition, or a range of them; press Enter again to read it page by page")
        else:
            self._run_plan()

    # Pages

    def _run_plan(self) -> None:
        if self._plan is not None:
            self._shown, self._cursors = self._plan, [None]
            self._work(self._load(self._plan, 0))

    def action_turn(self, step: int) -> None:
        """Show the next page, or the one before."""
        if self._shown is not None and 0 <= self._number + step < len(self._cursors):
            self._work(self._load(self._shown, self._number + step))

    async def _load(self, plan: Plan, number: int) -> None:
        self._say("reading ...")
        misfits: list[DecodeError] = []
        page = await plan.query.misfits(misfits.append).page(PAGE, self._cursors[number])
        self._items, self._number = page.items, number
        self._cursors[number + 1 :] = [] if page.cursor is None else [page.cursor]
        self._rows = [describe(item) for item in page.items]
        names = dict.fromkeys(name for row in self._rows for name in row)
        self._names = sorted(names, key="Timestamp".__eq__)[:_MOST_COLUMNS]  # which is the last one
        self._switcher.current = "view"
        self._detail.update("")
        self._table.clear(columns=True)
        self._table.add_columns(*map(_show, self._names))
        for row in self._rows:
            self._table.add_row(*(_show(row.get(name, ("", ""))[1]) for name in self._names))
        self._table.focus()
        more = "more follow" if page.cursor else "the last page"
        problem = f"; {len(misfits)} that don't fit are left out: {misfits[0]}" if misfits else ""
        count = counted(len(self._rows), "row")
        self._say(f"{self._view.table} / {self._view.label}: page {number + 1}, {count}, {more}{problem}")

    # One row

    @on(DataTable.CellHighlighted)
    def _show_details(self, event: DataTable.CellHighlighted) -> None:
        row = self._rows[event.coordinate.row]
        width = max(map(len, row))
        lines = Text()
        for name, (kind, value) in row.items():
            lines.append(f"{escape_unprintable(name):<{width}}  {kind:<10} ", "dim").append_text(_show(value, _LONG))
            for text, field in value.parts if isinstance(value, SplitKey) else ():
                if field:
                    lines.append(f"  {field}=", "dim").append(escape_unprintable(text))
            lines.append("\n")
        self._detail.update(lines)

    def action_copy(self, what: str) -> None:
        """Copy the cell or the row under the cursor, or the query, as Python."""
        item = self._chosen()
        if self._shown is None or (item is None and what != "query"):
            return
        if what == "query":
            text = self._shown.code
        elif what == "row":
            text = repr(item)
        else:
            row, column = self._table.cursor_coordinate
            text = str(self._rows[row].get(self._names[column], ("", ""))[1])
        self.copy_to_clipboard(text)
        self._say(f"copied: {text}")

    # Changing one row

    def _chosen(self) -> Any:
        """The row under the cursor; None if there is none."""
        row = self._table.cursor_coordinate.row
        return self._items[row] if 0 <= row < len(self._items) else None

    def action_delete(self) -> None:
        """Delete the row under the cursor as it was read, when the key is pressed twice."""
        item = self._chosen()
        if item is not None and item is self._doomed:
            self._start_write(self._db.delete(item), "deleted")
        elif item is not None:
            self._doomed = item
            self._say(f"press d again to delete {item!r}")

    def action_edit(self) -> None:
        """Ask for a new value of the cell under the cursor."""
        if self._chosen() is not None:
            self._value.display, self._value.value = True, ""
            self._value.focus()

    @on(Input.Blurred, "#value")
    def _leave_value(self) -> None:
        self._value.display = False

    @on(Input.Submitted, "#value")
    def _submit_value(self, event: Input.Submitted) -> None:
        name = self._names[self._table.cursor_coordinate.column]
        self._table.focus()
        try:
            changed = self._changed(self._chosen(), name, event.value)
        except (TableOrmError, ValueError, SyntaxError) as error:
            self._say(f"{name} is unchanged: {error}")
        else:
            self._start_write(self._db.save(changed), f"{name} is saved")

    def _changed(self, item: Any, name: str, text: str) -> Any:
        """Return a copy of a row with another value. Raises TableOrmError, ValueError or SyntaxError."""
        own = schema_of(type(item)).fields if isinstance(item, Entity) else item
        if name not in own:
            raise ValueError("only fields, or properties that the row already has, can be changed here")
        changed: Any = copy(item)
        value = None
        if not isinstance(item, Entity):
            changed[name] = ast.literal_eval(text)
            return changed
        if text.strip() != "None":
            condition = self._parse(f"{name} == {text}", type(item))
            if not isinstance(condition, Comparison):
                raise ValueError("type a single value")
            value = condition.value
        setattr(changed, name, value)
        return changed

    def _start_write(self, write: Coroutine[Any, Any, object], done: str) -> None:
        self._body.disabled = True  # at once, so that no key comes between
        self._work(self._finish_write(write, done))

    async def _finish_write(self, write: Coroutine[Any, Any, object], done: str) -> None:
        try:
            await write
            if self._shown is not None:
                try:
                    await self._load(self._shown, self._number)
                except (TableOrmError, OSError) as error:
                    done = f"{done}; the rows couldn't be reread: {error}"
            self._say(done)
        finally:
            self._body.disabled = False
            self._table.focus()

    # What all have in common

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what waits for the store in place of what is being done now, and show its errors."""

        async def attempt() -> None:
            try:
                await work
            except (TableOrmError, OSError) as error:
                self._say(f"{type(error).__name__}: {error}")

        self.run_worker(attempt(), exclusive=True)

    def _say(self, text: str) -> None:
        self._status.update(escape_unprintable(f"{text}  ({self._db.stats.requests} requests so far)"))


def _show(value: object, limit: int = _SHORT) -> Text:
    """Return a value as text that a terminal shows, and does not obey; the fields of a key are told from the rest."""
    if isinstance(value, SplitKey):
        return Text.assemble(*((escape_unprintable(text), "bold cyan" if field else "") for text, field in value.parts))
    text = "" if value is None else repr(value) if isinstance(value, bytes) else str(value)
    return Text(escape_unprintable(text if len(text) <= limit else text[: limit - 1] + "…"))
