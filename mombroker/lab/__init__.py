"""The laboratory: ordering cores of the bus in one domain, under virtual time, without servers, disks or faults.

It answers what an ordering costs. The simulator beside it (`mombroker.sim`) answers whether whole servers keep their
promises under faults. Both share virtual time (`sim.world`) and the cores.
"""
