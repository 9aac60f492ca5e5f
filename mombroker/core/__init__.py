"""The agent server without I/O: what happens, and what must be durable before anybody hears of it."""
