"""What a consumer or subscription wants of the messages that it could have."""

from __future__ import annotations
