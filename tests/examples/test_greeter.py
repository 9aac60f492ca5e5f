import subprocess
import sys

from mombroker.net import config
from tests.core.bus import Bus


def test_the_guest_hears_its_greeting():
    bus = Bus(config.load("examples/greeter.toml"))
    bus.pump()
    assert bus.fields("paris/guest") == {"name": "Zoe", "heard": "hello Zoe, you are number 1"}
    assert bus.fields("lyon/greeter") == {"greeted": 1}


def test_the_operator_is_greeted_too():
    bus = Bus(config.load("examples/greeter.toml"))
    bus.pump()
    bus.ask("lyon", "send", to=["greeter"], type="examples.greeter.Hello", fields={"who": "Ann"})
    assert bus.fields("lyon/greeter") == {"greeted": 2}
    assert bus.ask("lyon", "deadletters")["count"] == 0


def test_the_examples_are_found_from_the_folder_above_them():
    """The command `mom` does not have the current folder on its path, as `python -m` has."""
    code = (
        "import sys; from pathlib import Path; from mombroker import agents; from mombroker.net import config;"
        "from mombroker.admin.cli import options; sys.path.remove(''); file = Path('examples/greeter.toml');"
        "options.importable(file); agents.program(config.load(file)); print('found')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "found\n"
