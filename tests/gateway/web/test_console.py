"""The console, as files and in a browser."""

import json
import re

import pytest

from mombroker.gateway.web import api, static
from tests.admin.processes import Processes, free_ports, write_topology
from tests.gateway.web.browser import READY
from tests.gateway.web.test_api import ALL
from tests.gateway.web.world import WebWorld

EVIL = "<img src=x onerror=document.title='broken'>"
PAGES = ["overview", "queues", "subscriptions", "topics", "connections", "agents", "waits", "bus", "access"]


@pytest.mark.parametrize("path", sorted(static.files()))
def test_files_come_with_a_policy_that_lets_them_ask_nobody_else(path):
    status, headers, body = WebWorld().visit().ask(path)
    assert status == 200 and body.encode() == static.files()[path].body
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert not re.search(r"(src|href)=.https?://|url\(|@import|innerHTML|insertAdjacent|document\.write|eval\(", body)


def test_what_the_pages_ask_is_there_to_be_asked():
    text = "".join(each.body.decode() for path, each in static.files().items() if path.endswith(".js"))
    for word, verbs, least in (("ask", api.VERBS, 15), ("change", api.CHANGES, 7)):
        asked = re.findall(rf'\b{word}\("(\w+)"(?:, \{{(.*?)\}})?', text)
        assert len(asked) >= least and {verb for verb, _ in asked} <= {*verbs, api.PLAN, api.WAYS}
    for verb, arguments in re.findall(r'\bask\("(\w+)"(?:, \{(.*?)\})?', text):
        if verb == api.WAYS:
            continue
        names = set(re.findall(r"\b(\w+)(?=:|, |\s*\}|$)", re.sub(r":[^,}]*", ":", arguments))) - {"PAGE"}
        assert names <= ALL[verb].arguments.keys() | {"view", "match", "after"}, (verb, arguments)


# -- in Chromium -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bus(chromium, tmp_path_factory):
    """Two servers."""
    made = Processes(write_topology(tmp_path_factory.mktemp("bus"), {"d": "ab"}, {"ann": "a"}))
    made.listen("a")
    made.listen("b")
    (made.http,) = free_ports(1)
    text = made.file.read_text()
    made.file.write_text(text.replace("[servers.a]\n", f'[servers.a]\nhttp = "127.0.0.1:{made.http}"\n'))
    made.up()
    for name in ("orders", "invoices", "invoices.old"):
        made.mom("send", "-s", "a", f"/queue/{name}", EVIL)
    made.mom("send", "-s", "a", "/queue/orders", "second")
    made.mom("subscription", "create", "news", "--topic", "prices", "--client-id", "me", "-s", "a")
    yield made
    made.down()


@pytest.fixture
def page(bus, chromium):
    """The console as it is opened first; at the end nothing has gone wrong in it."""
    chromium.open(f"http://127.0.0.1:{bus.http}/")
    yield chromium
    assert chromium.wrong == []
    assert {method for method, _ in chromium.asked} == {"GET"}
    assert {url.split("/")[2] for _, url in chromium.asked if url.startswith("http")} == {f"127.0.0.1:{bus.http}"}


WORDS = {
    "overview": "Nothing to act on", "queues": "queue:invoices.old", "subscriptions": "sub:me:news",
    "topics": "topic:prices", "connections": "No client is connected", "agents": "clerks:Clerk",
    "waits": "Nothing waits", "bus": "the first", "access": "every user may do everything",
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_the_server_knows_and_fits_a_small_screen(page, name):
    assert WORDS[name] in page.show(name)
    assert page.js("document.querySelector('[aria-current]').textContent").lower() == name
    page.size(400)
    assert page.js("document.documentElement.scrollWidth") <= 400


REPLICATED = """{
    const real = fetch;
    window.fetch = async (url, ...more) => {
        const found = await real(url, ...more);
        if (!String(url).startsWith("api/status?")) return found;
        const told = await found.json();
        told.replicas = [
            {replica: "a-1", role: "leader", behind: 0, up: true, listen: "10.0.0.1:16300"},
            {replica: "a-2", role: "follower", behind: 1234, up: false, listen: "10.0.0.2:16300"},
        ];
        return new Response(JSON.stringify(told), {headers: {"content-type": "application/json"}});
    };
}"""


def test_a_server_with_replicas_shows_how_far_they_are(page):
    assert "Replicas" not in page.show("overview")
    page.js(REPLICATED)
    page.show("queues")
    text = page.show("overview")
    assert "a-1\tleader\tup\t0" in text and "a-2\tfollower\tdown\t1,234" in text, text


HELD = """{
    const real = fetch, cause = (server, sequence, up) => ({server, sequence, up, last_seen: up ? 5 : 0});
    window.fetch = async (url, ...more) => {
        const found = await real(url, ...more);
        if (!/^api.(status|why)[?]/.test(url)) return found;
        const told = await found.json();
        if (told.waits) told.waits = [
            {kind: "held", message: "b#7", domain: "d", from: "b",
             waits_for: [cause("c", 5, false), cause("b", 3, true)]},
            {kind: "held", message: "c#4", domain: "d", from: "c", waits_for: [cause("c", 2, false)]},
            {kind: "link", peer: "c", domain: "d", packets: 3, last_seen: 0, trouble: "refused"},
            {kind: "retry", agent: "a/clerk", message: "a#9", attempts: 2, until: told.now, behind: 0},
        ];
        else told.peers.push({peer: "c", domain: "d", state: "down", reason: "no route to c", last_seen: 0});
        return new Response(JSON.stringify(told), {headers: {"content-type": "application/json"}});
    };
}"""


HOSTILE = """{
    const real = fetch, said = %s, name = said + "\\u202e\\u0000\\n" + "x".repeat(300);
    const names = ["agent", "class", "client_id", "destination", "group", "host", "name", "order", "reason", "topic",
        "type", "user"];
    const hostile = (value, key) => Array.isArray(value) ? value.map((each) => hostile(each, key))
        : value && typeof value === "object"
            ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, hostile(each, key)]))
        : typeof value === "string" && names.includes(key) ? value + name : value;
    window.fetch = async (url, ...more) => {
        const found = await real(url, ...more);
        if (!/^api.(?!topology)/.test(url)) return found;
        const told = hostile(await found.json());
        if (told.waits) told.waits = [
            {kind: "state", group: name, name, agent: name, server: name, until: told.now, behind: 0},
            {kind: "group", group: name, domain: name, peer: name, packets: 3, last_seen: 0, trouble: name},
        ];
        return new Response(JSON.stringify(told), {headers: {"content-type": "application/json"}});
    };
}"""


@pytest.mark.parametrize("name", ["queues", "subscriptions", "topics", "agents", "waits", "agents/a%2Fann"])
def test_names_of_any_kind_are_text_alone_and_have_room_on_a_small_screen(page, name):
    page.js(HOSTILE % json.dumps(EVIL))
    page.show("overview")
    assert EVIL in page.show(name)
    assert page.js("document.querySelectorAll('img, iframe, #content script').length") == 0
    assert page.js("document.title") != "broken"
    page.size(400)
    assert page.js("document.documentElement.scrollWidth") <= 400


def test_the_cause_of_a_hold_is_clicked_through_to_its_end(page):
    """From a message to what it waits for, which is held itself, and from that to the server whose link is down."""
    page.js(HELD)
    assert "#5 from c, not seen since our start; #3 from b, connected" in page.show("waits")
    page.js("[...document.querySelectorAll('#content a')].find((each) => each.textContent === 'b#7').click()")
    page.until(f"location.hash === '#/waits/b%237' && {READY}")
    ends = page.js("[...document.querySelectorAll('.chain .end')].map((each) => each.textContent)")
    assert "The link to c is down: no route to c; not seen since our start." in ends
    assert any(each.startswith("The link to b is up: what is missing is on its way") for each in ends)
    assert page.js("[...document.querySelectorAll('.chain a')].map((each) => each.textContent)").count("c#4") == 1
    page.js("[...document.querySelectorAll('.chain a')].find((each) => each.textContent === 'c#4').click()")
    page.until(f"location.hash === '#/waits/c%234' && {READY}")
    page.js("[...document.querySelectorAll('.chain a')].find((each) => each.textContent === 'c').click()")
    page.until(f"location.hash === '#/servers/c' && {READY}")
    text = page.js("document.getElementById('main').innerText")
    assert "no route to c" in text and "b#7" in text and "c#4" in text and "3 packets" in text and "a#9" not in text
    page.size(400)
    assert page.js("document.documentElement.scrollWidth") <= 400
    page.key("Escape")
    page.until(f"location.hash === '#/waits' && {READY}")
    assert "It waits no more" in page.show("waits/a%231")


def test_the_ways_of_a_message_are_drawn_from_the_logs_of_the_servers(page, bus):
    """From a queue's page to the message, which another server has sent."""
    bus.mom("send", "-s", "b", "/queue/orders", "from afar")
    (found,) = [row for row in bus.json("queue", "browse", "orders") if row["body"] == "from afar"]
    page.until(f"(location.hash = '#/queues/queue%3Aorders', {READY} && document.body.innerText.includes('from afar'))")
    named = f"[...document.querySelectorAll('#content a')].find((each) => each.textContent === '{found['message']}')"
    page.js(f"{named}.click()")
    page.until(f"location.hash.startsWith('#/ways/%2Fqueue%2Forders%40') && {READY}")
    page.until("Boolean(document.querySelector('.ways .mine'))")
    id = page.js("document.querySelector('#content h2').textContent").removeprefix("Message ")
    assert re.fullmatch(r"b#\d+", id)
    text = page.js("document.getElementById('main').innerText")
    assert "react" in text and "q.put" in text
    title = page.js("document.querySelector('.ways .mine title').textContent")
    assert title.startswith(f"{id}: b to a, ")
    places = page.js("[...document.querySelectorAll('.ways .mine line')].map((each) => each.getAttribute('x1') * 1)")
    assert places and all(place >= 110 for place in places)
    page.size(400)
    assert page.js("document.documentElement.scrollWidth") <= 400
    page.show("ways/b%23999999")
    assert "no record of b#999999" in page.until("document.getElementById('banner').textContent")
    page.show("ways/none")
    page.until("document.getElementById('banner').textContent.includes('SERVER#NUMBER')")
    page.wrong[:] = [each for each in page.wrong if "status of 400" not in each]


WAITED = """{
    const real = fetch, way = (message, left, came, delivered, waited_for) => (
        {message, from: "b", to: "a", left, came, delivered, waited_for, passed: false, bare: false, twins: 0});
    window.fetch = async (url, ...more) => !url.startsWith("api/ways?") ? real(url, ...more) : new Response(
        JSON.stringify({message: "b#2", servers: ["a", "b"], stations: [], left_out: ["c"], arrows: [
            way("b#2", 1000000, 2000000, 5000000, "b#1"), way("b#1", 500000, 5000000, 5000000, "")]}));
}"""


def test_a_message_that_waited_has_a_bar_and_leads_to_what_it_waited_for(page):
    page.js(WAITED)
    text = page.show("ways/b%232")
    assert "The stores of c are not on this machine" in text and "It waited for b#1." in text
    assert page.js("document.querySelectorAll('.ways rect').length") == 1
    assert "waited 3.00 ms for b#1" in page.js("document.querySelector('.ways .mine title').textContent")
    left, came = page.js("['x', 'width'].map((each) => document.querySelector('.ways rect').getAttribute(each) * 1)")
    assert left > 110 and came > 0
    assert page.js("[...document.querySelectorAll('#content p a')].map((each) => each.hash)") == ["#/ways/b%231"]


NEAR = '...Array.from({length: 40}, (_, at) => way(`b#${100 + at}`, 9 * at + 1, 9 * at + 2, 9 * at + 2, "")),'
BEHIND_OTHERS = WAITED.replace("arrows: [", f"arrows: [{NEAR}")


def test_of_many_that_were_near_the_message_itself_is_shown(page):
    page.js(BEHIND_OTHERS)
    page.show("ways/b%232")
    place = "(document.querySelector('.ways .mine line').getBoundingClientRect())"
    assert 0 < page.until(f"(({place}.left > 0 && {place}.right < innerWidth) && {place}.left)") < 1280
    assert page.js("document.querySelector('.ways').getBoundingClientRect().left") < 0
    names = "document.querySelector('.ways .names').getBoundingClientRect().left"
    assert 0 < page.until(f"{names} > 0 && {names}") < 40, "they follow what is scrolled"


def test_what_clients_send_stays_text(page):
    text = page.show("queues/queue%3Aorders")
    assert EVIL in text and "second" in text and "max_redeliveries = 5" in text
    assert page.js("document.querySelectorAll('img').length") == 0
    assert page.js("document.title") != "broken"


@pytest.mark.parametrize(
    ("place", "shown"), [("constructor", "Domains"), ("__proto__/x", "‹ back"), ("servers/%", "Server %")]
)
def test_an_address_that_is_written_by_hand_is_a_page_as_well(page, place, shown):
    assert shown in page.show(place)
    assert page.js("document.getElementById('banner').hidden")


def test_a_page_is_not_waited_for_as_if_the_one_before_were_it(page):
    assert page.js(READY)
    assert not page.js(f"(location.hash = '#/queues', {READY})")
    page.until(READY)
    assert page.js("Boolean(document.getElementById('filter'))")


def test_it_is_worked_by_keys_alone(page):
    page.key("2")
    page.until(f"location.hash === '#/queues' && {READY}")
    page.key("/")
    page.write("invo")
    page.until("document.querySelectorAll('#content tbody tr').length === 2")
    assert page.js("document.getElementById('filter').value") == "invo"
    page.key("Escape")
    page.key("j")
    page.key("j")
    assert page.js("document.activeElement.textContent").startswith("queue:invoices")
    page.key("k")
    page.key("Enter")
    page.until(f"location.hash.startsWith('#/queues/queue%3Ainvoices') && {READY}")
    page.key("Escape")
    page.until(f"location.hash === '#/queues' && {READY}")
    page.key("?")
    assert page.js("document.getElementById('help').open") and "Keys" in page.js("document.body.innerText")
    page.key("Escape")
    page.until("!document.getElementById('help').open")


def test_who_types_is_not_disturbed_by_new_figures(page):
    page.show("queues")
    page.key("/")
    page.write("ord")
    page.until("document.querySelectorAll('#content tbody tr').length === 1")
    asked = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/api/queues')).length"
    before = page.js(asked)
    page.until(f"{asked} > {before + 1} && {READY}")
    page.write("e")
    assert page.js("document.activeElement.id") == "filter"
    assert page.js("document.getElementById('filter').value") == "orde"


def test_light_and_dark_follow_the_system_or_the_reader(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.js(colour)
    page.scheme("dark")
    dark = page.js(colour)
    assert light != dark
    page.key("t")
    assert page.js(colour) == light
    page.do("Page.reload")
    page.until(READY)
    assert page.js(colour) == light


def test_a_server_that_is_away_is_told_and_comes_back(page):
    page.do("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.key("r")
    page.until("!document.getElementById('banner').hidden")
    assert "does not answer" in page.js("document.getElementById('banner').textContent")
    page.do("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.key("r")
    page.until("document.getElementById('banner').hidden")
    page.wrong[:] = [each for each in page.wrong if "ERR_INTERNET_DISCONNECTED" not in each]


def test_what_is_refused_is_told_and_the_page_goes_on(page):
    page.show("queues/queue%3Anowhere")
    assert "there is no queue:nowhere" in page.until("document.getElementById('banner').textContent")
    assert "queue:orders" in page.show("queues")
    page.until("document.getElementById('banner').hidden")
    page.wrong[:] = [each for each in page.wrong if "status of 400" not in each]
