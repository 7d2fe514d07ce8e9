"""What loggers do with a line: the handlers that are known by what they were made with.

Owns handlers to the notebook's output and to files, of the root and of loggers that belong to no
imported module: a module's own are made where it is imported.  Handlers of other kinds stay with
the process that made them.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_STREAMS = ("stdout", "stderr")
_STYLES = {logging.PercentStyle: "%", logging.StrFormatStyle: "{", logging.StringTemplateStyle: "$"}


class Description(NamedTuple):
    """A handler: ``where`` is a stream's name or a file's path, ``form`` what formats a line."""

    kind: str
    where: str
    encoding: str | None
    level: int
    form: tuple[str | None, str | None, str] | None


#: What a logger does that nobody changed: it passes lines on, is on, and has no handlers.
UNCHANGED = (True, False, ())


def get() -> dict[str, Any]:
    """Return by logger's name whether it passes lines on and is off, and its handlers."""
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
            logger.addHandler(_make(description))


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


def _make(description: Description) -> logging.Handler:
    handler: logging.Handler
    if description.kind == "file":  # the other side has begun it
        handler = logging.FileHandler(description.where, "a", description.encoding, delay=True)
    elif description.kind == "stream":
        handler = logging.StreamHandler(getattr(sys, description.where))
    else:
        handler = logging.NullHandler()
    handler.setLevel(description.level)
    if description.form is not None:
        form, dates, style = description.form
        handler.setFormatter(logging.Formatter(form, dates, style))  # type: ignore[arg-type]
    return handler
