"""The JupyterLab extension's texts in other languages, as Lab's translator gets them."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import gpulease.lab

ROOT = Path(__file__).parents[2]
LANGUAGES = ("de_DE", "fr_FR")
PLACES = re.compile(r"%+\d|%%%%gpu|%gpu resolve")


def texts() -> dict[str, str]:
    place = ROOT / "tools" / "extract_texts.py"
    spec = importlib.util.spec_from_file_location("extract_texts", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.texts()
    return found


def catalogue(language: str) -> dict[str, list[str]]:
    file = Path(gpulease.lab.__file__).parent / "locale" / language / "LC_MESSAGES/gpulease.json"
    found: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated_and_none_is_left_over(language: str) -> None:
    found = catalogue(language)
    assert set(found) - {""} == set(texts())


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_filled_in_stands_in_each_translation(language: str) -> None:
    found = catalogue(language)
    for text, plural in texts().items():
        assert len(found[text]) == (2 if plural else 1), text
        for translated in found[text]:
            assert sorted(PLACES.findall(translated)) == sorted(PLACES.findall(text)), text


@pytest.mark.parametrize("language", LANGUAGES)
def test_lab_finds_it(language: str) -> None:
    from jupyterlab_server.translation_utils import get_installed_packages_locale

    found, problem = get_installed_packages_locale(language)
    assert not problem
    assert found["gpulease"]["Request GPU"] == catalogue(language)["Request GPU"]
    # Lab's translator looks for its texts under a language's tag, and asks the server by its name.
    assert found["gpulease"][""]["language"] == language.replace("_", "-")
