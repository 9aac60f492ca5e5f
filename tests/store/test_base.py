"""How an order digest that differs is explained, and what is not an order."""

import pytest

from mombroker.core.identity import identity
from mombroker.core.topology import Domain
from mombroker.store.base import difference
from tests.store.samples import topology

CORE = ("paris", "lyon", "nice")
EAST = ("nice", "rome")


def change(old, new):
    return difference(identity(old, "paris"), identity(new, "paris"))


@pytest.mark.parametrize(
    ("domains", "sentence"),
    [
        ({"core": CORE, "east": EAST}, ""),
        ({"east": EAST, "core": CORE}, ""),  # the order in the file is not an order
        ({"core": ("lyon", "paris", "nice"), "east": EAST},
         "domain core lists lyon paris nice in place of paris lyon nice"),
        ({"core": ("paris", "nice"), "east": EAST}, "domain core has lost lyon"),
        ({"core": (*CORE, "oslo"), "east": EAST}, "domain core has gained oslo"),
        ({"main": CORE, "east": EAST}, "domain core is gone, domain main is new"),
        ({"core": Domain("core", CORE, "ks"), "east": EAST}, "domain core is ordered by ks in place of matrix"),
        ({"core": Domain("core", CORE, "matrix", {"kappa": 2}), "east": EAST},
         "domain core has kappa = 2 in place of no kappa"),
        ({"core": CORE}, "domain east is gone"),  # others' domains decide the routes
        ({"core": CORE, "east": (*EAST, "bari")}, "domain east has gained bari"),
        ({"core": CORE, "east": Domain("east", EAST, "ks")}, ""),  # but not how they are ordered
        ({"core": CORE, "east": ("rome", "nice")}, ""),
    ],
)  # fmt: skip
def test_the_difference_between_two_orders_is_named(domains, sentence):
    assert change(topology(core=CORE, east=EAST), topology(**domains)) == sentence


def test_an_option_that_changed_is_shown_with_both_values():
    daisy = [Domain("core", CORE, "daisy", {"groups": groups}) for groups in ([["paris"]], [["paris", "lyon"]])]
    found = change(topology(core=daisy[0]), topology(core=daisy[1]))
    assert found == 'domain core has groups = [["paris", "lyon"]] in place of groups = [["paris"]]'


def test_addresses_and_policies_are_no_order():
    moved = topology()
    moved.servers["paris"].port = 1
    moved.limits["max_store"] = 1
    assert change(topology(), moved) == ""


def test_a_server_that_joins_a_domain_is_told_so():
    old, new = topology(core=CORE, east=EAST), topology(core=CORE, east=(*EAST, "paris"))
    assert change(old, new) == "domain east has gained paris"
