"""Where the replicas of a server are: what of its settings each has for itself."""

from dataclasses import dataclass


def listen_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Place:
    """One replica. `host:port` is where the others, peers and `mom` reach it; the rest is as in a server's settings.

    certificate   empty: that of the server
    witness       it votes and keeps the end of the log, and no rows
    """

    name: str
    host: str
    port: int
    data: str = ""
    stomp: str | None = None
    stomp_tls: str | None = None
    http: str | None = None
    http_tls: str | None = None
    certificate: str = ""
    private_key: str = ""
    witness: bool = False
    amqp: str | None = None
    amqp_tls: str | None = None

    @property
    def listen(self) -> str:
        return listen_of(self.host, self.port)
