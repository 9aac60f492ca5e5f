"""The secret that the servers of a bus share."""

from pathlib import Path
from shlex import quote

from mombroker.core.errors import MomError
from mombroker.core.topology import Topology
from mombroker.net.files import Log
from mombroker.store import folder

SECRET_LEAST = 16  # bytes


def secret_of(topology: Topology, log: Log) -> bytes:
    """The secret of the bus, empty if it has none."""
    if topology.secret_file is None:
        return b""
    path = Path(topology.secret_file)
    remedy = (
        f"make one by `(umask 077; head -c 32 /dev/urandom | base64 > {quote(str(path))})` and give it to all servers"
    )
    try:
        secret = path.read_bytes().strip()
        if folder.readable_by_others(path):
            log(f"other users may read the secret in {path}; run chmod 600 {path}")
    except FileNotFoundError:
        raise MomError(f"there is no secret_file {path}: {remedy}") from None
    except OSError as error:
        raise MomError(f"cannot read secret_file {path} ({error.strerror}): let the servers' user read it") from None
    if not secret:
        raise MomError(f"secret_file {path} is empty: {remedy}")
    if len(secret) < SECRET_LEAST:
        raise MomError(f"secret_file {path} has {len(secret)} bytes, less than {SECRET_LEAST}: {remedy}")
    return secret
