"""A server with a port for AMQP, as a process."""

from tests.admin.processes import Processes, free_ports


def one_server(folder, more="anonymous = true\n"):
    """Running; `port` is AMQP's, `stomp` that of STOMP."""
    listen, port, stomp = free_ports(3)
    (folder / "bus.toml").write_text(
        f'[bus]\nname = "solo"\n[servers.main]\nlisten = "127.0.0.1:{listen}"\namqp = "127.0.0.1:{port}"\n'
        f'stomp = "127.0.0.1:{stomp}"\ndata = "main"\n{more}'
    )
    made = Processes(folder / "bus.toml")
    made.port, made.stomp = port, stomp
    made.up()
    return made
