"""The inspector: tasks on the left, what the agent did on the right, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from opensage_benchmarks.swe.view.look import body, headline, title, verdict_style
from opensage_benchmarks.swe.view.rows import Row
from opensage_benchmarks.swe.view.steps import Step, read_steps

_FOLDED = {"system": 0, "task": 0, "note": 3, "patch": 200}
_SHORT = 8
"""Lines of a step that is not opened."""
_OPEN = 2000
_MARKS = {True: "+", False: "-", None: " "}


class Inspector(App[None]):
    """Shows a run.

    Args:
        out: where it is, for the title.
        rows: its tasks.
        chosen: the task to begin with.
    """

    CSS = """
    #tasks { width: 34; height: 100%; border: none; }
    #steps { height: 1fr; border: none; }
    OptionList > .option-list--option-highlighted { background: $surface-lighten-1; }
    OptionList:focus > .option-list--option-highlighted { background: $surface-lighten-3; }
    #head { padding: 0 1; height: auto; max-height: 4; background: $panel; }
    #search { dock: bottom; display: none; height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move(1)", "down", show=False),
        Binding("k", "move(-1)", "up", show=False),
        Binding("n", "task(1)", "next task"),
        Binding("p", "task(-1)", "previous task"),
        Binding("space", "page(1)", "page", show=False),
        Binding("b", "page(-1)", "page back", show=False),
        Binding("u", "unresolved", "only unresolved"),
        Binding("slash", "search", "search"),
        Binding("escape", "leave", "back", show=False),
        Binding("q", "quit", "quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, out: Path, rows: Sequence[Row], chosen: Row | None = None) -> None:
        super().__init__()
        self.title = str(out)
        self._all = list(rows)
        self._rows = list(rows)
        self._first = chosen
        self._steps: list[Step] = []
        self._opened: set[int] = set()
        self._unresolved, self._wanted = False, ""

    def compose(self) -> ComposeResult:
        """Lists, the line of facts, the field of the search."""
        with Horizontal():
            yield OptionList(id="tasks")
            with Vertical():
                yield Static(id="head", markup=False)
                yield OptionList(id="steps", markup=False)
        yield Input(placeholder="part of an id, a status or a reason", id="search")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the list; with a task given, begin in its steps."""
        self._fill(self._first)
        self._list("steps" if self._first else "tasks").focus()

    def _list(self, name: str) -> OptionList:
        return self.query_one(f"#{name}", OptionList)

    def _fill(self, keep: Row | None) -> None:
        """List the tasks that are asked for, the cursor on the one it was on if that is still there."""
        wanted = self._wanted.casefold()
        self._rows = [
            row
            for row in self._all
            if not (self._unresolved and row.resolved) and wanted in f"{row.id} {row.status} {row.reason}".casefold()
        ]
        tasks = self._list("tasks")
        tasks.clear_options()
        tasks.add_options([Option(_entry(row)) for row in self._rows])
        if self._rows:
            tasks.highlighted = self._rows.index(keep) if keep in self._rows else 0
        else:
            self.query_one("#head", Static).update(Text("no such task"))
            self._show([])

    def _current(self) -> Row | None:
        at = self._list("tasks").highlighted
        return None if at is None or at >= len(self._rows) else self._rows[at]

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another task: show it."""
        row = self._current()
        if event.option_list.id == "tasks" and row is not None:
            self.query_one("#head", Static).update(headline(row))
            self._load(row)

    @work(thread=True, exclusive=True)
    def _load(self, row: Row) -> None:
        """Read a trajectory beside the drawing: it may be large."""
        steps = read_steps(row)
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self._show, steps)

    def _show(self, steps: list[Step]) -> None:
        self._steps, self._opened = steps, set()
        listed = self._list("steps")
        listed.clear_options()
        listed.add_options([Option(_drawn(step, False)) for step in steps])
        listed.highlighted = 0 if steps else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter on a task goes to its steps; on a step it opens or folds it."""
        if event.option_list.id == "tasks":
            self._list("steps").focus()
            return
        at = event.option_index
        self._opened ^= {at}
        event.option_list.replace_option_prompt_at_index(at, _drawn(self._steps[at], at in self._opened))

    def action_move(self, by: int) -> None:
        """The next or the previous line of the list that has the focus."""
        listed = self._list("steps") if self._list("steps").has_focus else self._list("tasks")
        listed.action_cursor_down() if by > 0 else listed.action_cursor_up()

    def action_page(self, by: int) -> None:
        """Scroll the steps by a page, the cursor left where it is."""
        listed = self._list("steps")
        listed.scroll_page_down() if by > 0 else listed.scroll_page_up()

    def action_task(self, by: int) -> None:
        """The next or the previous task, wherever the focus is."""
        tasks = self._list("tasks")
        if self._rows:
            tasks.highlighted = max(0, min(len(self._rows) - 1, (tasks.highlighted or 0) + by))

    def action_unresolved(self) -> None:
        """Leave out what is resolved, or bring it back."""
        self._unresolved = not self._unresolved
        self._fill(self._current())

    def action_search(self) -> None:
        """Ask what to look for."""
        field = self.query_one("#search", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """List what is found while it is typed."""
        self._wanted = event.value
        self._fill(self._current())

    def on_input_submitted(self) -> None:
        """To the tasks that were found."""
        self.query_one("#search", Input).display = False
        self._list("tasks").focus()

    def action_leave(self) -> None:
        """Out of the search, or back to the tasks."""
        field = self.query_one("#search", Input)
        if field.display:
            field.value = ""
            field.display = False
        self._list("tasks").focus()


def _entry(row: Row) -> Text:
    mark = f"{_MARKS[row.resolved]} {row.id}  "
    return Text(no_wrap=True).append(mark, verdict_style(row)).append(row.status, "dim")


def _drawn(step: Step, opened: bool) -> Text:
    """A step; folded, its first lines."""
    most = _OPEN if opened else _FOLDED.get(step.kind, _SHORT)
    text = title(step)
    if not most:
        count = step.text.count("\n") + 1
        return text.append(f"  ({count} line{'s' * (count > 1)}, Enter opens)", style="dim")
    return text.append("\n").append_text(body(step, most)) if step.text else text
