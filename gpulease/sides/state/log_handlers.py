"""What loggers do with a line: the handlers that are known by what they were made with.

Handlers to the notebook's output and to files travel, of the root and of loggers that belong to no
imported module: a module's own are made where it is imported.  Handlers of other kinds stay with
the process that made them; on the other side something stands for them that says so.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_STREAMS = ("stdout", "stderr")
_STYLES = {logging.PercentStyle: "%", logging.StrFormatStyle: "{", logging.StringTemplateStyle: "$"}


class Description(NamedTuple):
    """A handler: ``where`` is a stream's name or a file's path, ``form`` what formats a line.

    Of one that stays where it is, ``where`` is its class.
    """

    kind: str
    where: str
    encoding: str | None
    level: int
    form: tuple[str | None, str | None, str] | None


class Elsewhere(logging.Handler):
    """Stands for a handler that works on the other side alone; ``of`` is its class."""

    def __init__(self, of: str, logger: str) -> None:
        super().__init__()
        self.of, self._logger = of, logger
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Say once that lines do not reach it."""
        if not self._said:
            self._said = True
            of = f"the logger {self._logger!r}" if self._logger else "the root logger"
            sys.stderr.write(
                f"gpulease: what is logged here does not reach the {self.of} of {of}: it works"
                " only on the side, your notebook or the GPU, where it was added.\n"
            )


#: Handlers that were there before any cell ran: the process's own.
_own: weakref.WeakSet[logging.Handler] | None = None


#: What a logger does that nobody changed: it passes lines on, is on, and has no handlers.
UNCHANGED = (True, False, ())


def get() -> dict[str, Any]:
    """Return by logger's name whether it passes lines on and is off, and its handlers."""
    global _own  # noqa: PLW0603 - as are the loggers
    if _own is None:
        _own = weakref.WeakSet(h for _, logger in _loggers() for h in logger.handlers)
    found = {}
    for name, logger in _loggers():
        known = tuple([tuple(d) for h in logger.handlers if (d := _describe(h)) is not None])
        told = (bool(logger.propagate), bool(logger.disabled), known)
        if told != UNCHANGED:
            found[name] = told
    return found


def put(values: Mapping[str, Any]) -> None:
    """Give loggers the handlers that are described; those that are alike stay who they are."""
    for name, (propagate, disabled, handlers) in values.items():
        logger = logging.getLogger(name or None)
        logger.propagate, logger.disabled = propagate, disabled
        wanted = [Description(*each) for each in handlers]
        for handler in list(logger.handlers):
            description = _describe(handler)
            if description in wanted:
                wanted.remove(description)
            elif description is not None:
                logger.removeHandler(handler)
                handler.close()
        for description in wanted:
            logger.addHandler(_make(description, name))


def _loggers() -> Iterator[tuple[str, logging.Logger]]:
    """Yield those of which there may be something to tell; there are hundreds of others."""
    yield "", logging.getLogger()
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if type(logger) is logging.PlaceHolder:
            continue
        assert isinstance(logger, logging.Logger)
        if logger.handlers or not logger.propagate or logger.disabled:
            first = name.partition(".")[0]
            if first == "__main__" or first not in sys.modules:
                yield name, logger


def _describe(handler: logging.Handler) -> Description | None:
    """Return what a handler is on both sides; None for the process's own and a library's."""
    known = _describe_known(handler)
    if known is not None:
        return known
    if type(handler) is Elsewhere:
        return Description("elsewhere", handler.of, None, handler.level, None)
    of_notebook = type(handler).__module__.partition(".")[0] in {"__main__", "logging"}
    if not of_notebook or (_own is not None and handler in _own):
        return None
    return Description("elsewhere", type(handler).__name__, None, handler.level, None)


def _describe_known(handler: logging.Handler) -> Description | None:
    form = _form(handler.formatter)
    if handler.filters or form == ():
        return None
    rest = handler.level, form or None
    if type(handler) is logging.StreamHandler:
        names = (name for name in _STREAMS if handler.stream is getattr(sys, name))
        name = next(names, None)
        return None if name is None else Description("stream", name, None, *rest)
    if type(handler) is logging.FileHandler:
        _append_only(handler)
        return Description("file", handler.baseFilename, handler.encoding, *rest)
    return Description("null", "", None, *rest) if type(handler) is logging.NullHandler else None


def _append_only(handler: logging.FileHandler) -> None:
    """Two processes write to the file from now on, each after what the other one wrote."""
    if handler.mode == "a":
        return
    with handler.lock or contextlib.nullcontext():
        stream = handler.stream or handler._open()  # noqa: SLF001 - empties the file, as it is to
        stream.close()
        handler.mode, handler.stream = "a", None  # opened when needed


def _form(formatter: logging.Formatter | None) -> Any:
    """Return what a formatter was made with, None for none, () where that is not known."""
    if formatter is None:
        return None
    style = _STYLES.get(type(formatter._style))  # noqa: SLF001 - nothing else says it
    if type(formatter) is not logging.Formatter or style is None:
        return ()
    return formatter._fmt, formatter.datefmt, style  # noqa: SLF001


def _make(description: Description, logger: str) -> logging.Handler:
    handler: logging.Handler
    if description.kind == "file":  # the other side has begun it
        handler = logging.FileHandler(description.where, "a", description.encoding, delay=True)
    elif description.kind == "stream":
        handler = logging.StreamHandler(getattr(sys, description.where))
    elif description.kind == "elsewhere":
        handler = Elsewhere(description.where, logger)
    else:
        handler = logging.NullHandler()
    handler.setLevel(description.level)
    if description.form is not None:
        form, dates, style = description.form
        handler.setFormatter(logging.Formatter(form, dates, style))  # type: ignore[arg-type]
    return handler
