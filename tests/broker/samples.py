"""Values of fields, by no list: of each field of a dataclass one that is not its default."""

from dataclasses import fields
from typing import Any

from mombroker.broker.properties import pack

SPECIAL = {
    "properties": pack({"color": "red", "size": 5}), "kind": "text", "dedup": ("p", 5), "form": b"@\0",
    "body": b"body", "reply_to": "/queue/answers", "content_type": "text/plain",
}  # fmt: skip


def others(cls: Any, *but: str) -> dict[str, Any]:
    """Of each field that has a default and is not left out."""
    return {
        each.name: SPECIAL[each.name] if each.name in SPECIAL else _other(each.name, each.default)
        for each in fields(cls)
        if each.init and each.name not in but
    }


def _other(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 3
    assert value is None or isinstance(value, str | bytes), f"say in SPECIAL what {name} may be"
    return name.encode() if isinstance(value, bytes) else name
