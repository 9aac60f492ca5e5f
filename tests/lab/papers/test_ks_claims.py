"""Each claim of paper 002 by a table that holds and by one that does not."""

import pytest

from mombroker.lab.papers import ks_claims, ks_curves
from mombroker.lab.papers.base import FAILS, HOLDS, PARTLY, UNKNOWN, Table, Value, judge

SETTINGS = ("S1", "S2", "S3", "S4")


def rows(figure, curves, **more):
    """setting -> x -> a value of all columns, or one of each."""
    found = []
    for setting, curve in curves.items():
        for x, value in curve.items():
            columns = value if isinstance(value, dict) else {"ks": value}
            columns = {
                "ks_bare": columns["ks"],
                "ks_bitmap": columns["ks"] / 2,
                "log": columns["ks"],
                "sends": 30_000,
            } | columns
            found.append({"figure": figure, "setting": setting, "x": x, "seed": 1} | columns | more)
    return found


def alike(curve):
    return dict.fromkeys(SETTINGS, curve)


def judged(text, found):
    """The verdict of the only claim whose text has this in it."""
    figures = {row["figure"] for row in found if row["figure"] != ks_claims.FLOOR}
    chosen = [claim for claim in ks_claims.CLAIMS if text in claim.text]
    (row,) = [each for name in figures for each in judge(chosen, name, Table(found))]
    return row


def test_a_curve_that_levels_off_does_so_on_any_grid():
    """It rises to 40 at 600 and no further; the other rises by the same factor in each decade."""
    steady, rising = (lambda x: min(40.0, 30 * (x / 20) ** 0.1)), (lambda x: 30 * (x / 20) ** 0.15)
    coarse, fine = (20, 200, 1000, 6000), (20, 50, 100, 200, 400, 800, 1500, 3000, 4500, 6000)
    for curve, verdict in ((steady, HOLDS), (rising, FAILS)):
        for grid in (coarse, fine):
            found = judged("steady state", rows("4", alike({x: curve(x) for x in grid})))
            assert found["verdict"] == verdict, found
    decade = ks_curves.last_decade({x: Value(rising(x)) for x in coarse})
    assert decade.mean - 1 == pytest.approx(10**0.15 - 1, rel=0.03)
    mixed = rows("4", alike({x: steady(x) for x in fine}) | {"S3": {x: rising(x) for x in fine}})
    assert judged("steady state", mixed)["verdict"] == PARTLY
    assert judged("steady state", rows("4", alike({1000: 3, 6000: 4})))["verdict"] == UNKNOWN


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        ({50: 10, 100: 11.4, 400: 12, 1000: 12}, HOLDS),
        ({50: 10, 100: 11.6, 400: 12, 1000: 12}, FAILS),  # a leap
        ({50: 10, 100: 11.4, 400: 13, 1000: 12}, HOLDS), ({50: 10, 100: 11.4, 400: 14.4, 1000: 12}, FAILS),
        ({50: 10, 100: 10, 400: 10, 1000: 10}, FAILS),
    ],
)  # fmt: skip
def test_a_rise_is_gradual_and_its_end_level_in_between(curve, verdict):
    assert judged("steady state", rows("4", alike(curve)))["verdict"] == verdict
    assert judged("steady state", by_chance(rows("4", alike(curve)), 8))["verdict"] == UNKNOWN


def pair(plain, packed, **more):
    return {"ks": plain, "ks_bitmap": packed} | more


def by_chance(found, off, columns=("ks", "ks_bitmap", "ks_bare", "log")):
    """Two runs, of which one has these columns so many per cent higher, and the other as many lower: half of an
    interval is as many per cent by Student's t, of as many degrees of freedom as a curve has points."""
    return [
        row | {"seed": seed} | {column: row[column] * (1 + sign * off / 100) for column in columns}
        for seed, sign in ((1, 1), (2, -1))
        for row in found
    ]


@pytest.mark.parametrize(
    ("text", "figure", "at", "good", "bad"),
    [
        ("KS has about 25 %", "3", 15, 29.9, 30.1), ("KS' has about 15 %", "3", 15, 35.9, 36.1),
        ("only about 4 %", "3", 100, 4.79, 4.81), ("less than 4 %", "3", 100, 3.99, 4.0),
        ("never more than 35 %", "4", 200, 34.9, 35), ("less than 11 %", "4", 200, 10.9, 11),
        ("KS has less than 20 %", "5", 50, 19.9, 20), ("KS' has less than 12 %", "5", 50, 23.9, 24),
    ],
)  # fmt: skip
def test_a_bound(text, figure, at, good, bad):
    """Of KS; KS' is half of it in these tables."""
    for value, verdict in ((good, HOLDS), (bad, FAILS)):
        assert judged(text, rows(figure, alike({at: value})))["verdict"] == verdict
    mixed = judged(text, rows(figure, alike({at: good}) | {"S3": {at: bad}}))["verdict"]
    # S3 alone is of 40 members in figure 4, S1 of other sizes in figure 5
    assert mixed == (HOLDS if "35" in text else FAILS if "11" in text else PARTLY)


def test_what_no_implementation_can_meet_is_marked():
    floor = {"figure": ks_claims.FLOOR, "setting": "MTT 0", "seed": 1, "ks_bitmap": 5, "sends": 30_000}
    floor = [floor | {"x": 100, "ks": 4.34, "ks_bare": 3.73}, floor | {"x": 15, "ks": 33.4, "ks_bare": 29.3}]
    for text, value, marked in (("only about 4 %", 5, False), ("less than 4 %", 5, True)):
        assert ("no implementation can" in judged(text, floor + rows("3", alike({100: value})))["why"]) == marked
    # S4 has more multicasts than the floor, and may need less
    whys = judged("about 25 %", floor + rows("3", alike({15: 38})))["why"].split("; ")
    assert whys[0].startswith("S1, S2, S3: no implementation can") and whys[1:] == ["S4: more than 20 % off"]
    only = judged("about 25 %", floor + rows("3", alike({15: 29}) | {"S4": {15: 31}}))
    assert only["why"] == "S4: more than 20 % off"
    more = judged("less than 20 %", floor + [floor[0] | {"x": 20, "ks": 24}] + rows("5", alike({50: 25})))["why"]
    assert "S2, S3: no implementation can: at n = 20" in more and "S4: no implementation can under this load" in more
    sure = [floor[1] | {"seed": seed, "ks": 30 + seed} for seed in (1, 2)]  # a half interval of 6.4: it may be below 30
    assert "33.4" not in judged("about 25 %", sure + rows("3", alike({15: 38})))["why"]
    assert "33.4" in judged("about 25 %", floor + rows("3", alike({15: 38})))["why"]
    assert "no implementation can" in judged("more than 35 %", floor + rows("4", alike({200: 59})))["why"]
    assert judged("more than 35 %", floor + rows("4", alike({200: 34})))["why"] == ""
    crossed = rows("3", alike({50: pair(20, 15), 100: pair(10, 9)}))
    assert "no implementation can" in judged("the threshold is n", crossed)["why"]


@pytest.mark.parametrize(
    ("text", "figure", "xs"),
    [
        ("constant over MIMT", "5", (50, 1200)), ("beyond a MIMT of 1,200", "5", (1200, 12000)),
        ("independent of M/T", "6", (0.1, 1)), ("of KS' is, too", "6", (0.1, 1)),
        ("|Dests|/n leads", "7", (0.1, 1)), ("B/T leads", "8", (0.1, 1)),
    ],
)  # fmt: skip
def test_what_is_constant(text, figure, xs):
    few, many = xs
    for last, verdict in ((11.4, HOLDS), (8.8, HOLDS), (11.6, FAILS), (8.5, FAILS)):
        assert judged(text, rows(figure, alike({few: 10, many: last})))["verdict"] == verdict
    assert judged(text, rows(figure, alike({few: 10, many: 10}) | {"S3": {few: 10, many: 20}}))["verdict"] == PARTLY
    assert judged(text, rows(figure, alike({few: 10})))["verdict"] == UNKNOWN


def test_what_comes_before_does_not_count_from_a_point_on():
    assert judged("beyond a MIMT of 1,200", rows("5", alike({50: 99, 1200: 10, 12000: 10})))["verdict"] == HOLDS


@pytest.mark.parametrize(
    ("text", "figure", "good", "bad"),
    [
        ("noticeably lower than KS", "5", 8.99, 9.01), ("lower than KS in all simulations", "6", 9.99, 10.01),
        ("lower than KS, but for S2", "7", 9.99, 10.01), ("lower than KS, but for S2", "8", 9.99, 10.01),
    ],
)  # fmt: skip
def test_which_is_cheaper(text, figure, good, bad):
    for last, verdict in ((good, HOLDS), (bad, FAILS)):
        found = rows(figure, alike({1: pair(9, 5), 2: pair(10, last)}))
        assert judged(text, found)["verdict"] == verdict
        assert judged(text, by_chance(found, 5))["verdict"] == verdict  # both alike: their ratio is the same
        assert judged(text, by_chance(found, 5, ["ks_bitmap"]))["verdict"] == UNKNOWN
    mixed = alike({1: pair(9, 5)}) | {"S3": {1: pair(9, 10)}}
    assert judged(text, rows(figure, mixed))["verdict"] == PARTLY


@pytest.mark.parametrize(
    ("figure", "text", "ratio", "verdict"),
    [
        *((figure, "almost equal to KS", *each) for figure in "67" for each in (
            (1.009, HOLDS), (0.901, HOLDS), (1.001, HOLDS), (1.011, FAILS), (0.899, FAILS), (3, FAILS)
        )),
        *(("8", "marginally more", *each) for each in (
            (1.001, HOLDS), (1.099, HOLDS), (1, FAILS), (0.999, FAILS), (1.101, FAILS), (3, FAILS)
        )),
    ],
)  # fmt: skip
def test_how_they_are_beside_each_other_in_s2(figure, text, ratio, verdict):
    """At all points; the other settings do not count."""
    found = rows(figure, alike({1: pair(10, 50)}) | {"S2": {x: pair(10, 10 * ratio, ks_bare=8) for x in (1, 2)}})
    told = judged(text, found)
    assert told["verdict"] == verdict and f"without the header KS' / KS {10 * ratio / 8:.2f}" in told["measured"]
    assert judged(text, by_chance(found, 20))["verdict"] == verdict
    assert judged(text, by_chance(found, 50, ["ks_bitmap"]))["verdict"] == UNKNOWN
    mixed = rows(figure, {"S2": {1: pair(10, 10.05), 2: pair(10, 30)}})
    assert judged(text, mixed)["verdict"] == PARTLY


@pytest.mark.parametrize("figure", ["3", "4", "5", "6"])
def test_what_is_much_less_than_rst(figure):
    """Below half of it, at all points, KS and KS', which is half of KS here."""
    for most, verdict in ((49.9, HOLDS), (50, PARTLY), (99, PARTLY), (100, FAILS)):
        found = rows(figure, alike({1: 5, 2: most}))
        assert judged("much less than that of RST", found)["verdict"] == verdict
    assert judged("much less than that of RST", by_chance(rows(figure, alike({1: 49, 2: 49})), 2))["verdict"] == PARTLY
    found = judged("much less than that of RST", by_chance(rows(figure, alike({1: pair(49, 49)})), 2))
    assert found["verdict"] == UNKNOWN


@pytest.mark.parametrize("figure", ["7", "8"])
def test_what_is_very_similar_to_figure_six(figure):
    for factor, verdict in ((1.09, HOLDS), (0.91, HOLDS), (1.11, FAILS), (0.89, FAILS), (4, FAILS)):
        base = rows("6", alike({0.1: 10, 1: 20}))
        found = rows(figure, alike({0.1: 10, 1: 20 * factor, 0.3: 99}))  # 0.3 is not in figure 6
        assert very_similar(figure, base + found)["verdict"] == verdict
        assert very_similar(figure, by_chance(base + found, 300))["verdict"] == UNKNOWN
    mixed = rows(figure, alike({0.1: pair(10, 8), 1: pair(20, 10)}))
    assert very_similar(figure, base + mixed)["verdict"] == PARTLY
    assert very_similar(figure, found)["verdict"] == UNKNOWN
    for other in ({"setting": "S1", "x": 7}, {}):
        assert very_similar(figure, [row | other for row in base] + rows(figure, {"S1": {1: 5}}))["verdict"] == (
            UNKNOWN if other else FAILS
        )


def very_similar(figure, found):
    (row,) = judge([each for each in ks_claims.CLAIMS if "very similar" in each.text], figure, Table(found))
    return row


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        ({10: 40, 20: 20, 30: 10}, HOLDS), ({10: 40, 20: 29.9}, HOLDS), ({10: 40, 20: 30.1}, FAILS),
        ({10: 60, 30: 59.99}, FAILS), ({10: 40, 20: 20, 30: 20}, FAILS), ({10: 10, 20: 20, 30: 40}, FAILS),
        ({10: 40, 40: 22.4}, HOLDS), ({10: 40, 40: 22.6}, FAILS), ({10: 40, 20: 20, 500: 20}, HOLDS),
    ],
)  # fmt: skip
def test_an_overhead_that_falls_rapidly(curve, verdict):
    """A quarter less as n doubles; what is beyond the paper's 100 members does not count."""
    assert judged("falls rapidly", rows("3", alike(curve)))["verdict"] == verdict
    steep = {10: 40, 20: 20, 30: 10}
    assert judged("falls rapidly", rows("3", {"S1": steep, "S2": curve}))["verdict"] == (
        HOLDS if verdict == HOLDS else PARTLY
    )
    assert judged("falls rapidly", by_chance(rows("3", alike(curve)), 40))["verdict"] == UNKNOWN
    assert judged("falls rapidly", rows("3", alike({10: 3, 200: 1})))["verdict"] == UNKNOWN


@pytest.mark.parametrize(("power", "verdict"), [(1, HOLDS), (1.14, HOLDS), (0.86, HOLDS), (1.16, FAILS), (0.8, FAILS)])
def test_integers_that_grow_linearly(power, verdict):
    found = rows("3", alike({n: 100 * n**power / n**2 for n in (10, 20, 40)} | {500: 99}))  # 500 is beyond the paper
    assert judged("almost linearly", found)["verdict"] == verdict
    assert judged("almost linearly", by_chance(found, 20))["verdict"] == UNKNOWN
    assert judged("almost linearly", rows("3", alike({10: 4})))["verdict"] == UNKNOWN


def test_both_have_to_grow_linearly():
    found = rows("3", alike({n: pair(100 / n, 10 / n**0.6) for n in (10, 15, 20, 40)}))
    told = judged("almost linearly", found)
    assert told["verdict"] == PARTLY and "KS: S1 1.00" in told["measured"] and "KS': S1 1.40" in told["measured"]
    assert ks_curves.exponent({x: Value(3 * x**0.7) for x in (1, 2, 5)}).mean == pytest.approx(0.7)
    # Two points: log(1.1) and log(1.2) of chance, over log(2)
    power = ks_curves.exponent({1: Value(10, 1), 2: Value(10, 2)})
    assert power.mean == 0 and power.of == pytest.approx((0.1**2 + 0.2**2) ** 0.5 / 0.693, rel=0.001)


@pytest.mark.parametrize(("few", "many", "verdict"), [(20, 6, HOLDS), (20, 4, FAILS), (45, 6, FAILS), (45, 4, FAILS)])
def test_few_members_prefer_the_one_and_many_the_other(few, many, verdict):
    found = rows("3", alike({10: pair(40, few), 100: pair(5, many)}))
    assert judged("for low n KS' is", found)["verdict"] == verdict


@pytest.mark.parametrize(("packed", "verdict"), [(5.4, HOLDS), (4.6, HOLDS), (5.6, FAILS), (4.4, FAILS)])
def test_curves_that_are_close_for_many_members(packed, verdict):
    assert judged("close together", rows("3", alike({10: 1, 100: pair(5, packed)})))["verdict"] == verdict


@pytest.mark.parametrize(
    ("s3", "s4", "verdict"),
    [(62, 45, HOLDS), (None, 45, HOLDS), (45, 62, FAILS), (62, None, FAILS), (50, 50, FAILS), (None, None, UNKNOWN)],
)
def test_which_threshold_comes_first(s3, s4, verdict):
    """The gap falls by one with each n; where it does not cross it stays."""

    def curve(at):
        return {n: pair(200, 200 - (at - n if at else 1)) for n in (10, 40, 55, 70, 100)}

    found = judged("comes earlier", rows("3", {"S3": curve(s3), "S4": curve(s4)}))
    assert found["verdict"] == verdict
    if verdict != UNKNOWN:
        assert all(f"{each}" in found["measured"] for each in (s3, s4) if each)
        assert ("not up to 100" in found["measured"]) == (None in (s3, s4))


def test_what_chance_leaves_open_of_thresholds():
    """KS' over KS rises by a hundredth with each n; two seeds have it so much higher and lower. They move the crossing
    by as many n."""

    def both(off):
        return [
            row | {"seed": seed}
            for seed in (1, 2)
            for row in rows("3", {
                setting: {n: pair(10, 10 + (n - at + (3 - 2 * seed) * off) / 10) for n in (10, 40, 70, 100)}
                for setting, at in {"S1": 55, "S2": 55, "S3": 60, "S4": 50}.items()
            })
        ]  # fmt: skip

    # 2 seeds at 4 points: an error of √2 off / √2 by 4 degrees of freedom, 2.776 of it each
    for off, order, over in ((1, HOLDS, HOLDS), (2, UNKNOWN, HOLDS), (17, UNKNOWN, UNKNOWN)):
        found = both(off)
        assert judged("comes earlier", found)["verdict"] == order
        assert judged("for low n KS' is", found)["verdict"] == over
        assert ("within chance" in judged("comes earlier", found)["why"]) == (order == UNKNOWN)
    for off, open_ in ((1, True), (0.01, False)):  # S3 at 60 is near 62; S4 at 50, where 49.5 is near 45
        found = judged("the threshold is n", both(off))
        assert found["verdict"] == PARTLY and ("within chance" in found["why"]) == open_


@pytest.mark.parametrize(("least", "verdict"), [(8.8, HOLDS), (8.6, FAILS)])
def test_an_improvement_that_is_the_same(least, verdict):
    """S2 does not count."""
    found = rows("3", {"S1": {10: 10}, "S2": {10: 99}, "S3": {10: least}, "S4": {10: 9}})
    assert judged("the improvement is the same", found)["verdict"] == verdict


@pytest.mark.parametrize(
    ("near", "far", "verdict"),
    [
        (9.1, 8, HOLDS), (9.1, 9.1, PARTLY), (8, 8, PARTLY), (8, 9.1, FAILS), (10.9, 8.9, HOLDS), (11.1, 9.1, FAILS),
        (30, 30, FAILS),
    ],
)  # fmt: skip
def test_curves_that_are_close_and_others_that_are_not(near, far, verdict):
    """At all points."""
    found = rows("4", {setting: {50: pair(10, near if setting == "S3" else far)} for setting in SETTINGS})
    assert judged("very close", found)["verdict"] == verdict
    assert judged("very close", by_chance(found, 9))["verdict"] == verdict
    assert judged("very close", by_chance(found, 30, ["ks_bitmap"]))["verdict"] == UNKNOWN
    at_one = rows(
        "4", {setting: {50: pair(10, 9.5 if setting == "S3" else 8), 99: pair(10, 9.5)} for setting in SETTINGS}
    )
    assert judged("very close", at_one)["verdict"] == PARTLY


@pytest.mark.parametrize(("factor", "verdict"), [(0.86, HOLDS), (1.14, HOLDS), (0.84, FAILS), (1.16, FAILS)])
def test_a_curve_beside_one_of_other_points(factor, verdict):
    """A straight line over log x, so that it is the same between the points."""
    line = {x: 10 + 5 * at for at, x in enumerate((20, 200, 2000))}
    many = {x: factor * ks_curves.between(line, x) for x in (50, 200, 1000)}
    assert ks_curves.between(line, 20 * 10**0.5) == pytest.approx(12.5)
    found = judged("more multicasts", rows("4", {"S1": line, "S4": many}))
    assert found["verdict"] == verdict and "MTT = 50, 1000" in found["why"]
    assert judged("more multicasts", by_chance(rows("4", {"S1": line, "S4": many}), 10))["verdict"] == UNKNOWN
    assert judged("more multicasts", rows("4", {"S1": line, "S4": many | {10: 3}}))["verdict"] == UNKNOWN


@pytest.mark.parametrize(
    ("still", "moved", "verdict"),
    [
        (1.04, 1.06, HOLDS), (1.04, 1.14, HOLDS), (1.06, 1.1, PARTLY), (1.04, 1.04, PARTLY), (1.04, 1.16, PARTLY),
        (1.06, 1.04, FAILS), (1.06, 1.16, FAILS), (5, 9, FAILS), (1, 1.0001, PARTLY),
    ],
)  # fmt: skip
def test_curves_of_which_two_fluctuate(still, moved, verdict):
    """Slightly: from 5 to 15 %. The others by 5 % at most."""
    found = {
        setting: {50: 10 * (moved if setting in ("S2", "S3") else still), 400: 10, 1200: 10} for setting in SETTINGS
    }
    assert judged("fluctuates", rows("5", found))["verdict"] == verdict
    late = rows("5", found | {"S2": {50: 10, 400: 10, 1200: 11}, "S3": {50: 10, 400: 11, 1200: 10}})
    assert judged("fluctuates", late)["verdict"] == (FAILS if still > 1.05 else PARTLY)


def test_a_fluctuation_that_chance_leaves_open():
    found = {
        setting: {50: 10 * moved, 400: 10} for setting, moved in zip(SETTINGS, (1.06, 1.1, 1.1, 1.06), strict=True)
    }
    told = judged("fluctuates", by_chance(rows("5", found), 2))
    assert told["verdict"] == UNKNOWN and "S1, S2, S3, S4" in told["why"]
    assert judged("fluctuates", rows("5", alike({50: 10})))["verdict"] == UNKNOWN


@pytest.mark.parametrize(("last", "verdict"), [(9.9, HOLDS), (8.6, HOLDS), (8.4, FAILS), (10.1, FAILS), (10, FAILS)])
def test_an_overhead_that_falls_very_slightly(last, verdict):
    found = rows("6", {"S1": {0.1: 10, 1: last}, "S2": {0.1: 1, 1: 9}, "S4": {0.1: 10, 1: last}})
    assert judged("falls very slightly", found)["verdict"] == verdict
    assert judged("falls very slightly", by_chance(found, 5))["verdict"] == UNKNOWN
    for between in (90, 8.4, 10.1):
        found = rows("6", {"S1": {0.1: 10, 0.5: between, 1: last}, "S4": {0.1: 10, 0.5: between, 1: last}})
        assert judged("falls very slightly", found)["verdict"] == FAILS


@pytest.mark.parametrize(
    ("logs", "verdict"),
    [((5, 6, 7), HOLDS), ((50, 60, 70), HOLDS), ((7, 6, 5), FAILS), ((5, 9, 5), FAILS), ((5, 5, 5), FAILS)],
)
def test_a_log_that_follows_the_messages(logs, verdict):
    curve = {x: {"ks": 10 * (x + 1), "log": log} for x, log in enumerate(logs, 1)}
    assert judged("follows the same pattern", rows("3", alike(curve)))["verdict"] == verdict
    flat = {x: {"ks": 10, "log": log} for x, log in enumerate((10, 11, 10))}
    assert judged("follows the same pattern", rows("3", alike(flat)))["verdict"] == HOLDS
    flat[1]["log"] = 12
    assert judged("follows the same pattern", rows("3", alike(flat)))["verdict"] == FAILS


def test_a_log_that_hardly_moves_does_not_follow():
    """By logarithms at most three times as far as the messages, and at least a third as far."""
    for factor, verdict in ((1.27, HOLDS), (1.25, FAILS), (1.0001, FAILS), (7.9, HOLDS), (8.1, FAILS)):
        curve = {x: {"ks": 10 * 2**x, "log": 10 * factor**x} for x in (0, 0.5, 1)}  # 2 to the power 1/3 is 1.26
        assert judged("follows the same pattern", rows("3", alike(curve)))["verdict"] == verdict


def test_a_log_of_which_chance_leaves_open_whether_it_follows():
    """One run rises with the messages, and one falls."""
    found = rows("3", alike({x: {"ks": 10 * x, "log": 9 + x} for x in (1, 2, 3)}))
    falls = [row | {"seed": 2, "log": 13 - row["x"]} for row in found]
    assert judged("follows the same pattern", found + falls)["verdict"] == FAILS  # in the mean it does not move
    rises = [row | {"seed": 2, "log": 5 * row["x"] ** 3} for row in found]
    assert judged("follows the same pattern", found + rises)["verdict"] == UNKNOWN


def test_a_threshold_is_where_it_stays_crossed():
    """KS' above from the first n on: there; below at the last: nowhere."""
    above, back, twice = (
        {10: pair(10, 11), 40: pair(10, 12), 100: pair(10, 12)},
        {10: pair(10, 9), 40: pair(10, 11), 100: pair(10, 9)},
        {10: pair(10, 9), 30: pair(10, 11), 50: pair(10, 9), 100: pair(10, 11)},
    )
    found = [ks_curves.crossing(Table(rows("3", {"S1": curve})), "S1", "ks") for curve in (above, back, twice)]
    assert [value and value.mean for value in found] == [10, None, 75]
    late = {10: pair(10, 9), 40: pair(10, 9), 100: pair(10, 11)}
    assert judged("comes earlier", rows("3", {"S3": above, "S4": late}))["verdict"] == FAILS
    assert judged("comes earlier", rows("3", {"S3": late, "S4": above}))["verdict"] == HOLDS
