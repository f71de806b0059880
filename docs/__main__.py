"""Write the generated pages: ``python -m docs`` (``make docs``)."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.pages import pages
from docs.stub import STUB, stub

HERE = Path(__file__).parent


def main() -> int:
    """Write every page that changed, and the type stub of the package."""
    written = 0
    for path, text in {STUB: stub(), **{HERE / name: text for name, text in pages().items()}}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            written += 1
    sys.stdout.write(f"{written} pages written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
