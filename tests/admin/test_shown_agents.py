"""What `mom agent show` has in a table."""

from mombroker.admin.cli.agent import flat
from tests.agents.shop_agents import Shop
from tests.broker.bench import Broker
from tests.core.bus import topology


def test_tables_are_counted_and_what_is_consumed_stands_with_its_home():
    b = Broker(topology({"x": "ab"}, {"b/shop": f"{Shop.__module__}:Shop"}))
    b.connect("a").send("queue:orders", '{"item": "tea"}', '{"item": "milk"}')
    shown = flat(b.ask("b", "agent", agent="shop"))
    assert shown["tables.stock"] == "2 rows" and shown["fields.sold"] == "2"
    assert shown["first of tables.stock"] == [{"key": '"milk"', "value": "9"}, {"key": '"tea"', "value": "9"}]
    assert shown["consumes /queue/orders"] == "at b/queue:orders"
    b.ask("b", "delete_destination", destination="queue:orders")
    assert "was deleted" in flat(b.ask("b", "agent", agent="shop"))["consumes /queue/orders"]
