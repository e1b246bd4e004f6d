"""Tables cut by pages: what the set counts, and that structure recovery holds on it."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.bench_split_tables import naive_tables, recovered_tables
from benchmarks.split_tables import cases, has_wrong_merge, row_recall, teds

HEADER = ["Part", "Quantity"]


def test_the_scores_see_lost_rows_and_wrong_merges() -> None:
    first, second = [HEADER, ["Pump", "2"]], [["Fan", "3"]]
    assert row_recall([first, second], [first]) == pytest.approx(2 / 3)
    assert has_wrong_merge([first, second], [[*first, *second]])
    assert not has_wrong_merge([first, second], [first, second])
    assert teds(first, first) == 1.0
    # 7 nodes against 4: a row of two cells is missing
    assert teds(first, [HEADER]) == pytest.approx(1 - 3 / 7)
    # one of four cells wholly different
    assert teds(first, [HEADER, ["Pump", "9"]]) == pytest.approx(1 - 1 / 7)


@pytest.mark.parametrize("seed", [0, 1])
def test_cut_tables_are_joined_and_others_stay_apart(seed: int) -> None:
    made = cases(seed)
    assert len(made) == 60
    read = [recovered_tables(case) for case in made]
    assert {case.kind for case, tables in zip(made, read, strict=True) if row_recall(case.truth, tables) < 1} == set()
    assert {case.kind for case, tables in zip(made, read, strict=True) if has_wrong_merge(case.truth, tables)} == set()
    pairs = [(case.truth[0], tables[0]) for case, tables in zip(made, read, strict=True)]
    assert sum(teds(truth, table) for truth, table in pairs) / len(pairs) >= 0.95


def test_the_set_is_not_won_by_joining_all_of_one_width() -> None:
    wrong = Counter(case.kind for case in cases(0) if has_wrong_merge(case.truth, naive_tables(case)))
    assert wrong == {
        "other caption": 2,
        "other header, marked": 3,
        "other header, plain": 3,
        "other values": 2,
    }
