"""The delay over three hops in the model of paper 001, reckoned without the cores, the laboratory and its observers.

Three buildings of four servers, each with four more processes on its LAN; the first server of a building is on the
campus, too. In a building and on the campus messages are broadcast under vectors; a LAN keeps their order by itself.
"""

from heapq import heappop, heappush
from itertools import count
from random import Random
from statistics import fmean, stdev

BUILDINGS, SERVERS, ON_LAN = 3, 4, 5
CAMPUS = BUILDINGS  # the group of the buildings' first servers
MS = [2.0] * BUILDINGS + [10.0]  # the mean time in each group
TRANSMISSION, LAN_MS = 20 * 8 / 100_000, 0.1
TO_PROCESSES = LAN_MS * (ON_LAN - 1) / ON_LAN  # from or to the processes of a LAN, the server among them, in the mean
BATCH, WARM = 20_000, 1_000  # messages of which a mean is taken; messages that are not measured


def reckoned(load: float, messages: int, seed: int) -> list[tuple[float, float]]:
    """The mean delay in ms and its standard error: what messages wait, and what the network takes in the mean. First of
    three hops, then also of messages whose sender is on the LAN of the campus."""
    lots, order, queue = Random(seed), count(), []
    counts = [[[0] * SERVERS for _ in range(SERVERS)] for _ in MS]  # by group, by member: delivered of each member
    waiting = [[[] for _ in range(SERVERS)] for _ in MS]
    batches = [([], []) for _ in range((messages - WARM) // BATCH)]  # delays, by reading

    def after(at, call, *args):
        heappush(queue, (at, next(order), call, args))

    def begin(at, number):
        building, server, process = lots.randrange(BUILDINGS), lots.randrange(SERVERS), lots.randrange(ON_LAN)
        after(at + (LAN_MS if process else 0), start, building, server, (number, building, server), 0.0)
        if number + 1 < messages:
            after(at + lots.expovariate(load * BUILDINGS * SERVERS * ON_LAN / 1000), begin, number + 1)

    def start(now, building, server, message, waited):
        broadcast(now, building, server, message, waited)
        if server == 0:
            broadcast(now, CAMPUS, building, message, waited)

    def broadcast(now, group, me, message, waited):
        counts[group][me][me] += 1
        vector = counts[group][me][:]
        for other in range(BUILDINGS if group == CAMPUS else SERVERS):
            if other != me:
                at = now + lots.expovariate(1 / MS[group]) + TRANSMISSION
                after(at, arrive, group, me, other, vector, message, waited - at)

    def arrive(now, group, frm, me, vector, message, waited):
        here = waiting[group][me]
        here.append((frm, vector, message, waited))
        while free := next((each for each in here if ready(counts[group][me], each[0], each[1])), None):
            here.remove(free)
            counts[group][me][free[0]] += 1
            deliver(now, group, me, free[2], free[3] + now)

    def ready(have, frm, vector):
        return vector[frm] == have[frm] + 1 and all(
            a <= b for k, (a, b) in enumerate(zip(vector, have, strict=True)) if k != frm
        )

    def deliver(now, group, me, message, waited):
        number, building, server = message
        if group == CAMPUS:
            broadcast(now, me, 0, message, waited)
        elif group == building and me == 0:
            broadcast(now, CAMPUS, group, message, waited)
        elif group != building and me and 0 <= (at := (number - WARM) // BATCH) < len(batches):
            hops = [group, CAMPUS] + [building] * (server > 0)
            delay = waited + sum(MS[hop] + TRANSMISSION for hop in hops) + 2 * TO_PROCESSES
            for delays in batches[at][server == 0 :]:
                delays.append(delay)

    after(0.0, begin, 0)
    while queue:
        now, _, call, args = heappop(queue)
        call(now, *args)
    means = [[fmean(delays) for delays in each] for each in zip(*batches, strict=True)]
    return [(fmean(each), stdev(each) / len(each) ** 0.5) for each in means]
