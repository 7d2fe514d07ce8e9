"""Handlers of loggers as descriptions: what is known of them, and what is left alone."""

import io
import logging
import sys

import pytest

from gpulease.sides.state import log_handlers


@pytest.fixture
def logger():
    found = logging.getLogger("own.handlers")
    yield found
    empty(found)


def empty(logger):
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True


def again(logger):
    """Describe the logger, empty it, and make it as described."""
    told = {logger.name: log_handlers.get()[logger.name]}
    empty(logger)
    log_handlers.put(told)
    assert log_handlers.get()[logger.name] == told[logger.name]


@pytest.mark.parametrize(
    ("form", "style", "said"),
    [
        ("%(levelname)s|%(message)s", "%", "INFO|one"),
        ("{levelname}|{message}", "{", "INFO|one"),
        ("$levelname|$message", "$", "INFO|one"),
        (None, "%", "one"),
    ],
)
def test_lines_look_as_they_did(logger, capsys, form, style, said):
    handler = logging.StreamHandler(sys.stdout)
    handler.setLevel("INFO")
    handler.setFormatter(logging.Formatter(form, style=style))
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel("DEBUG")
    again(logger)
    logger.debug("below the handler's level")
    logger.info("one")
    assert capsys.readouterr().out == f"{said}\n"
    assert not logger.propagate


def test_a_file_is_gone_on_with(logger, tmp_path):
    path = tmp_path / "lines.log"
    logger.setLevel("INFO")
    logger.addHandler(logging.FileHandler(path, "w", encoding="latin-1"))
    logger.info("é")
    again(logger)
    logger.info("ü")
    assert path.read_text("latin-1") == "é\nü\n"


def test_two_who_write_to_a_file_overwrite_nothing(logger, tmp_path):
    path = tmp_path / "lines.log"
    path.write_text("older")
    handler = logging.FileHandler(path, "w", delay=True)
    logger.setLevel("INFO")
    logger.addHandler(handler)
    log_handlers.get()  # the other side is told
    logger.info("here")
    with path.open("a") as there:
        there.write("there\n")
    logger.info("here again")
    assert path.read_text() == "here\nthere\nhere again\n"


def test_what_is_alike_stays_the_object_that_it_is_and_a_librarys_stays(logger):
    class Own(logging.Handler):
        pass

    own, plain, old = Own(), logging.StreamHandler(sys.stderr), logging.NullHandler()
    for handler in (own, plain, old):
        logger.addHandler(handler)
    told = log_handlers.get()[logger.name]
    assert len(told[2]) == 2
    log_handlers.put({logger.name: (True, False, told[2][:1])})
    assert logger.handlers == [own, plain]


@pytest.mark.parametrize("change", ["filters", "formatter", "stream"])
def test_what_works_on_one_side_alone_stays_there_and_the_other_says_so_once(
    logger, capsys, change
):
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel("ERROR")
    if change == "filters":
        handler.addFilter(lambda _record: True)
    elif change == "formatter":
        handler.setFormatter(type("Own", (logging.Formatter,), {})())
    else:
        handler.setStream(io.StringIO())
    logger.addHandler(handler)
    told = {logger.name: log_handlers.get()[logger.name]}
    log_handlers.put(told)
    assert logger.handlers == [handler]
    empty(logger)
    log_handlers.put(told)  # as on the other side
    assert log_handlers.get()[logger.name] == told[logger.name]
    logger.warning("below its level")
    assert capsys.readouterr().err == ""
    logger.error("one")
    logger.error("two")
    said = capsys.readouterr().err
    assert said.count("does not reach the StreamHandler of the logger 'own.handlers'") == 1


def test_what_was_there_before_any_cell_is_the_processs_own(logger, monkeypatch):
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    monkeypatch.setattr(log_handlers, "_own", None)
    assert logger.name not in log_handlers.get()


def test_loggers_of_imported_modules_are_left_alone():
    handler = logging.NullHandler()
    logging.getLogger("logging.own").addHandler(handler)
    try:
        assert "logging.own" not in log_handlers.get()
    finally:
        logging.getLogger("logging.own").removeHandler(handler)
