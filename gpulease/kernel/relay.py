"""Shows what a companion shows, by home's own IPython.

Streams go through ``sys.stdout`` and ``sys.stderr``, rich output through the display publisher and
results through the displayhook, so that ``%%capture``, ``redirect_stdout``, the ``Output`` widget
and nbconvert work as for a cell that ran here.  Main thread only.
"""

from __future__ import annotations

import html
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from gpulease.kernel.remote_error import mark_shown, remote_error
from gpulease.sides.hushed import HUSHED

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
