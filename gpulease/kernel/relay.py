"""Shows what a companion shows, by home's own IPython.

Streams go through ``sys.stdout`` and ``sys.stderr``, rich output through the display publisher and
results through the displayhook, so that ``%%capture``, ``redirect_stdout``, the ``Output`` widget
and nbconvert work as for a cell that ran here.  Main thread only.
"""

from __future__ import annotations

import builtins
import functools
import html
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

from gpulease.sides.hushed import HUSHED
from gpulease.sides.last_error import Frame, remember

Message = dict[str, Any]
REMEMBERED_PARENTS = 200


class RemoteResult:
    """Stands in ``Out[n]`` and ``_`` for a value that is not home yet; shows as the value does."""

    def __init__(self, execution_count: int, data: Mapping[str, Any], metadata: Any) -> None:
        self.execution_count = execution_count
        self._data = dict(data)
        self._metadata = metadata

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], Any]:
        return self._data, self._metadata

    def __repr__(self) -> str:
        return str(self._data.get("text/plain", f"<result of GPU cell {self.execution_count}>"))


class Relay:
    """Shows a companion's output in home's cells.

    ``on_result`` gets each placeholder that entered ``Out``; ``on_comm`` gets comm messages.
    """

    def __init__(
        self,
        shell: Any,
        on_comm: Callable[[Message], None],
        on_result: Callable[[RemoteResult], None],
    ) -> None:
        self._shell = shell
        self._on_comm = on_comm
        self._on_result = on_result
        self._parents: OrderedDict[str, Message] = OrderedDict()
        self._held_error: Message | None = None
        self._written: Any = None  # the stream written to last, which may hold it back

    def remember_parent(self, msg_id: str, parent: Message) -> None:
        """Output of request ``msg_id`` belongs to home's message ``parent``, also when late."""
        self._parents[msg_id] = parent
        self._parents.move_to_end(msg_id)
        while len(self._parents) > REMEMBERED_PARENTS:
            self._parents.popitem(last=False)

    def show(self, message: Message, *, current: bool) -> None:
        """Show one iopub message; ``current``: it belongs to the cell that home runs now."""
        if current:
            self._show(message)
            return
        msg_id = message["parent_header"].get("msg_id", "")
        if msg_id == HUSHED:
            return
        parent = self._parents.get(msg_id)
        with self.under(parent):
            self._show(message)
            self.flush()

    def flush(self) -> None:
        """Show what was held back to see what follows it."""
        content, self._held_error = self._held_error, None
        if content is not None and _is_usage(content):
            self._shell.show_usage_error(content["evalue"])
        elif content is not None:
            error = remote_error(content["ename"], content["evalue"], content["traceback"])
            self._shell._showtraceback(type(error), error, content["traceback"])  # noqa: SLF001

    def error_of(self, reply: Mapping[str, Any], extra: str = "") -> BaseException | None:
        """Return the exception that a reply tells of, or None; ``extra`` is shown at its end."""
        if reply.get("status") == "ok":
            self.flush()
            return None
        if reply.get("status") == "aborted":
            self.flush()
            return remote_error("Aborted", "The cell was aborted.", ["The cell was aborted."])
        held, self._held_error = self._held_error, None
        if held is not None and _is_usage(held):
            from IPython.core.error import UsageError

            return UsageError(held["evalue"])
        content = held or reply
        traceback = list(content.get("traceback", ()))
        evalue = str(content.get("evalue", ""))
        if extra:
            traceback.append(extra)
            evalue = f"{evalue}. {extra}"
        error = remote_error(str(content.get("ename", "Error")), evalue, traceback)
        if held is None:
            # The companion published no error last: it was shown before, or as text.
            mark_shown(error)
            self._shell._last_traceback = traceback  # noqa: SLF001 - what the reply repeats
        return error

    def _show(self, message: Message) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind in ("comm_open", "comm_msg", "comm_close"):
            # An Output widget takes what was printed between two messages of its own.
            self._pass_on()
            self._on_comm(message)
            return
        handler = getattr(self, f"_show_{kind}", None)
        if handler is not None:
            self.flush()
            handler(content)

    def _show_stream(self, content: Message) -> None:
        stream = sys.stderr if content["name"] == "stderr" else sys.stdout
        if stream is not self._written:
            self._pass_on()
        stream.write(content["text"])
        self._written = stream

    def _pass_on(self) -> None:
        """Let no stream hold back what came before the next message."""
        stream, self._written = self._written, None
        if stream is not None:
            stream.flush()

    def _show_display_data(self, content: Message, *, update: bool = False) -> None:
        self._shell.display_pub.publish(
            content["data"],
            content.get("metadata"),
            transient=content.get("transient") or {},
            update=update,
        )

    def _show_update_display_data(self, content: Message) -> None:
        self._show_display_data(content, update=True)

    def _show_execute_result(self, content: Message) -> None:
        result = RemoteResult(
            self._shell.displayhook.prompt_count, content["data"], content.get("metadata") or {}
        )
        hook = self._shell.displayhook
        # The companion already looked for a trailing semicolon, in the text that it ran.
        hook.quiet = lambda: False
        try:
            sys.displayhook(result)
        finally:
            del hook.quiet
        self._on_result(result)

    def _show_clear_output(self, content: Message) -> None:
        self._shell.display_pub.clear_output(content.get("wait", False))

    def _show_error(self, content: Message) -> None:
        # Usually the cell's own error, which home raises when the reply comes.
        self._held_error = content

    @contextmanager
    def under(self, parent: Message | None) -> Iterator[None]:
        """Publish as part of home's message ``parent``, as a plain kernel's threads do."""
        with ExitStack() as stack:
            publishers: tuple[Any, ...] = (
                self._shell.display_pub,
                self._shell.displayhook,
                sys.stdout,
                sys.stderr,
            )
            for publisher in publishers if parent is not None else ():
                if hasattr(publisher, "set_thread_parent"):
                    token = publisher.set_thread_parent(parent)
                    stack.callback(publisher.reset_thread_parent, token)
            yield


def _is_usage(content: Mapping[str, Any]) -> bool:
    """Tell IPython's own complaint of a magic from an error of a class that has its name."""
    return content["ename"] == "UsageError" and not content["traceback"]


def say(shell: Any, sentence: str) -> None:
    """Show one line of gpulease's own in the current cell."""
    shell.display_pub.publish(sentence_bundle(sentence))


def sentence_bundle(sentence: str) -> dict[str, str]:
    """Return how a sentence of gpulease's own is displayed; an empty one leaves nothing."""
    if not sentence:
        return {"text/plain": "", "text/html": ""}
    return {
        "text/plain": f"gpulease: {sentence}",
        "text/html": f'<small role="status"><b>gpulease</b>: {html.escape(sentence)}</small>',
    }


class RemoteError:
    """Mixed into every error relayed from a companion; its class is made as it comes.

    That has the other side's name, text and traceback, and a builtin base where the original had
    one, so that ``except ValueError`` around ``@gpu.run`` works.

    Attributes:
        ename: class name of the original.
        evalue: its text.
        remote_traceback: the companion's formatted traceback, one string a block.
        original: what was raised there, None where that could not come here.
        frames: where it was raised.
    """

    original: BaseException | None = None
    frames: Sequence[Frame] = ()
    ename: str = ""
    evalue: str = ""
    remote_traceback: list[str]

    def __init__(self, ename: str = "", evalue: str = "", traceback: Sequence[str] = ()) -> None:
        self.ename = ename
        self.evalue = evalue
        self.remote_traceback = list(traceback)

    def __str__(self) -> str:
        return self.evalue

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{self.ename!r} object has no attribute {name!r} here: the error was raised on the"
            " GPU, and only its name and text could come to your notebook.",
            name=name,
            obj=self,
        )

    def _render_traceback_(self) -> list[str]:
        """Give IPython the companion's own traceback instead of home's frames."""
        return list(self.remote_traceback)

    def __reduce__(self) -> tuple[object, ...]:
        return remote_error, (self.ename, self.evalue, self.remote_traceback)


def remote_error(ename: str, evalue: str, traceback: Sequence[str]) -> BaseException:
    """Return an exception of a class named ``ename`` that shows the companion's traceback."""
    error: BaseException = _class_for(ename)(ename, evalue, traceback)
    return error


def remember_original(error: object) -> None:
    """IPython showed ``error``: let it remember what the companion raised in its place."""
    if isinstance(error, RemoteError) and error.original is not None:
        remember(error.original, error.frames)


def mark_shown(error: BaseException) -> None:
    """The person has seen this error: the cell fails with it, and nothing is shown again."""
    error.__dict__["_gpulease_shown"] = True


def was_shown(error: BaseException | None) -> bool:
    """Tell whether ``error`` is marked as shown."""
    return error is not None and "_gpulease_shown" in getattr(error, "__dict__", ())


@lru_cache(maxsize=256)
def _class_for(ename: str) -> type[BaseException]:
    original = getattr(builtins, ename, None)
    base: type[BaseException] = Exception
    # IPython formats SyntaxErrors itself, and takes SystemExit and groups apart: their remote
    # traceback would be lost, so these keep the name only.
    unsafe = (SyntaxError, SystemExit, BaseExceptionGroup)
    if (
        isinstance(original, type)
        and issubclass(original, BaseException)
        and not issubclass(original, unsafe)
    ):
        base = original
    return type(ename, (RemoteError, base), {"__module__": "builtins"})


class QueueProgress:
    """What a cell shows while it waits: one display, of which nothing is saved in the notebook.

    ``alone``: tells whether the cell shows nothing else so far.
    """

    def __init__(self, shell: Any, alone: Callable[[], bool] = lambda: False) -> None:
        self._shell = shell
        self._alone = alone
        self._shown = ""
        self.used = False

    @functools.cached_property
    def display_id(self) -> str:
        """Its id; most cells have nothing to show, and need none."""
        return f"gpulease-{uuid.uuid4().hex}"

    def show(self, text: str) -> None:
        """Show or replace the text; an equal text is not sent again."""
        if text != self._shown:
            self._shown = text
            self._shell.display_pub.publish(
                {
                    "text/plain": text,
                    "text/html": f'<div role="status">{html.escape(text)}</div>' if text else "",
                },
                transient={"display_id": self.display_id},
                update=self.used,
            )
            self.used = True

    def clear(self) -> None:
        """Leave nothing of it in the notebook: no text, and no empty line where it can be."""
        if self.used and self._alone():
            self._shell.display_pub.clear_output()
            self._shown, self.used = "", False
        elif self.used:
            self.show("")
