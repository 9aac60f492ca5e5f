"""Overlays that are broken on purpose: what the tests must catch (PROTOCOLS §12.2). Nothing here is for use."""


def plain_hypercube(n: int) -> list[tuple[int, ...]]:
    """A cube that lacks members: nobody plays the missing labels."""
    return [tuple(v for bit in range((n - 1).bit_length()) if (v := u ^ 1 << bit) < n) for u in range(n)]
