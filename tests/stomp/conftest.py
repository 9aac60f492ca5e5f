"""What several files here ask for: a server for clients on real sockets, and a client of each version without."""

from tests.gateway.live import town as town
from tests.stomp.peer import any_version as any_version
