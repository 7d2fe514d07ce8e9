"""Pictures of what people see, taken by the tests that bring a page there.

``GPULEASE_PICTURES`` names the folder that they are kept in (``docs/images``); without it they are
looked at by nobody, but a state that cannot be shown fails its test all the same.  In nightly runs
a page that follows the browser's theme is taken in the dark one too; JupyterLab loads another theme
for it and shows nothing meanwhile, and has a dark picture by its own setting.
"""

import io
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

    def film(self, name: str) -> "Film":
        """Return an animated picture to be taken step by step."""
        return Film(self._folder / f"{name}.gif")

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.png"

    def _make_small(self, name: str) -> None:
        """Keep as few colours as do the picture no harm."""
        with Image.open(self._path(name)) as picture:
            small = picture.convert("RGB").quantize(colors=128)
        small.save(self._path(name), optimize=True)


#: A line over the page that says what a step of a film shows.
CAPTION = """text => {
  const line = document.body.appendChild(document.createElement('p'));
  line.id = 'caption';
  line.textContent = text;
  Object.assign(line.style, {position: 'fixed', zIndex: 99999, bottom: '34px', left: '44px',
    margin: 0, padding: '10px 20px', borderRadius: '8px', background: '#1f2937', color: '#fff',
    font: '600 18px sans-serif', whiteSpace: 'nowrap'});
}"""


class Film:
    """An animated picture of what a test does, each step with a line of text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps: list[Image.Image] = []

    def take(self, page: Any, text: str) -> None:
        """Add what the tab shows now."""
        page.evaluate(CAPTION, text)
        picture = page.screenshot(animations="disabled")
        page.evaluate("document.getElementById('caption').remove()")
        with Image.open(io.BytesIO(picture)) as step:
            self._steps.append(step.convert("RGB").quantize(colors=64))

    def keep(self, seconds: float) -> None:
        """Write all of it, so long in all."""
        first, *others = self._steps
        each = 1000 * seconds / len(self._steps)
        first.save(self._path, save_all=True, append_images=others, duration=each, loop=0)
