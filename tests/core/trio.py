"""Three servers in one domain: a source on a, a sink on b, another on c."""

from mombroker.core.limits import Limits
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Tell

AGENTS = "tests.core.sample_agents"


def bus(**limits: int) -> Bus:
    made = Bus(
        topology(
            {"x": "abc"},
            {"a/source": f"{AGENTS}:Source", "b/sink": f"{AGENTS}:Sink", "c/other": f"{AGENTS}:Sink"},
            allow=("tests",),
        ),
        Limits(**limits),
    )
    made.pump()
    return made


def got(bus: Bus, agent: str = "b/sink") -> list[str]:
    return bus.fields(agent)["got"]


def tell(bus: Bus, to: str | list[str], text: str, ttl: float = 0) -> None:
    bus.send("a", "source", Tell([to] if isinstance(to, str) else to, text, ttl))
