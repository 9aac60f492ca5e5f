"""The HTTP port of a running server."""

import json
import ssl
import time

import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families
from websocket import create_connection

from mombroker.core.errors import MomError
from mombroker.gateway.users import hashed
from mombroker.gateway.web import metrics
from mombroker.stomp.frames import encode
from tests.gateway.live import ClientTown, free_port
from tests.gateway.test_sockets import certificate
from tests.gateway.web.test_connection import big
from tests.gateway.web.world import basic


def values(text):
    """{(name, destination): value} of a scrape."""
    return {
        (sample.name, sample.labels.get("destination", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_tells_what_the_server_knows(town):
    t = town().up()
    wire = t.wire()
    for body in (b"one", b"two"):
        wire.ask("SEND", body, destination="/queue/a")
    wire.send("SUBSCRIBE", destination="/queue/a", id="1", ack="client-individual")
    assert wire.read().body == b"one"
    wire.ask("SUBSCRIBE", destination="/topic/x", id="2")
    ((status, text),) = t.get("/metrics")
    found = values(text)
    assert status == 200
    assert found["mombroker_queue_messages", "queue:a"] == 2 and found["mombroker_queue_consumers", "queue:a"] == 1
    assert found["mombroker_connections", ""] == 1 and found["mombroker_commits_total", ""] >= 2
    assert found["process_open_fds", ""] > 3 and found["process_cpu_seconds_total", ""] > 0
    of_several = {metrics.full(metric) for metric in (*metrics.DOMAIN, *metrics.LINK)}
    assert {name for name, _ in found} == {metrics.full(metric) for metric in metrics.METRICS} - of_several


def test_it_works_and_is_ready(town):
    t = town().up()
    assert t.get("/healthz", "/readyz", "/what") == [
        (200, "works\n"), (200, "takes work\n"), (404, "there is no '/what' here; there are /, /metrics, /api, /ws\n"),
    ]  # fmt: skip
    assert t.ask("a", "status")["http"] == {"connections": 0, "requests": 3}
    t.node("a").working = False
    assert t.get("/readyz") == [(503, "has not started yet\n")]


def test_users_are_those_of_the_server(town):
    t = town(anonymous=False).up()
    t.ask("a", "set_user", user="ann", hash=hashed("x", 5), new=True)
    assert [status for status, _ in t.get("/metrics", "/healthz")] == [401, 200]
    assert t.get("/metrics", Authorization=basic("ann", "x"))[0][0] == 200
    assert t.get("/metrics", Authorization=basic("ann", "y"))[0][0] == 401


def test_the_port_by_tls(town, tmp_path):
    port, file = free_port(), tmp_path / "a.pem"
    file.write_bytes(certificate())
    t = town(http_tls=f"127.0.0.1:{port}", certificate=str(file)).up()
    context = ssl.create_default_context(cafile=file)
    assert t.get("/healthz", "/metrics", context=context, port=port)[0] == (200, "works\n")
    (text,) = (body for _, body in t.get("/metrics", context=context, port=port))
    assert 0 < values(text)["mombroker_certificate_expires_seconds", ""] - time.time() < 86_401
    assert any("a.pem ends in" in problem for problem in t.ask("a", "status")["problems"])
    t.node("a").web._pages["/big"] = lambda request, user: big()
    for status, body in t.get("/big", "/big", context=context, port=port):
        assert (status, len(body)) == (200, 1_000_000)
    with pytest.raises(OSError):
        t.get("/healthz", port=port)
    t.pass_time()
    assert any("speaks plain text on the TLS port" in line for line in t.lines["a"])


@pytest.mark.parametrize("tls", [False, True])
def test_stomp_over_websocket_by_another_library(town, tmp_path, tls):
    port, file = free_port(), tmp_path / "a.pem"
    file.write_bytes(certificate())
    how = {"http_tls": f"127.0.0.1:{port}", "certificate": str(file)} if tls else {"http": f"127.0.0.1:{port}"}
    t = town(**how).up()

    def work():
        url, options = f"ws{'s' * tls}://localhost:{port}/ws", {"ca_certs": str(file)} if tls else None
        socket = create_connection(url, 60, sslopt=options, subprotocols=["v12.stomp"])
        socket.send(encode("CONNECT", [("accept-version", "1.2"), ("host", "/")]))
        found = [socket.recv()]
        socket.send(encode("SUBSCRIBE", [("destination", "/queue/a"), ("id", "1")]))
        socket.send_binary(encode("SEND", [("destination", "/queue/a")], b"\xff" * 300_000))
        found.append(socket.recv())
        socket.ping("still there?")
        socket.send(encode("DISCONNECT", [("receipt", "bye")]))
        found.append(socket.recv())
        socket.close()
        return socket.subprotocol, found

    protocol, (connected, message, receipt) = t.do(work)
    assert protocol == "v12.stomp" and connected.startswith("CONNECTED\n") and receipt.startswith("RECEIPT\n")
    assert message.startswith(b"MESSAGE\n") and message.rstrip(b"\n").endswith(b"\xff" * 300_000 + b"\0")
    t.until(lambda: not t.node("a").gateway.clients)
    assert t.ask("a", "status")["stomp"]["total"] == 1


def test_a_port_that_is_taken_is_named(town):
    t = town().up()
    other = ClientTown(t.folder / "other")
    other.folder.mkdir()
    other.settings["http"] = t.settings["http"]
    with pytest.raises(MomError, match="a cannot listen on 127.0.0.1:.* for HTTP: .* change `http`"):
        other.up()


def test_the_api_tells_what_mom_does_and_permissions_are_heeded_at_once(town):
    t = town(anonymous=False).up()
    for user in ("ann", "bob"):
        t.ask("a", "set_user", user=user, hash=hashed("x", 5), new=True)
    wire = t.wire(login="ann", passcode="x")
    wire.ask("SEND", b"secret", destination="/queue/a")
    ann, bob = (basic(user, "x") for user in ("ann", "bob"))
    (_, queues), (_, browsed) = t.get("/api/queues", "/api/browse?destination=queue:a", Authorization=ann)
    assert json.loads(queues)["queues"] == t.ask("a", "queues")["queues"]
    assert json.loads(browsed)["messages"][0]["body"] == "c2VjcmV0"
    t.ask("a", "set_permission", match="*", user="ann", may=["send", "browse"])
    t.ask("a", "set_permission", match="bus", user="bob", may=["browse"])
    targets = ("/api/queues", "/metrics", "/api/browse?destination=queue:a")
    assert [status for status, _ in t.get(*targets, Authorization=ann)] == [200, 200, 200]
    assert [status for status, _ in t.get(*targets, Authorization=bob)] == [200, 200, 403]
    t.ask("a", "set_permission", match="bus", user="bob", deny=["browse"])
    assert [status for status, _ in t.get(*targets, Authorization=bob)] == [403, 403, 403]


def test_who_has_changed_something_by_http_is_in_the_log(town):
    t = town(anonymous=False).up()
    for user in ("ann", "bob"):
        t.ask("a", "set_user", user=user, hash=hashed("x", 5), new=True)
    t.ask("a", "set_permission", match="bus", user="*", may=["browse"])
    t.ask("a", "set_permission", match="queue:*", user="ann", may=["manage"])
    ann, bob = (basic(user, "x") for user in ("ann", "bob"))
    queue = {"destination": "queue:made"}
    for target in ("/api/create_queue", "/api/purge"):
        assert [status for status, _ in t.get(target, changes=queue, Authorization=ann)] == [200]
    assert [status for status, _ in t.get("/api/purge", changes=queue, Authorization=bob)] == [403]
    assert any("'bob' of 127.0.0.1 may not purge" in line for line in t.lines["a"])
    said = [json.loads(record.detail) for _, record in t.node("a").store.log(0, 1_000) if record.kind == "admin"]
    assert [(each["verb"], each["result"]) for each in said if each["who"] == "user ann"] == [
        ("create_queue", "done"), ("purge", "done"),
    ]  # fmt: skip
    assert {(each["from"], each["args"].get("destination")) for each in said if each["who"].startswith("user ")} == {
        ("127.0.0.1", "queue:made")
    }


def test_a_certificate_is_a_login_by_http_as_well(town, tmp_path):
    port, file, signer = free_port(), tmp_path / "a.pem", trustme.CA()
    file.write_bytes(certificate())
    signer.cert_pem.write_to_path(tmp_path / "clients.pem")
    ca = str(tmp_path / "clients.pem")
    t = town(anonymous=False, http_tls=f"127.0.0.1:{port}", certificate=str(file), client_ca=ca).up()
    t.ask("a", "set_user", user="ann", new=True)

    def shown(name):
        context = ssl.create_default_context(cafile=file)
        if name:
            pem = signer.issue_cert(f"{name}.example", common_name=name).private_key_and_cert_chain_pem
            pem.write_to_path(tmp_path / f"{name}.pem")
            context.load_cert_chain(tmp_path / f"{name}.pem")
        return {"context": context, "port": port}

    assert t.get("/api", **shown("ann"))[0][1].startswith('{"user":"ann"')
    queue = {"destination": "queue:made"}
    assert t.get("/api/create_queue", changes=queue, **shown("ann"))[0][0] == 200
    assert t.get("/metrics", **shown("bob")) == [(403, "access refused for user 'bob'\n")]
    assert "not of 'bob'" in t.get("/metrics", Authorization=basic("bob", "x"), **shown("ann"))[0][1]
    assert t.get("/metrics", **shown(""))[0][0] == 401
    t.ask("a", "delete_user", user="ann")
    assert t.get("/api/purge", changes=queue, **shown("ann"))[0][0] == 403
