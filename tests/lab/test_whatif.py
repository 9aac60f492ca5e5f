"""The traffic of a bus, from its logs, played again: it costs what it cost, and other back ends cost what they cost."""

from collections import deque
from random import Random

import pytest

from mombroker import store
from mombroker.admin.cli.log import every
from mombroker.core.layouts import build
from mombroker.core.trace import Record
from mombroker.lab import diagram, stories, whatif
from mombroker.lab.bus import Bus
from mombroker.lab.communities import communities
from mombroker.lab.networks import Uniform
from mombroker.lab.recording import mixed, paced, record
from mombroker.sim.world import MS, World


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A bus whose servers have left their stores, and the logs in them."""
    folder = tmp_path_factory.mktemp("ran")
    traffic = communities(1, 9)
    topology = mixed(traffic, ["matrix", "ks"])
    record(topology, paced(traffic.sends(200), 500), folder)
    return topology, {name: list(every(store.read(folder / name))) for name in topology.servers}


def test_the_same_bus_needs_the_same_control_bytes(ran):
    topology, logs = ran
    traffic = whatif.read(logs)
    then, again = whatif.recorded(traffic), whatif.replay(topology, traffic)
    assert again["packets"] == then["packets"] and again["hops"] == then["hops"] > 1
    assert again["control_bytes"] == pytest.approx(then["control_bytes"], rel=0.05)
    assert again == whatif.replay(topology, traffic)


def test_messages_are_as_large_as_the_logs_say(ran):
    topology, logs = ran
    said = {(r[1], r[2]): r[5] for records in logs.values() for r in records if r[0] == "send"}
    traffic, world, ids = whatif.read(logs), World(1), [("", 0)]
    bus = Bus(world, topology, lambda domain: Uniform(world, 0, MS))
    whatif.Player(bus, traffic.sends, ids).play()
    assert dict(zip(ids[1:], bus.sizes[1:], strict=True)) == said and min(said.values()) > 8


@pytest.mark.parametrize("seed", [1, 2])
def test_where_old_records_are_gone_both_sides_count_the_same_messages(ran, seed):
    """Of each server others: what a server forwarded whose send is gone is in no row, and clocks are not new."""
    topology, logs = ran
    lots = Random(seed)
    cut = {name: records[int(len(records) * lots.uniform(0.4, 0.7)) :] for name, records in logs.items()}
    traffic = whatif.read(cut, [*cut])
    then, again = whatif.recorded(traffic), whatif.replay(topology, traffic)
    assert 20 < len(traffic.counted) < len(traffic.sends) and traffic.gone > 10 and traffic.whole
    assert again["packets"] == then["packets"] and again["hops"] == then["hops"]
    assert again["control_bytes"] == pytest.approx(then["control_bytes"], rel=0.05)
    whole = whatif.recorded(whatif.read(logs))
    assert then["packets"] == pytest.approx(whole["packets"], rel=0.1)
    assert whatif.recorded(whatif.read(logs, [])) == whole


def test_what_waited_when_its_server_died_says_nothing_of_its_link(ran):
    """When it came is forgotten, and is 0 in the log."""
    _, logs = ran
    forgot = {name: [each._replace(received=0) for each in records] for name, records in logs.items()}
    assert whatif.read(logs).delays and not whatif.read(forgot).delays


def test_where_no_message_is_in_all_logs_all_are_counted_and_nothing_is_said_to_be_paid(ran):
    topology, logs = ran
    last = next(name for name in logs if logs[name][-1][12] == max(each[-1][12] for each in logs.values()))
    traffic = whatif.read(logs | {last: logs[last][-1:]}, [last])
    assert len(traffic.counted) == len(traffic.sends) > 100 and not traffic.whole


def test_where_a_log_ends_before_the_others_both_sides_count_the_same_messages(ran):
    """Of a router: what it passed on then is still in the logs of others, and its control bytes are not."""
    topology, logs = ran
    router = topology.routers[0]
    traffic = whatif.read(logs | {router: logs[router][: len(logs[router]) // 2]})
    then, again = whatif.recorded(traffic), whatif.replay(topology, traffic)
    assert traffic.missed > 10 < len(traffic.counted) == len(traffic.sends) - traffic.missed
    assert again["packets"] == then["packets"] and again["hops"] == then["hops"]
    assert again["control_bytes"] == pytest.approx(then["control_bytes"], rel=0.05)
    whole = whatif.read(logs)
    assert (whole.missed, whole.gone) == (0, 0) and len(whole.counted) == len(whole.sends)
    assert traffic.gone == len(whole.sends) - len(traffic.sends) > 0


def test_a_log_with_nothing_in_it_is_told_of_if_others_name_its_server(ran):
    topology, logs = ran
    router = topology.routers[0]
    assert whatif.read(logs | {router: [], "idle": []}).empty == {router}
    assert whatif.read(logs).members == {(name, each) for name, it in topology.domains.items() for each in it.members}


def test_other_plans_have_other_costs(ran):
    topology, logs = ran
    traffic = whatif.read(logs)
    rows = {
        name: whatif.replay(made, traffic, backends)
        for name, (made, backends) in whatif.plans(topology, ["rst"], ["flat"]).items()
    }
    assert [*rows] == ["as it is", "under rst", "domains as flat"]
    assert rows["domains as flat"]["hops"] == 1 < rows["as it is"]["hops"]
    assert rows["under rst"]["control_bytes"] > rows["as it is"]["control_bytes"]


def test_an_answer_waits_for_its_question(ran):
    """Whatever a server had delivered before a send is there before it in the replay."""
    topology, logs = ran
    traffic = whatif.read(logs)
    slow = {link: {id: (left, 50 * took) for id, (left, took) in some.items()} for link, some in traffic.delays.items()}
    traffic.delays = slow
    assert sum(len(send.after) for send in traffic.sends) > 100
    assert whatif.replay(topology, traffic)["p50_ms"] > 5 * whatif.recorded(traffic)["p50_ms"]


def test_a_message_of_the_logs_is_drawn_with_what_it_waited_for(ran):
    topology, logs = ran
    story = stories.logged(logs, topology)
    held = next(arrow for arrow in story.arrows if arrow.waited_for)
    picture = diagram.svg(story.around(held.message), "title")
    assert f'href="#{held.waited_for}"' in picture and held.message in picture
    assert all(arrow.left <= arrow.came <= arrow.delivered for arrow in story.arrows if arrow.delivered)
    assert all(any(a.message == arrow.waited_for for a in story.arrows) for arrow in story.arrows if arrow.held)


def test_the_sends_of_a_server_are_queued_at_the_end_where_it_costs_nothing(ran):
    """In front of a list it would cost by the square of their number."""
    topology, logs = ran
    traffic, world = whatif.read(logs), World(1)
    bus = Bus(world, topology, lambda domain: Uniform(world, 0, MS))
    queues = whatif.Player(bus, traffic.sends, [("", 0)]).queues
    assert sum(map(len, queues.values())) == len(traffic.sends) >= 200 and all(
        isinstance(queue, deque) for queue in queues.values()
    )
    assert all(list(queue) == sorted(queue, key=lambda send: send.at) for queue in queues.values())


@pytest.mark.parametrize("back", [0, 200])
def test_a_clock_that_was_set_back_hides_no_cause(back):
    """s1 sends, its clock is set back by so many ms, the answer comes, s1 sends again."""

    def record(kind, id, sent, done, dests=(), peer="", domain="", out=()):
        came = done if kind == "react" else 0
        times = (sent * MS, came * MS, came * MS, done * MS)
        return Record(kind, *id, "s1/x", dests, 5, domain, peer, 1, *times, out=list(out))

    first, answer, last = ("s1", 1), ("s2", 1), ("s1", 2)
    logs = {
        "s1": [
            record("send", first, 1105, 1105, ("s2/x",), out=[("a", "s2", 3, 1)]),
            record("react", answer, 1201, 1210 - back, peer="s2", domain="a"),
            record("send", last, 1212 - back, 1212 - back, ("s2/x",), out=[("a", "s2", 3, 1)]),
        ],
        "s2": [
            record("react", first, 1105, 1200, peer="s1", domain="a"),
            record("send", answer, 1201, 1201, ("s1/x",), out=[("a", "s1", 3, 1)]),
            record("react", last, 1212 - back, 1230, peer="s1", domain="a"),
        ],
    }
    traffic = whatif.read(logs)
    assert {send.id: send.after for send in traffic.sends} == {
        first: frozenset(), answer: frozenset({first}), last: frozenset({answer})
    }  # fmt: skip
    assert whatif.replay(build({"a": ["s1", "s2"]}), traffic)["packets"] == 1


def passed(*links):
    """Delays of ("a", "b", left, took), in ms."""
    delays = {}
    for number, (frm, to, left, took) in enumerate(links):
        delays.setdefault((frm, to), {})[f"of {frm}{to}", number] = (left * MS, took * MS)
    return delays


def arrivals(delays, frm, to, *times):
    """How long what leaves at these times, in ms, is on a link."""
    names = sorted({name for link in delays for name in link} | {frm, to})
    world, took = World(1), []
    links = whatif.Links(world, names, delays, [("", 0)], 0)
    for time in times:
        world.after(time * MS, lambda: _carry(world, links, names.index(frm), names.index(to), took))
    world.run()
    return took


def _carry(world, links, frm, to, took):
    left = world.now
    links.carry(frm, to, 9, lambda: took.append((world.now - left) / MS))


def test_on_a_new_link_a_tail_holds_up_only_what_goes_at_that_time():
    """One in ten takes 200 ms: a draw from all for each packet would let most wait for such a one."""
    hops = [(frm, to, 10 * k, 200 if k % 100 == 50 else 3) for frm, to in ("ab", "bc") for k in range(300)]
    took = arrivals(passed(*hops), "a", "c", *range(1, 3000, 10))
    assert sorted(took)[150] == 3 and max(took) == 200
    assert sum(each > 3 for each in took) == 3 * 20  # 20 leave until 200 ms later


def test_on_a_new_link_a_slow_server_is_slow_and_a_slow_time_too():
    calm = [(frm, to, 20 * k, 4) for frm, to in ("ab", "ba", "bc", "cb") for k in range(50)]
    slow = [("b", "s", 20 * k, 70) for k in range(50)] + [("s", "b", 20 * k, 60) for k in range(50)]
    times = range(7, 900, 300)
    assert arrivals(passed(*calm, *slow), "c", "s", *times) == [70] * 3
    assert arrivals(passed(*calm, *slow), "s", "c", *times) == [60] * 3
    assert arrivals(passed(*calm), "a", "c", *times) == [4] * 3
    then = [(frm, to, left, 90 if 300 <= left < 600 else took) for frm, to, left, took in calm]
    assert arrivals(passed(*then), "a", "c", *times) == [4, 90, 4]
    assert arrivals(passed(("x", "y", 10, 7), ("y", "x", 400, 8)), "a", "c", *times) == [7, 8, 8]
    assert arrivals({}, "a", "c", 5) == [1]
