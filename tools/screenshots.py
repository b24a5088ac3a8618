"""Draw the pictures of the front page, and take screenshots of the documentation to look at.

    python tools/screenshots.py pictures             # writes docs/assets/clip_text.html and docs/assets/explain*.png
    python tools/screenshots.py pictures --stored    # draws the page that is there, without measuring
    python tools/screenshots.py pages FOLDER         # README.md and pages of build/site, on a desk and on a phone

`pictures` measures the text encoder of CLIP from `benchmarks/networks` on OpenVINO and CpuAcc, and shows a layer that
OpenVINO refuses. It needs Chromium, onnx, OpenVINO and Pillow. `pages` needs Chromium, the extra `docs`, and a site
that `make site` has built.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
ASSETS: Final = ROOT / "docs/assets"
BACKENDS: Final = ("OpenVino", "CpuAcc")
NETWORK: Final = "clip_text"
REFUSED: Final = "ArgMax_130"
"""The layer that is selected in the pictures."""
PICTURE: Final = {"width": 1200, "height": 640, "scale": 2}
COLORS: Final = 128
"""Colors in a picture. More make the file larger, and no difference to the eye."""
BORDER: Final = {False: "#d0d7de", True: "#3d444d"}
"""The color of the border of a picture, by whether the picture is dark."""
SECONDS: Final = 5.0
TRIES: Final = 5
"""How often the network is measured. The quickest measurement is shown, as other programs disturb the others."""
SIZES: Final = {
    "desk": {"width": 1440, "height": 900},
    "phone": {"width": 390, "height": 844, "phone": True, "scale": 2},
}
PAGES: Final = ("index.html", "first-hour.html", "explaining.html", "models.html", "api/model.html")
LOADED: Final = "document.readyState === 'complete'"


@contextmanager
def browsing() -> Iterator[Any]:
    """Start a browser, and end it."""
    sys.path.insert(0, str(ROOT))
    from tests import browser as browsers  # noqa: PLC0415 - the path is known only now

    program = browsers.installed()
    if program is None:
        raise SystemExit("Chromium is not installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = browsers.Browser(program, Path(folder))
        yield browser
        browser.close()


def explain(page: Path) -> None:
    """Measure the network, write its explanation as a page, and print its summary."""
    sys.path.insert(0, str(ROOT))
    import interposer as ip  # noqa: PLC0415 - only for the pictures
    from benchmarks import networks  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        model = ip.load(networks.saved(NETWORK, Path(folder)), list(BACKENDS))
        print("\n".join(model.explain().summary()))
        tries = [model.explain(measure=True, budget_seconds=SECONDS) for _ in range(TRIES)]
        quickest = min(tries, key=lambda explanation: explanation.to_dict()["times"]["whole_ms"])
        page.write_text(quickest.to_html(), encoding="utf-8")


def pictures(stored: bool) -> None:
    """Write the page of the explanation, unless it is `stored`, and its pictures in light and in dark colors."""
    page = ASSETS / f"{NETWORK}.html"
    if not stored:
        explain(page)
    with browsing() as browser:
        for name, dark in (("explain", False), ("explain-dark", True)):
            opened = browser.open(page, dark=dark, **PICTURE)
            opened.click(f'g.node[data-name="{REFUSED}"]')
            opened.evaluate("document.activeElement.blur()")
            opened.settle()
            save(opened, ASSETS / f"{name}.png", BORDER[dark])
            opened.close()


def save(page: Any, path: Path, border: str) -> None:
    """Store a picture of a page with few colors, and with a border, as its background is that of the text around it."""
    from PIL import Image, ImageDraw  # noqa: PLC0415 - only for the pictures

    with tempfile.TemporaryDirectory() as folder:
        picture = Image.open(io.BytesIO(page.screenshot(Path(folder) / "picture.png"))).convert("RGB")
    ImageDraw.Draw(picture).rectangle((0, 0, picture.width - 1, picture.height - 1), outline=border, width=2)
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {picture.width} x {picture.height}, {path.stat().st_size / 1024:.0f} KiB")


def pages(folder: Path) -> None:
    """Write screenshots of the first screens of README.md and of pages of the site."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".html", dir=ROOT, encoding="utf-8") as readme, browsing() as browser:
        readme.write(readme_page())
        readme.flush()
        files = {"readme": Path(readme.name)} | {name: ROOT / "build/site" / name for name in PAGES}
        for name, file in files.items():
            for size, metrics in SIZES.items():
                for dark in (False, True):
                    opened = browser.open(file, dark=dark, ready=LOADED, **metrics)
                    label = name.removesuffix(".html").replace("/", "-")
                    opened.screenshot(folder / f"{label}-{size}{'-dark' * dark}.png")
                    wide = opened.evaluate("document.documentElement.scrollWidth - innerWidth")
                    if wide > 0:
                        print(f"{label} is {wide} pixels wider than the {size}")
                    opened.evaluate("localStorage.clear()")  # the site stores whether it is dark
                    opened.close()


def readme_page() -> str:
    """Return README.md as a page with a look like that of code hosts."""
    import markdown  # noqa: PLC0415 - only for the screenshots

    extensions = ["tables", "fenced_code", "md_in_html", "toc"]
    body = markdown.markdown((ROOT / "README.md").read_text(encoding="utf-8"), extensions=extensions)
    return f"""<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>README</title><style>
body {{ max-width: 56rem; margin: 1.5rem auto; padding: 0 1rem; font: 16px/1.5 sans-serif; overflow-wrap: break-word;
  color: light-dark(#1f2328, #f0f6fc); background: light-dark(#fff, #0d1117); }}
img {{ max-width: 100%; }} a {{ color: light-dark(#0969da, #4493f8); }}
pre, code {{ font: 13.6px/1.45 monospace; background: light-dark(#f6f8fa, #151b23); }}
pre {{ padding: 1rem; overflow: auto; border-radius: 6px; }} code {{ padding: .1em .3em; }} pre code {{ padding: 0; }}
table {{ display: block; max-width: 100%; overflow: auto; border-collapse: collapse; }}
td, th {{ padding: .35rem .8rem; border: 1px solid light-dark(#d1d9e0, #3d444d); }}
</style>{body}"""


def main() -> None:
    """Do what the first argument asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("pictures", help="write the pictures of the front page")
    drawing.add_argument("--stored", action="store_true", help="draw the stored page, without measuring")
    commands.add_parser("pages", help="write screenshots of the documentation").add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "pictures":
        pictures(arguments.stored)
    else:
        pages(arguments.folder)


if __name__ == "__main__":
    main()
