from mombroker.net import config
from tests.core.bus import Bus


def test_the_guest_hears_its_greeting():
    bus = Bus(config.load("examples/greeter.toml"))
    bus.pump()
    assert bus.fields("paris/guest") == {"name": "Zoe", "heard": "Hello Zoe, you are number 1."}
    assert bus.fields("lyon/greeter") == {"count": 1}


def test_the_operator_is_greeted_too():
    bus = Bus(config.load("examples/greeter.toml"))
    bus.pump()
    bus.ask("lyon", "send", to=["greeter"], type="examples.greeter.Hello", fields={"name": "Ann"})
    assert bus.fields("lyon/greeter") == {"count": 2}
    assert bus.ask("lyon", "deadletters")["count"] == 0
