"""The HTTP port of a server: metrics, health, what `mom` knows as JSON, STOMP over WebSocket."""
