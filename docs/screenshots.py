"""Takes the pictures of README and docs from a running demo.

    python docs/screenshots.py [FOLDER]

Starts ``gpulease demo`` with simulated GPUs on free ports, drives it with Chromium as its people
would, and writes PNG files to FOLDER (``docs/images``).  Needs Debian's chromium package and the
``test`` extra.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

LONG = 60_000  # ms
WIDE = {"width": 1100, "height": 760}
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: How many cells, text included, until the plot is there.
PLOT = 8
# The notebook's own indicator says idle before there is a kernel; the status bar does not.
IDLE = "#jp-main-statusbar >> text=/[|] Idle/"


def main(folder: Path) -> int:
    """Take all pictures; return the exit status."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("Chromium is not installed; `make setup-system` brings it.")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        demo, url = start_demo(Path(scratch))
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
                take_all(browser, url, folder)
                browser.close()
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(120)
    return 0


def start_demo(directory: Path) -> tuple["subprocess.Popen[bytes]", str]:
    """Start a demo whose leases last long enough to be looked at."""
    command = [sys.executable, "-m", "gpulease.cli", "demo", "--port", "0", "--simulate"]
    times = ["--idle", "45", "--warning", "30", "--warm-up", "1", "--gpus", "1"]
    demo = subprocess.Popen([*command, *times, "--dir", str(directory)])
    state = directory / "demo.json"
    deadline = time.monotonic() + 180
    while not (state.exists() and state.stat().st_size):
        if demo.poll() is not None or time.monotonic() > deadline:
            demo.kill()
            raise SystemExit("the demo did not start; its output says why")
        time.sleep(0.2)
    return demo, str(json.loads(state.read_text())["url"])


def take_all(browser: Browser, url: str, folder: Path) -> None:
    """Go through the demo as its people would, and take a picture at each place."""
    service = f"{url}services/gpulease/"
    student = logged_in(browser, url, "student")
    student.goto(f"{url}hub/spawn/student", timeout=LONG)
    student.wait_for_url("**/user/student/lab**", timeout=LONG)
    home = student.context.new_page()
    home.goto(f"{url}hub/home")
    card = home.frame_locator("iframe")
    card.locator("a:has-text('Request GPU')").wait_for(timeout=LONG)
    shoot(home, folder / "hub-home.png", settle=800)

    student.bring_to_front()
    run_notebook(student, cells=PLOT)
    shoot(student, folder / "lab.png", settle=1500)
    student.click(".gpulease-status-item")

    mine = student.context.new_page()
    mine.goto(service)
    mine.wait_for_selector('#leases [data-state="active"]', timeout=LONG)
    shoot(mine, folder / "student.png", settle=1500, whole=True)
    in_queue(browser, url, service, folder)

    admin = logged_in(browser, url, "admin")
    admin.goto(f"{service}admin")
    admin.wait_for_selector("tbody tr", timeout=LONG)
    shoot(admin, folder / "admin.png", settle=1200)
    admin.goto(f"{service}policy")
    admin.wait_for_selector(".gl-version", timeout=LONG)
    broken = admin.input_value("#policy-text") + "time_out: {idle: 5}\n"
    admin.fill("#policy-text", broken)
    admin.click("#policy-check")
    admin.wait_for_selector(".gl-finding", timeout=LONG)
    shoot(admin, folder / "policy.png", settle=300, whole=True)

    mine.bring_to_front()
    mine.wait_for_selector('#leases [data-state="warned"]', timeout=LONG)
    shoot(mine, folder / "warned.png", settle=300, whole=True)
    in_lab(student, folder)


def in_lab(student: Page, folder: Path) -> None:
    """The extension's states in JupyterLab, in both themes."""
    student.bring_to_front()
    student.wait_for_selector(".gpulease-button.gpulease-urgent", timeout=LONG)
    shoot(student, folder / "lab-warned.png", settle=600)
    student.click(".Toastify__toast button:has-text('Keep')")
    student.wait_for_selector(".gpulease-button.gpulease-good", timeout=LONG)
    for item in ("Settings", "Theme", "JupyterLab Dark"):
        student.click(f"text={item} >> nth=0")
    student.click(".gpulease-button-menu")
    shoot(student, folder / "lab-dark.png", settle=1200)
    student.keyboard.press("Escape")


def in_queue(browser: Browser, url: str, service: str, folder: Path) -> None:
    """The second student waits for the only GPU."""
    second = logged_in(browser, url, "student2")
    second.goto(f"{url}hub/spawn/student2", timeout=LONG)
    second.wait_for_url("**/user/student2/lab**", timeout=LONG)
    second.goto(service)
    second.click("button:has-text('Request GPU')", timeout=LONG)
    second.wait_for_selector('#leases [data-state="queued"]', timeout=LONG)
    shoot(second, folder / "queued.png", settle=600, whole=True)


def logged_in(browser: Browser, url: str, name: str) -> Page:
    """Return a tab of a fresh profile in which this person is logged in."""
    page = browser.new_context(viewport=WIDE).new_page()  # type: ignore[arg-type]
    page.set_default_timeout(LONG)
    page.goto(f"{url}hub/login")
    page.fill("#username_input", name)
    page.fill("#password_input", name)
    page.click("#login_submit")
    page.wait_for_url("**/hub/home")
    return page


def run_notebook(page: Page, cells: int) -> None:
    """Open the demo notebook and run its first cells, by keyboard."""
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector(IDLE)
    close_popups(page)
    page.locator(".jp-Notebook .jp-Cell").first.click()
    page.keyboard.press("Escape")
    for _ in range(cells):
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(600)  # until the status bar says busy, if it is going to
        page.wait_for_selector(IDLE)
    page.wait_for_selector(".jp-OutputArea-output img", state="attached")


def close_popups(page: Page) -> None:
    """Lab asks about news; nobody wants that in a picture."""
    button = page.locator(".Toastify button:has-text('No')")
    if button.count():
        button.first.click()


def shoot(page: Any, path: Path, *, settle: int, whole: bool = False) -> None:
    """Take one picture, with as few colours as do it no harm."""
    page.bring_to_front()
    page.wait_for_timeout(settle)
    page.screenshot(path=path, full_page=whole)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(colors=128)
    small.save(path, optimize=True)
    print(f"{path}  {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"
    sys.exit(main(target))
