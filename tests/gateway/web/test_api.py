"""`/api`: which verbs may be asked by whom, and who may change something."""

import json

import pytest

from mombroker.admin.cli.tables_reference import verbs
from mombroker.gateway.web import api
from mombroker.gateway.web.connection import LARGE_BYTES
from tests.gateway.web.world import WebWorld, basic, request

ALL = {verb.name: verb for verb in verbs()}
# For other servers, large, work, of replicas alone.
NOT_FOR_ALL = {"change_counts", "holdings", "invitation", "judge_topology", "replicas"}
# Of the process, the bus and its servers; secrets; what an agent is told, made of, or loses for good.
NEEDS_TOKEN = {
    "apply_topology", "change_end", "change_over", "change_replicas", "change_without", "create_subscription",
    "delete", "deploy", "drain", "exclude_member", "exported", "join", "lose", "remove_group", "renew_user", "send",
    "set_user", "stop", "topology_abort", "transfer_lead",
}  # fmt: skip


@pytest.fixture
def world():
    made = WebWorld()
    for name in api.VERBS:
        made.replies[name] = lambda name=name, **args: {"verb": name, "args": args}
    return made


def ask(world, target, **headers):
    status, found, body = world.visit().ask(target, **headers)
    assert found["content-type"] == "application/json"
    return status, json.loads(body)


def test_each_verb_is_there_for_who_may_or_needs_the_token():
    """Whoever adds a verb decides: it is named here, or in a list of the API."""
    reads, changes = ({name for name, verb in ALL.items() if verb.changes is kind} for kind in (False, True))
    assert set(api.VERBS) == reads - NOT_FOR_ALL
    assert set(api.CHANGES) == changes - NEEDS_TOKEN


@pytest.mark.parametrize("verb", sorted(set(ALL) - set(api.VERBS)))
def test_no_other_verb_is_asked(world, verb):
    status, said = ask(world, f"/api/{verb}")
    assert status == (405 if verb in api.CHANGES else 404) and verb in said["error"] and world.asked == []


def test_the_list_has_all_that_may_be_asked_with_its_arguments(world):
    status, said = ask(world, "/api")
    assert (status, said["user"]) == (200, "")
    assert [row["verb"] for row in said["verbs"]] == [*api.VERBS, *api.CHANGES]
    assert all(row["changes"] is (row["verb"] in api.CHANGES) for row in said["verbs"])
    (queues,) = [row for row in said["verbs"] if row["verb"] == "queues"]
    assert {each["name"] for each in queues["arguments"]} == {"after", "limit", "match", "fullest"}


ASKED = [
    ("status", "status", {}),
    ("queues", "queues", {"limit": 100}),
    ("queues?limit=5&fullest=true&match=a%26b", "queues", {"limit": 5, "fullest": True, "match": "a&b"}),
    ("queues?limit=1000000", "queues", {"limit": 1000}),
    ("browse?destination=queue:a", "browse", {"destination": "queue:a", "limit": 100, "bytes": 1024}),
    ("browse?destination=x&ids=1,2&bytes=9999999", "browse",
     {"destination": "x", "ids": [1, 2], "limit": 100, "bytes": 65_536}),
    ("deadletters?after=3,4", "deadletters", {"after": [3, 4], "limit": 100}),
    ("agent?agent=a%2Fb", "agent", {"agent": "a/b"}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "verb", "args"), ASKED)
def test_arguments_have_the_kinds_of_the_verb_and_pages_are_bounded(world, target, verb, args):
    assert ask(world, f"/api/{target}") == (200, {"verb": verb, "args": args})
    assert world.asked == [(verb, args)]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("queues?limit=many", "limit cannot be 'many': it is a whole number from 0"),
        ("queues?fullest=1", "fullest cannot be '1': it is true or false"),
        ("browse?destination=x&ids=1,b", "ids cannot be '1,b': it is a list of whole numbers"),
        ("status?" + "&".join(f"a{at}=1" for at in range(50)), "at most 20 arguments"),
    ],
)
def test_arguments_that_cannot_be_are_refused(world, target, sentence):
    status, said = ask(world, f"/api/{target}")
    assert status == 400 and sentence in said["error"] and world.asked == []


def test_however_many_ask_at_once_one_slice_of_an_answer_is_made_in_each_turn(world):
    """So clients wait for one, not for all."""
    visitors = [world.visit() for _ in range(20)]
    for number, visitor in enumerate(visitors):
        visitor.receive(request(f"/api/queues?limit={number}"))
    assert world.asked == []
    for slices in range(1, 2 * len(visitors) + 1):
        (due,) = [call for call in world.clock.getDelayedCalls() if call.func == world.web._slice]
        due.cancel()
        world.web._slice()
        assert len(world.asked) == min(slices, len(visitors))
    assert [visitor.answer()[0] for visitor in visitors] == [200] * 20
    assert [args["limit"] for _, args in world.asked] == list(range(20))


def test_what_the_server_refuses_is_told(world):
    world.replies["queues"] = lambda **args: "the request queues has no 'x': it takes after"
    assert ask(world, "/api/queues?x=1") == (400, {"error": "the request queues has no 'x': it takes after"})


def test_bytes_and_any_text_have_a_form_in_json(world):
    world.replies["browse"] = lambda **args: {"body": b"\xff\0", "text": "\udc80", "big": 1 << 62}
    assert ask(world, "/api/browse?destination=queue:a") == (200, {"body": "/wA=", "text": "\udc80", "big": 1 << 62})


@pytest.mark.parametrize("target", ["/api", "/api/status", "/api/nothing", "/metrics"])
def test_who_may_not_browse_the_bus_gets_nothing(target):
    world = WebWorld(anonymous=False)
    world.denied = {("ann", "browse", "bus")}
    visitor = world.visit()
    visitor.receive(request(target, Authorization=basic("ann", "a")))
    world.check_all()
    status, _, body = visitor.answer()
    assert status == 403 and "mom permission set --user ann bus --may browse" in body and world.asked == []


def test_bodies_need_the_right_to_their_queue(world):
    world.denied = {("", "browse", "queue:secret")}
    assert ask(world, "/api/browse?destination=queue:secret")[0] == 403
    assert world.asked == []
    assert ask(world, "/api/browse?destination=queue:open")[0] == 200


def test_a_queue_is_not_seen_by_its_encoded_name_either(world):
    """A verb takes the name by which the bus knows a queue, too."""
    world.denied = {("", "browse", "queue:hr/salaries"), ("", "browse", "queue:löhne")}
    for name in ("queue:hr/salaries", "queue:hr%252Fsalaries", "queue:l%25C3%25B6hne"):
        assert ask(world, f"/api/browse?destination={name}")[0] == 403
    assert world.asked == []


def test_what_is_in_messages_of_agents_needs_the_right_to_the_agent(world):
    world.denied = {("", "browse", "agent:payroll")}
    for verb in ("agent?agent=x", "deadletter?id=1"):
        for name, status in (("payroll", 403), ("greeter", 200)):
            world.replies[verb.partition("?")[0]] = lambda name=name, **args: {"agent": f"paris/{name}", "fields": {}}
            assert ask(world, f"/api/{verb}")[0] == status


# -- changes ---------------------------------------------------------------------------------------------------------

# Arguments of each, and what it touches.
CHANGED = {
    "create_queue": ({"destination": "queue:a"}, "queue:a"), "create_topic": ({"destination": "topic:a"}, "topic:a"),
    "delete_destination": ({"destination": "sub:me:a"}, "sub:me:a"), "delete_permission": ({"match": "*"}, "bus"),
    "delete_topic": ({"destination": "topic:a"}, "topic:a"), "delete_user": ({"user": "bob"}, "bus"),
    "move": ({"destination": "queue:DLQ.a", "back": True}, "queue:DLQ.a"), "drop": ({"id": 7}, "agent:payroll"),
    "move_destination": ({"destination": "queue:a", "to": "lyon"}, "queue:a"), "set_policy": ({"match": "*"}, "bus"),
    "purge": ({"destination": "queue:a"}, "queue:a"), "retry": ({"id": 7}, "agent:payroll"),
    "release": ({"destination": "queue:a", "holder": "lyon"}, "queue:a"), "close_connections": ({"number": 3}, "bus"),
    "move_topic": ({"destination": "topic:a", "to": "lyon"}, "topic:a"),
    "move_agent": ({"agent": "payroll", "to": "lyon"}, "agent:payroll"), "reload": ({}, "bus"),
    "limit_user": ({"user": "bob", "limits": {"rate": 5}}, "bus"),
    "set_permission": ({"match": "*", "user": "bob", "may": ["send"]}, "bus"),
    "set_roles": ({"user": "bob", "grant": ["clerk"]}, "bus"),
}  # fmt: skip
LOGGED_IN = {"Authorization": basic("ann", "a"), "Content_Type": "application/json"}


@pytest.fixture
def changing():
    """Who may see all, and `may` manage some things."""
    made = WebWorld(anonymous=False)
    made.may = set()
    made.web.may = made.web._api.may = lambda user, action, what: action == "browse" or (user, what) in made.may
    made.replies = {name: lambda name=name, **args: {"verb": name, "args": args} for name in api.CHANGES}
    made.replies["agent"] = made.replies["deadletter"] = lambda **args: {"agent": "paris/payroll"}
    return made


def post(world, verb, args=None, body=None, visitor=None, **headers):
    visitor = visitor or world.visit()
    body = json.dumps(args or {}).encode() if body is None else body
    visitor.receive(request(f"/api/{verb}", "POST", body=body, **{**LOGGED_IN, **headers}))
    world.check_all()
    status, _, text = visitor.answer()
    return status, text


def changed(world):
    return [each for each in world.asked if each[0] in api.CHANGES]


def test_all_changes_are_tried_here():
    assert CHANGED.keys() == api.CHANGES.keys()


@pytest.mark.parametrize("verb", api.CHANGES)
def test_who_may_only_look_changes_nothing(changing, verb):
    args, what = CHANGED[verb]
    changing.may = {("ann", other) for other in ("queue:b", "agent:other", "bus", "agent:payroll")} - {("ann", what)}
    status, text = post(changing, verb, args)
    assert status == 403 and json.loads(text) == {"error": f"access refused: user 'ann' may not manage {what}"}
    assert changed(changing) == []
    assert [f"'ann' of 127.0.0.1 may not {verb}" in line for line in changing.lines] == [True]


@pytest.mark.parametrize("verb", api.CHANGES)
def test_who_may_manage_it_changes_it_and_is_named(changing, verb):
    args, what = CHANGED[verb]
    changing.may = {("ann", what)}
    status, text = post(changing, verb, args)
    assert (status, json.loads(text)) == (200, {"verb": verb, "args": args})
    assert changed(changing) == [(verb, args)]
    assert set(changing.askers) == {("user ann", "127.0.0.1")}


def test_the_ways_of_a_message_are_told_beside_the_server_to_who_may_browse_the_bus(world):
    world.replies["ways"] = lambda message: {"message": message}
    assert ask(world, "/api/ways?message=a%231")[0] == 404 and not world.asked
    world.web._api.aside = {"ways"}
    assert ask(world, "/api/ways?message=a%231") == (200, {"message": "a#1"})
    for query in ("", "?message=a&more=1", "?limit=5"):
        assert ask(world, f"/api/ways{query}")[0] == 400
    world.denied.add(("", "browse", "bus"))
    assert world.visit().ask("/api/ways?message=a%231")[0] == 403
    assert world.asked == [("ways", {"message": "a#1"})]


def test_a_plan_is_made_beside_the_server_for_who_may_manage_the_bus(changing):
    said = {"text": "x", "drop": False}
    changing.replies["plan"] = lambda **args: {"words": [], **args}
    assert post(changing, "plan", {"text": "x"})[0] == 403 and not changing.asked
    changing.may = {("ann", "bus")}
    status, text = post(changing, "plan", {"text": "x"})
    assert status == 404 and "mom topology plan" in text and not changing.asked
    changing.web._api.aside = {"plan"}
    assert (post(changing, "plan", {"text": "x"})[0], changing.asked) == (200, [("plan", said)])
    for wrong in ({}, {"text": 5}, {"text": "x", "drop": 1}, {"text": "x", "more": 1}):
        assert post(changing, "plan", wrong)[0] == 400
    assert changing.asked == [("plan", said)]


def test_a_plan_may_be_large_for_who_may_manage_the_bus_and_nobody_elses_body_is_read(changing):
    changing.web._api.aside, changing.replies["plan"] = {"plan"}, lambda **args: {"chars": len(args["text"])}
    body = json.dumps({"text": "#" * 200_000}).encode()

    def begins(verb="plan", length=0, **headers):
        visitor = changing.visit()
        named = {**LOGGED_IN, "Content_Length": str(length or len(body)), **headers}
        visitor.receive(request(f"/api/{verb}", "POST", **named))
        assert len(visitor.protocol._http._receive_buffer) == 0
        changing.check_all()
        return visitor

    def refused(status, **asked):
        visitor = begins(**asked)
        assert visitor.answer()[0] == status and visitor.ending
        visitor.receive(body)
        assert len(visitor.protocol._body) == len(visitor.protocol._http._receive_buffer) == 0
        visitor.lose()

    early = changing.visit()
    early.receive(request("/api/plan", "POST", **LOGGED_IN, Content_Length=str(len(body))))
    assert not early.reading  # before anybody knows who it is
    early.lose()
    refused(403)  # who may look alone
    assert any("'ann' of 127.0.0.1 may not plan" in line for line in changing.lines)
    changing.may = {("ann", "bus")}
    refused(401, Authorization=basic("ann", "wrong"))
    refused(413, length=LARGE_BYTES + 1)
    refused(413, verb="purge")
    refused(415, Content_Type="text/plain")
    refused(403, Origin="http://elsewhere.example")
    assert not changing.asked
    visitor = begins(Expect="100-continue")
    for turn in (1, 2):
        if turn == 1:
            assert visitor.all() == b"HTTP/1.1 100 \r\n\r\n"
        else:
            visitor.receive(request("/api/plan", "POST", **LOGGED_IN, Content_Length=str(len(body))))
            changing.check_all()
        for at in range(0, len(body), 1 << 14):
            assert visitor.reading
            visitor.receive(body[at : at + (1 << 14)])
        changing.check_all()
        assert json.loads(visitor.answer()[2]) == {"chars": 200_000}
    assert len(changing.asked) == 2 and changing.web.requests == 2
    visitor.receive(request("/api/plan", "POST", **LOGGED_IN, Content_Length=str(len(body))) + body[:9])
    changing.clock.advance(changing.web.times.login + 1)
    assert b"408" in visitor.all()


def test_what_is_moved_elsewhere_needs_the_right_to_both(changing):
    changing.may = {("ann", "queue:a")}
    args = {"destination": "queue:a", "target": "queue:b"}
    assert post(changing, "move", args)[0] == 403
    changing.may.add(("ann", "queue:b"))
    assert post(changing, "move", args)[0] == 200
    changing.may = {("ann", "agent:payroll")}
    assert post(changing, "retry", {"id": 7, "target": "queue:b"})[0] == 403


def test_nothing_is_changed_by_another_spelling_of_its_name(changing):
    """A verb takes the name by which the bus knows a queue, too."""
    changing.web._api.may = lambda user, action, what: what != "queue:hr/salaries"
    for name in ("queue:hr/salaries", "queue:hr%2Fsalaries"):
        assert post(changing, "purge", {"destination": name})[0] == 403
    assert post(changing, "purge", {"destination": "salaries"})[0] == 400
    assert changed(changing) == []


@pytest.mark.parametrize("verb", sorted(NEEDS_TOKEN | set(api.VERBS) | {"nothing"}))
def test_nothing_else_is_changed(changing, verb):
    changing.web._api.may = lambda *what: True
    assert post(changing, verb, {})[0] == 404 and changing.asked == []


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (b"[1]", "the body of a change is a table of JSON"), (b"{", "the body of a change is a table of JSON"),
        (b"[" * 10_000, "the body of a change is a table of JSON"), (b"\xff", "is a table of JSON"),
        (b'{"destination": "queue:\\ud800"}', "is a table of JSON"), (b'{"\\udfff": 1}', "is a table of JSON"),
        (b'{"destination": [["queue:\\ud800"]]}', "is a table of JSON"), (b'{"limit": NaN}', "is a table of JSON"),
        (b'{"destination": ' + b"[" * 970 + b"]" * 970 + b"}", "is a table of JSON"),
        (b"", "purge needs destination"), (b'{"destination": 1.5}', "cannot have 1.5 as its destination"),
        (b'{"destination": "queue:a", "x": 1}', "has no 'x'"), (b'{"destination": ""}', "that is not empty"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_is_refused(changing, args, sentence):
    changing.may = {("ann", "queue:a")}
    status, text = post(changing, "purge", body=args)
    assert status == 400 and sentence in text and changing.asked == []


FORGED = [
    {"Sec_Fetch_Site": "cross-site", "Origin": "http://127.0.0.1:8161"}, {"Sec_Fetch_Site": "same-site"},
    {"Sec_Fetch_Site": "none"}, {"Origin": "https://evil.example"}, {"Origin": "null"},
    {"Origin": "https://shop.example"}, {"Origin": "http://127.0.0.1:9999"},
]  # fmt: skip


@pytest.mark.parametrize("headers", FORGED)
def test_a_page_of_somebody_else_changes_nothing_with_the_login_of_who_looks_at_it(changing, headers):
    changing.may = {("ann", "queue:a")}
    status, text = post(changing, "purge", {"destination": "queue:a"}, **headers)
    assert status == 403 and "no page but this server's own" in text and changing.asked == []


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_any_page_may_send_without_asking_first_changes_nothing(changing, kind):
    changing.may = {("ann", "queue:a")}
    assert post(changing, "purge", {"destination": "queue:a"}, Content_Type=kind)[0] == 415
    asked = changing.visit().ask("/api/purge", "OPTIONS", Origin="https://evil.example")
    assert asked[0] == 405 and not any(name.startswith("access-control") for name in asked[1])
    assert changing.asked == []


@pytest.mark.parametrize("headers", [{"Origin": "http://127.0.0.1:8161"}, {"Sec_Fetch_Site": "same-origin"}, {}])
def test_our_own_page_and_programs_may(changing, headers):
    changing.may = {("ann", "queue:a")}
    assert post(changing, "purge", {"destination": "queue:a"}, **headers)[0] == 200


def test_who_needs_no_login_needs_one_to_change_something():
    world = WebWorld()  # anonymous, and everybody may everything
    visitor = world.visit()
    status, headers, _ = visitor.ask(
        "/api/purge", "POST", b'{"destination": "queue:a"}', Content_Type="application/json"
    )
    assert status == 401 and "Basic" in headers["www-authenticate"] and world.asked == []
    assert visitor.ask("/login")[0] == 401
    visitor.receive(request("/login", Authorization=basic("ann", "a")))
    world.check_all()
    status, headers, _ = visitor.answer()
    assert (status, headers["location"]) == (303, "/")


def test_a_body_is_of_its_own_request_alone(changing):
    changing.may = {("ann", "queue:a")}
    visitor = changing.visit()
    assert post(changing, "purge", {"destination": "queue:a"}, visitor=visitor)[0] == 200
    assert post(changing, "purge", body=b"", visitor=visitor)[0] == 400
    assert post(changing, "purge", {"destination": "queue:a"}, visitor=visitor)[0] == 200


@pytest.fixture
def certified(changing):
    """The transport shows a certificate, or none."""
    made = changing
    made.shown = None
    made.gateway.client_ca, made.gateway.is_user = "ca.pem", {"ann", "eve"}.__contains__
    made.gateway.shown = lambda visitor: made.shown
    return made


def test_who_shows_a_certificate_is_the_user_that_it_names(certified):
    certified.may = {("ann", "queue:a")}
    anybody = {"Authorization": ""}
    purge = {"destination": "queue:a"}
    assert post(certified, "purge", purge, **anybody)[0] == 401
    for shown, status in (("ann", 200), ("eve", 403), ("gone", 403)):
        certified.shown = shown
        assert post(certified, "purge", purge, **anybody)[0] == status
    certified.shown = "eve"
    assert "not of 'ann'" in post(certified, "purge", purge)[1]
    assert [who for who, _ in certified.askers] == ["user ann"]
