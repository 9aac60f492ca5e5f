"""With MOMBROKER_COMPILE=1 the modules that each message passes are compiled by mypyc; all else is in setup.cfg.
By MOMBROKER_OPT_LEVEL=0 the C compiler optimises nothing: in less time, for tests.

What authors subclass stays interpreted, and so do the back ends and agents; what only the simulator subclasses says so.
"""

import os
from glob import glob

from setuptools import setup

COMPILED = {
    "core": "arrivals batch causality channel collection domain_channel engine gate ids inbox link message natives"
    " server trace transaction turns",
    "stomp": "frames protocol replies requests session settings unsettled",
    "broker": "native properties",
    "broker/authors": "consumers",
    "broker/groups": "group members",
    "broker/queue": "*",
    "broker/session": "[!c]*",  # consumers are copied, which a compiled class refuses
    "broker/topic": "*",
    "gateway": "connection output parts",
    "net": "committer driver loop",
    "store": "base columns mark packed reader replica sqlite sums wal",
}


def modules() -> list[str]:
    """The paths of their files, from here."""
    named = [f"mombroker/{room}/{name}.py" for room, names in COMPILED.items() for name in names.split()]
    return sorted(path for each in named for path in glob(each) if not path.endswith("__init__.py"))


def compiled() -> dict[str, list[object]]:
    if os.environ.get("MOMBROKER_COMPILE") != "1":
        return {}
    try:
        from mypyc.build import mypycify
    except ImportError:  # pip asks what it needs, and comes again
        return {"setup_requires": ["mypy >= 2.1"]}
    what = ["--strict", "--follow-imports=silent", "--ignore-missing-imports", *modules()]
    level = os.environ.get("MOMBROKER_OPT_LEVEL", "2")
    return {"ext_modules": mypycify(what, opt_level=level, debug_level="0", multi_file=True, group_name="mombroker")}


setup(**compiled())
