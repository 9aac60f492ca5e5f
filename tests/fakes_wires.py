"""Rules of AMQP's sessions, broken on purpose: clients of the simulator must notice."""

from mombroker.amqp.outbound import Outbound


def link_by_link(_=None):
    """When the window opens, each link gives all that it has before the next one does."""

    def go_on(out: Outbound) -> None:
        out._order.clear()
        for link in out.links.values():
            while link.pending and link.credit > 0 and link.attached and out.window > 0 and not out._rest:
                out._transfer(link, link.pending.popleft())
            out._order.extend([link] * len(link.pending))

    return go_on


def not_behind_others(_=None):
    """Who can give something does, whatever came before for links that are not there yet."""

    def go_on(out: Outbound) -> None:
        left = list(out._order)
        out._order.clear()
        for link in left:
            if link.pending and link.credit > 0 and link.attached and out.window > 0 and not out._rest:
                out._transfer(link, link.pending.popleft())
            elif link.pending and link.credit > 0:
                out._order.append(link)

    return go_on


def last_first(_=None):
    """The last frame that fits is given to whoever has the last message."""

    def go_on(out: Outbound) -> None:
        while out._order and out.window > 0:
            link = out._order.pop()
            if link.pending and link.credit > 0 and link.attached:
                out._transfer(link, link.pending.popleft())

    return go_on
