"""Pictures of what people see, taken by the tests that bring a page there.

``GPULEASE_PICTURES`` names the folder that they are kept in (``docs/images``); without it they are
looked at by nobody, but a state that cannot be shown fails its test all the same.  In nightly runs
a page that follows the browser's theme is taken in the dark one too; JupyterLab loads another theme
for it and shows nothing meanwhile, and has a dark picture by its own setting.
"""

import os
from pathlib import Path
from typing import Any

from PIL import Image

#: Where the pictures of README and docs go.
KEPT = "GPULEASE_PICTURES"
NIGHTLY = "GPULEASE_NIGHTLY"


class Pictures:
    """The pictures of one module's tests."""

    def __init__(self, folder: Path) -> None:
        self._kept = os.environ.get(KEPT)
        self._folder = Path(self._kept or folder)
        self.taken: set[str] = set()

    def take(self, page: Any, name: str) -> None:
        """Write what the tab shows now."""
        page.screenshot(path=self._path(name), animations="disabled")
        if self._kept:
            self._make_small(name)
        self.taken.add(name)
        if os.environ.get(NIGHTLY) and not page.evaluate("'jpThemeLight' in document.body.dataset"):
            page.emulate_media(color_scheme="dark")
            page.screenshot(path=self._path(f"{name}-dark"), animations="disabled")
            page.emulate_media(color_scheme="light")

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.png"

    def _make_small(self, name: str) -> None:
        """Keep as few colours as do the picture no harm."""
        with Image.open(self._path(name)) as picture:
            small = picture.convert("RGB").quantize(colors=128)
        small.save(self._path(name), optimize=True)
