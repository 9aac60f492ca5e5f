"""`mom serve`: one agent server in the foreground."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.net import hangup
from mombroker.store import folder


@click.command()
@options.file_option
@options.server_option("Which server of the file; not needed if there is only one.")
def serve(file: Path, server: str | None) -> None:
    """Run one agent server, or one of its replicas as SERVER/REPLICA, in the foreground.

    It ends in good order at SIGTERM, at Ctrl-C, and when its terminal is closed. At SIGHUP, as at `mom server reload`,
    it reads certificates, [limits] and [log] of FILE anew. The folder of FILE can be imported from, so that agent
    classes may lie beside it. What the server has to tell goes to stderr. Exit code 3 means that a commit failed, as on
    a full disk: then a restart does not help.

    \b
    Example:
      mom serve bus.toml --server lyon
    """
    hangup.hold()
    topology = options.load(file)
    at = options.pick_process(topology, server)
    folder.claim(Path(at.data))
    from mombroker.net import service  # takes most of the time of the start

    options.importable(file)
    raise SystemExit(service.serve(topology, at.label, load=lambda: options.load(file), makes=makes(file)))


def makes(file: Path) -> dict[str, Callable[..., dict[str, Any]]]:
    """What the HTTP ports of the servers of a file are asked beside the verbs; imported when it is asked first."""

    def plan(text: str, drop: bool) -> dict[str, Any]:
        from mombroker.admin.topology import plan as plans

        return plans.of_text(options.found(file), text, drop)

    def message_ways(message: str) -> dict[str, Any]:
        from mombroker.admin import ways

        return ways.of_message(options.found(file), message)

    return {"plan": plan, "ways": message_ways}
