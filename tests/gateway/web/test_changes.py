"""Who changes something in the console, and who cannot, in a browser; what the log says of it."""

import http.client
import json
import time

import pytest

from mombroker import jms
from tests.admin.processes import Processes, free_ports, write_topology
from tests.gateway.web.browser import PATIENCE_S
from tests.gateway.web.test_api import CHANGED, LOGGED_IN
from tests.gateway.web.world import basic

ROLES = {
    "viewer": {"bus": ["browse"], "queue:*": ["browse"], "agent:*": ["browse"]},
    "operator": {"queue:*": ["browse", "manage"], "sub:*": ["browse", "manage"], "agent:*": ["browse", "manage"],
                 "bus": ["browse"]},
    "admin": {"*": ["browse", "manage"]},
}  # fmt: skip
USERS = {"vic": "viewer", "ola": "operator", "ada": "admin"}
POLICIES = '[[policies]]\nmatch = "queue:*"\nmax_redeliveries = 0\n[limits]\nmax_attempts = 1'


@pytest.fixture(scope="module")
def bus(chromium, tmp_path_factory):
    rights = [f'user = "*"\nmatch = "{each}:*"\nmay = ["send", "receive", "create"]' for each in ("queue", "topic")]
    rights += [
        f'role = "{role}"\nmatch = "{match}"\nmay = {json.dumps(may)}'
        for role, those in ROLES.items() for match, may in those.items()
    ]  # fmt: skip
    more = "\n".join(f"[[permissions]]\n{each}" for each in rights)
    folder = tmp_path_factory.mktemp("guarded")
    made = Processes(write_topology(folder, {"d": "ab"}, {"clerk": "a"}, more + "\n" + POLICIES))
    made.listen("a")
    (made.http,) = free_ports(1)
    text = made.file.read_text()
    made.file.write_text(text.replace("[servers.a]\n", f'[servers.a]\nhttp = "127.0.0.1:{made.http}"\n'))
    made.up()
    (folder / "passcode").write_text("secret\n")
    for user, role in USERS.items():
        made.mom("user", "add", user, "--passcode-file", str(folder / "passcode"))
        made.mom("role", "grant", role, user)
    yield made
    made.down()


@pytest.fixture
def page(bus, chromium):
    """Opens the console as somebody; at the end nothing has gone wrong in it, and it has asked nobody else."""

    def opened(user):
        chromium.open(f"http://127.0.0.1:{bus.http}/login", (user, "secret"))
        chromium.until(f"document.getElementById('user').textContent === '{user}'")
        assert chromium.js("location.pathname") == "/"
        return chromium

    yield opened
    assert chromium.wrong == []
    assert {url.split("/")[2] for _, url in chromium.asked if url.startswith("http")} == {f"127.0.0.1:{bus.http}"}


def confirm(page, word, text=""):
    """Press a button of the page, and the one of the dialog that it opens; what was done."""
    page.press(word)
    page.until("document.getElementById('change').open")
    page.write(text)
    page.press(word, "#change")
    page.until("!document.getElementById('change').open")
    return page.js("document.getElementById('done').textContent")


def audit(bus, verb):
    """Of the last one: who, from where, what, and what became of it."""
    (*_, row) = [row for row in bus.json("log", "audit") if row["verb"] == verb]
    return (
        row["who"],
        row["from"],
        json.loads(row["args"]) if isinstance(row["args"], str) else row["args"],
        row["result"],
    )


def letter_with(bus, text, other_than=0):
    """A dead letter of an agent, once it is there."""
    end = time.monotonic() + PATIENCE_S
    while True:
        for row in bus.json("agent", "deadletters", "list"):
            if text in row["reason"] and row["id"] != other_than:
                return row
        assert time.monotonic() < end, text
        time.sleep(0.05)


def queues(bus):
    return {row["destination"]: row["messages"] for row in bus.json("queue", "list")}


def dead(bus, name):
    """A queue of dead letters."""
    bus.mom("send", "-s", "a", f"/queue/{name}", "one")
    with jms.connect(bus.urls["a"], ack="individual") as context:
        context.consumer(name).receive(30).reject()
    return f"queue:DLQ.{name}"


def test_who_may_only_look_sees_no_button_and_each_verb_is_refused(bus, page):
    bus.mom("send", "-s", "a", "/queue/kept", "one")
    seen = page("vic")
    for place in ("queues/queue%3Akept", "connections"):
        seen.show(place)
        assert seen.js("document.querySelectorAll('#content button').length") == 0
    bus.mom("agent", "send", "clerk", "clerks.Note", "text=bad one")
    letter = letter_with(bus, "bad one")
    client = http.client.HTTPConnection("127.0.0.1", bus.http, timeout=60)
    headers = {name.replace("_", "-"): value for name, value in LOGGED_IN.items()}
    before = queues(bus), bus.json("agent", "deadletters", "list"), bus.json("user", "list"), bus.json("policy", "list")
    for verb, (args, _) in CHANGED.items():
        real = {"agent": "clerk", "id": letter["id"]}
        args = {name: real.get(name, value) for name, value in args.items()}
        client.request("POST", f"/api/{verb}", json.dumps(args), headers | {"Authorization": basic("vic", "secret")})
        answer = client.getresponse()
        assert (answer.status, verb) == (403, verb)
        assert "access refused: user 'vic' may not manage" in json.loads(answer.read())["error"]
    client.close()
    assert before == (
        queues(bus), bus.json("agent", "deadletters", "list"), bus.json("user", "list"), bus.json("policy", "list")
    )  # fmt: skip
    assert [row for row in bus.json("log", "audit") if row["who"] == "user vic"] == []


def test_a_queue_is_made_purged_and_deleted(bus, page):
    seen = page("ola")
    seen.show("queues")
    seen.press("New queue")
    seen.until("document.getElementById('change').open")
    seen.write("made")
    seen.key("Enter")
    seen.until("document.getElementById('done').textContent === 'queue:made is there.'")
    assert audit(bus, "create_queue") == ("user ola", "127.0.0.1", {"destination": "queue:made"}, "done")
    bus.mom("send", "-s", "a", "/queue/made", "one")
    seen.show("queues/queue%3Amade")
    assert confirm(seen, "Purge") == "1 message purged."
    assert queues(bus)["queue:made"] == 0
    assert audit(bus, "purge") == ("user ola", "127.0.0.1", {"destination": "queue:made"}, "done")
    assert confirm(seen, "Delete") == "queue:made is deleted."
    seen.until("location.hash === '#/queues'")
    assert "queue:made" not in queues(bus)
    assert not seen.js("document.getElementById('done').hidden")
    seen.wrong[:] = [each for each in seen.wrong if "status of 400" not in each]  # it was asked about meanwhile


def test_who_thinks_better_of_it_changes_nothing(bus, page):
    bus.mom("send", "-s", "a", "/queue/stays", "one")
    seen = page("ola")
    seen.show("queues/queue%3Astays")
    seen.press("Purge")
    assert seen.js("document.activeElement.textContent") == "Cancel"
    seen.key("Escape")
    seen.until("!document.getElementById('change').open")
    seen.press("Delete")
    seen.key("Enter")
    seen.until("!document.getElementById('change').open")
    assert queues(bus)["queue:stays"] == 1 and not [url for method, url in seen.asked if method == "POST"]


def test_messages_go_to_another_queue_and_dead_ones_back(bus, page):
    letters = dead(bus, "orders")
    seen = page("ola")
    seen.show(f"queues/{letters.replace(':', '%3A')}")
    assert confirm(seen, "Send back") == "1 message moved."
    assert (queues(bus)["queue:orders"], queues(bus)[letters]) == (1, 0)
    seen.show("queues/queue%3Aorders")
    assert confirm(seen, "Move", "other") == "1 message moved."
    end = time.monotonic() + PATIENCE_S
    while queues(bus).get("queue:other") != 1:  # the registry makes it meanwhile
        assert time.monotonic() < end
    assert audit(bus, "move")[:3] == (
        "user ola", "127.0.0.1", {"destination": "queue:orders", "target": "queue:other"}
    )  # fmt: skip


def test_a_dead_letter_of_an_agent_is_sent_anew_or_forgotten(bus, page):
    bus.mom("agent", "send", "clerk", "clerks.Note", "text=bad two")
    seen = page("ola")
    first = letter_with(bus, "bad two")
    assert "cannot file bad two" in seen.show(f"letters/{first['id']}")
    assert confirm(seen, "Retry").startswith("Sent to a/clerk as a#")
    seen.until("location.hash === '#/agents'")
    second = letter_with(bus, "bad two", other_than=first["id"])
    assert audit(bus, "retry") == ("user ola", "127.0.0.1", {"id": first["id"]}, "done")
    seen.show(f"letters/{second['id']}")
    assert confirm(seen, "Forget") == f"Dead letter {second['id']} is forgotten."
    assert second["id"] not in [row["id"] for row in bus.json("agent", "deadletters", "list")]


def test_a_connection_is_closed_by_who_may_manage_the_bus(bus, page):
    with jms.connect(bus.urls["a"]) as context:
        context.send("kept", "x")
        seen = page("ola")
        assert "anonymous" in seen.show("connections")
        assert seen.js("document.querySelectorAll('#content button').length") == 0
        seen = page("ada")
        seen.show("connections")
        (row,) = bus.json("connections", "list")
        assert confirm(seen, "Close") == f"Connection {row['number']} is closed."
        assert row["number"] not in [each["number"] for each in bus.json("connections", "list")]  # it connects again
    assert audit(bus, "close_connections")[0] == "user ada"


def planned(bus, user, text):
    """What the HTTP port says to a user who wants a plan: status and answer."""
    client = http.client.HTTPConnection("127.0.0.1", bus.http, timeout=60)
    headers = {"Content-Type": "application/json", "Authorization": basic(user, "secret")}
    client.request("POST", "/api/plan", json.dumps({"text": text}), headers)
    answer = client.getresponse()
    found = answer.status, json.loads(answer.read())
    client.close()
    return found


def test_a_plan_is_what_mom_says_and_for_who_may_manage_the_bus(bus, page):
    now = bus.file.read_text()
    (port,) = free_ports(1)
    wanted = now + f'\n[servers.c]\nlisten = "127.0.0.1:{port}"\n[domains.more]\nservers = ["b", "c"]\n'
    (bus.file.parent / "wanted.toml").write_text(wanted)
    told = bus.json("topology", "plan", str(bus.file.parent / "wanted.toml"), "--now", str(bus.file))
    for user in ("vic", "ola"):
        status, found = planned(bus, user, wanted)
        assert (status, found) == (403, {"error": f"access refused: user '{user}' may not manage bus"})
    status, found = planned(bus, "ada", wanted)
    words = found.pop("words")
    assert status == 200 and found == told | {"costs": []} and found["newcomers"] == ["c"]
    assert planned(bus, "ada", "nonsense")[0] == 400
    assert "for who may manage the bus" in page("ola").show("plan/new")
    seen = page("ada")
    seen.show("bus")
    seen.js("[...document.querySelectorAll('#content a')].find((each) => each.textContent.startsWith('Plan')).click()")
    seen.until("Boolean(document.getElementById('plan-text'))")
    seen.js(f"document.getElementById('plan-text').value = {json.dumps(wanted)}")
    seen.press("Plan")
    seen.until("Boolean(document.querySelector('#plan pre'))")
    assert seen.js("document.querySelector('#plan pre').textContent") == "\n".join(words)
    assert "mom topology apply" in seen.js("document.getElementById('plan').innerText")
    seen.js(f"document.getElementById('plan-text').value = {json.dumps(now)}")
    seen.press("Plan")
    seen.until("document.getElementById('plan').innerText.includes('nothing is to be changed')")
    seen.js("document.getElementById('plan-text').value = 'no [ toml'")
    seen.press("Plan")
    assert "topology:1: not TOML" in seen.until("document.querySelector('#plan [role=alert]')?.textContent")
    seen.size(400)
    assert seen.js("document.documentElement.scrollWidth") <= 400
    assert bus.json("topology", "history")[-1]["revision"] == 1
    seen.wrong[:] = [each for each in seen.wrong if "status of 400" not in each]


def test_what_is_refused_is_told_in_the_dialog(bus, page):
    bus.mom("send", "-s", "a", "/queue/kept", "one")
    seen = page("ola")
    seen.show("queues/queue%3Akept")
    seen.press("Move")
    seen.write("topic:a")
    seen.press("Move", "#change")
    seen.until("document.querySelector('#change [role=alert]').textContent")
    assert "may not manage topic:a" in seen.js("document.querySelector('#change [role=alert]').textContent")
    assert seen.js("document.getElementById('change').open")
    seen.wrong[:] = [each for each in seen.wrong if "status of 403" not in each]


def test_the_dialog_fits_a_small_screen_in_the_dark(bus, page):
    bus.mom("send", "-s", "a", "/queue/kept", "one")
    seen = page("ola")
    seen.size(400)
    seen.scheme("dark")
    seen.show("queues/queue%3Akept")
    seen.press("Purge")
    assert seen.js("document.documentElement.scrollWidth") <= 400
    assert seen.js("document.getElementById('change').getBoundingClientRect().width") <= 400
