"""The console: files that a browser gets as they are. What they show they ask of `/api`."""

from __future__ import annotations

from pathlib import Path

from mombroker.gateway.web.http import Answer

FOLDER = Path(__file__).parent / "console"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Scripts and styles of these files alone; nothing asks anybody else; no text becomes HTML.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


def files() -> dict[str, Answer]:
    """By path."""
    found = {f"/{path.name}": path for path in FOLDER.iterdir() if path.suffix in TYPES}
    found["/"] = found.pop("/index.html")
    headers = {"content-security-policy": POLICY}
    return {at: Answer(200, path.read_bytes(), TYPES[path.suffix], headers) for at, path in sorted(found.items())}
