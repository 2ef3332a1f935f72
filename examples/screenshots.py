"""Pictures of the pages in a folder and those below, as a browser shows them: wide, on a phone, dark, and printed.

    python examples/screenshots.py runs docs/images      # needs chromium, chromium-browser or google-chrome

Writes NAME-1280.png, NAME-400.png, NAME-dark.png and NAME.pdf for each page: of runs, of tests, of comparisons, of logs
and of the index. Of two pages of one name, the later one has its folder's name in front.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
DARK = "@media screen and (prefers-color-scheme: dark)"
FRAME = (
    '<!doctype html><body style="margin:0"><iframe style="width:{}px;height:{}px;border:0" srcdoc="{}"></iframe></body>'
)


def main(run: Path, out: Path) -> None:
    """Take the pictures."""
    if not BROWSER:
        sys.exit("No browser found. Install chromium.")
    out.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for page in sorted(run.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        name = page.stem if page.stem not in taken else f"{page.parent.name}-{page.stem}"
        taken.add(name)
        for look, width, height in (("1280", 1280, 1250), ("400", 400, 1900), ("dark", 1280, 1250)):
            shown = text.replace(DARK, "@media screen") if look == "dark" else text
            # A window of a browser without a screen is at least 500 pixels wide; a frame in it is not.
            framed = FRAME.format(width, height, html.escape(shown, quote=True))
            browse(framed, f"--screenshot={out.absolute()}/{name}-{look}.png", f"--window-size={width},{height}")
        browse(text, f"--print-to-pdf={out.absolute()}/{name}.pdf", "--no-pdf-header-footer")
    print(*sorted(path.name for path in out.iterdir()), sep="\n")


def browse(text: str, *options: str) -> None:
    """Open a page, wait for its figures, and make one picture."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(text, encoding="utf-8")
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=5000", *options, f"file://{page}"]
        subprocess.run(command, capture_output=True, check=True, timeout=300)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Give a folder with pages and one for the pictures: python examples/screenshots.py runs docs/images")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
