"""Paper 001, §5.1: who is on which LAN and in which building."""

DAISY, FLAT = "daisy", "flat"
LAN, BUILDING, PROCESSES = 5, 20, 60  # a local group, a daisy, all


def groups(architecture: str) -> list[object]:
    members = list(range(PROCESSES))
    if architecture == FLAT:
        return [*members]
    return [
        [members[lan : lan + LAN] for lan in range(daisy, daisy + BUILDING, LAN)]
        for daisy in range(0, PROCESSES, BUILDING)
    ]
