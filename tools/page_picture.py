"""Takes the picture of the page of `efficiency` that the documentation shows, docs/page.png: `python tools/page_picture.py`.

It is the first screen of the demo's page in Chromium. A browser of another version,
or other fonts, give other pixels: take it again where the page has changed, not for each version.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image

from nsys2prv.demo.run_demo import run_demo

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "tests"))

from support.browser import Browser, found_browser  # noqa: E402

PICTURE = CHECKOUT / "docs" / "page.png"
NODES, GPUS = 2, 4
COLORS = 256
"""A third of the bytes of all colors, and no difference to see."""
WIDTH, HEIGHT = 1240, 900
"""Of the window, pixels: what the page begins with."""


def main() -> None:
    """Take the picture of a new demo, or of the page that is given."""
    program = found_browser()
    if program is None:
        sys.exit("no browser is on PATH")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(sys.argv[1]) if len(sys.argv) > 1 else run_demo(Path(folder) / "demo", NODES, GPUS).page
        raw = Path(folder) / "raw.png"
        browser = Browser(program, Path(folder))
        browser.run(page.read_text(encoding="utf-8"), f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={raw}")
        with Image.open(raw) as image:
            few = image.convert("RGB").quantize(COLORS, kmeans=3, dither=Image.Dither.NONE)
            few.save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1e3:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
