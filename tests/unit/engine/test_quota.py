"""Quotas of queues and cohorts: Kueue's arithmetic, by the number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.policy import PolicySet
from controlplane.engine.queues import CohortPolicy, QueuePolicy, Quota
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.types import ReclaimPolicy

GPU = "nvidia.com/gpu"
NEURON = "aws.amazon.com/neuron"


def queue(
    name: str,
    nominal: int,
    borrowing: int | None = None,
    lending: int | None = None,
    *,
    cohort: str = "team",
    weight: float = 1.0,
    **more: Quota,
) -> QueuePolicy:
    quotas = {GPU: Quota(nominal, borrowing, lending)}
    if "neuron" in more:
        quotas[NEURON] = more["neuron"]
    return QueuePolicy(name, cohort=cohort, weight=weight, quotas=quotas)


def policies(*queues: QueuePolicy, cohort: int | None = None) -> PolicySet:
    cohorts = {"team": CohortPolicy("team", {GPU: Quota(cohort)})} if cohort is not None else {}
    return PolicySet(queues={one.name: one for one in queues}, cohorts=cohorts)


def ledger(*queues: QueuePolicy, cohort: int | None = None, **held: int) -> QuotaLedger:
    return QuotaLedger.of(
        policies(*queues, cohort=cohort), {name: {GPU: n} for name, n in held.items()}
    )


@pytest.mark.parametrize(
    ("case", "book", "want"),
    [
        ("alone: its own", ledger(queue("a", 10, cohort=""), a=4), 6),
        ("alone, used up", ledger(queue("a", 10, cohort=""), a=10), 0),
        ("alone, lowered below what is used", ledger(queue("a", 10, cohort=""), a=12), 0),
        ("a limit means nothing without a cohort", ledger(queue("a", 10, 5, 2, cohort="")), 10),
        ("all of the cohort", ledger(queue("a", 10), queue("b", 20)), 30),
        ("what others use is gone", ledger(queue("a", 10), queue("b", 20), b=15), 15),
        ("what others borrow of it too", ledger(queue("a", 10), queue("b", 20), b=25), 5),
        ("borrowing limit", ledger(queue("a", 10, 5), queue("b", 20)), 15),
        ("borrowing limit, partly used", ledger(queue("a", 10, 5), queue("b", 20), a=12), 3),
        ("borrowing limit 0", ledger(queue("a", 10, 0), queue("b", 20)), 10),
        ("limit above what is left", ledger(queue("a", 10, 5), queue("b", 20), b=18), 12),
        ("lending limit of another", ledger(queue("a", 10), queue("b", 20, None, 5)), 15),
        ("what isn't lent stays", ledger(queue("a", 10), queue("b", 20, None, 5), b=15), 15),
        ("beyond that it counts", ledger(queue("a", 10), queue("b", 20, None, 5), b=17), 13),
        ("its own lending limit keeps", ledger(queue("a", 10, None, 4), queue("b", 20), b=24), 6),
        ("own limits and the cohort's", ledger(queue("a", 10, 3, 4), queue("b", 20)), 13),
        ("both limits, used", ledger(queue("a", 10, 3, 4), queue("b", 20), a=8, b=5), 5),
        ("both limits, borrowing", ledger(queue("a", 10, 3, 4), queue("b", 20), a=12), 1),
        ("the cohort's own quota", ledger(queue("a", 0), queue("b", 0), cohort=8), 8),
        ("shared with another", ledger(queue("a", 0), queue("b", 0), cohort=8, b=5), 3),
        ("over-admitted cohort", ledger(queue("a", 10), queue("b", 10), b=25), 0),
    ],
)
def test_available(case, book, want):
    assert book.available("a", GPU) == want, case


def test_what_has_no_quota_is_not_limited_and_not_counted():
    book = ledger(queue("a", 10), queue("b", 20), a=30)
    assert book.available("c", GPU) is None
    assert book.nominal_left("c", GPU) is None
    assert book.available("a", NEURON) is None
    assert book.take("c", {GPU: 1000})
    assert book.take("a", {NEURON: 1000})
    assert (book.used("c", GPU), book.used("a", NEURON), book.used("a", GPU)) == (0, 0, 30)
    assert book.share("c") == (0.0, "")
    assert (book.borrowed("c", GPU), book.lent_out("c", GPU), book.borrowers("c", GPU)) == (
        0,
        0,
        [],
    )


@pytest.mark.parametrize(
    ("used", "left", "borrowed"), [(0, 10, 0), (4, 6, 0), (10, 0, 0), (13, 0, 3)]
)
def test_nominal_left_and_borrowed(used, left, borrowed):
    book = ledger(queue("a", 10), queue("b", 20), a=used)
    assert (book.nominal_left("a", GPU), book.borrowed("a", GPU)) == (left, borrowed)


def test_take_is_all_or_nothing_over_resources():
    one = queue("a", 10, cohort="", neuron=Quota(4))
    book = ledger(one)
    assert not book.take("a", {GPU: 10, NEURON: 5})
    assert (book.used("a", GPU), book.used("a", NEURON), book.mark()) == (0, 0, 0)
    assert book.take("a", {GPU: 10, NEURON: 4, "amd.com/gpu": 99})
    assert (book.used("a", GPU), book.used("a", NEURON)) == (10, 4)


def test_marks_undo_takes_and_gives():
    book = ledger(queue("a", 10, None, 4), queue("b", 20), a=3)
    mark = book.mark()
    assert book.take("a", {GPU: 15})
    book.give("a", {GPU: 2})
    assert (book.used("a", GPU), book.available("b", GPU)) == (16, 14)
    book.rollback(mark)
    assert (book.used("a", GPU), book.available("b", GPU)) == (3, 24)


@pytest.mark.parametrize(
    ("amounts", "want"),
    [
        ({GPU: 4}, "queue a uses 3: it can't give back 4"),
        ({GPU: -1}, "nvidia.com/gpu is -1: give 0 or more"),
    ],
)
def test_giving_back_what_it_has_not_is_refused(amounts, want):
    book = ledger(queue("a", 10), a=3)
    with pytest.raises(ValueError, match=want):
        book.give("a", amounts)
    assert book.used("a", GPU) == 3


@pytest.mark.parametrize(
    ("case", "book", "lent", "want"),
    [
        ("nothing lent", ledger(queue("a", 10), queue("b", 5), b=5), 0, []),
        ("lent", ledger(queue("a", 10), queue("b", 5), b=12), 7, [("b", 7)]),
        (
            "from the cohort's own first",
            ledger(queue("a", 10), queue("b", 5), cohort=4, b=12),
            3,
            [("b", 7)],
        ),
        (
            "the furthest above its share first",
            ledger(queue("a", 20), queue("b", 5), queue("c", 0), b=13, c=9),
            17,
            [("c", 9), ("b", 8)],
        ),
        (
            "by weight",
            ledger(queue("a", 20), queue("b", 5), queue("c", 0, weight=2.0), b=13, c=9),
            17,
            [("b", 8), ("c", 9)],
        ),
        ("equal: by name", ledger(queue("a", 9), queue("c", 0), queue("b", 0), b=2, c=2), 4,
         [("b", 2), ("c", 2)]),
        ("a borrower takes nothing back", ledger(queue("a", 5), queue("b", 0), a=6, b=2), 0, []),
        ("of another cohort", ledger(queue("a", 10), queue("b", 5, cohort="x"), b=12), 0, []),
        (
            "over-admitted: until all of its own is there again",
            ledger(queue("a", 10), queue("b", 10), b=25),
            15,
            [("b", 15)],
        ),
        ("what isn't lent needs nobody", ledger(queue("a", 10, None, 0), queue("b", 5), b=5), 0,
         []),
    ],
)  # fmt: skip
def test_borrowers(case, book, lent, want):
    assert book.lent_out("a", GPU) == lent, case
    assert book.borrowers("a", GPU) == want, case


def test_a_dominant_share_counts_every_resource():
    b = queue("b", 0, neuron=Quota(0))
    c = queue("c", 0)
    book = QuotaLedger.of(
        policies(queue("a", 20, neuron=Quota(10)), b, c),
        {"b": {GPU: 2, NEURON: 5}, "c": {GPU: 6}},
    )
    assert book.share("b") == (500.0, NEURON)
    assert book.share("c") == (300.0, GPU)
    assert book.share("a") == (0.0, "")
    assert book.borrowers("a", GPU) == [("b", 2), ("c", 6)]


class TestFieldScenarios:
    def test_never_more_than_granted_when_the_quota_is_full(self):
        """kueue 11977: quota full; a job asks to grow."""
        book = ledger(queue("a", 16, cohort=""), a=16)
        assert not book.take("a", {GPU: 1})
        assert book.used("a", GPU) == 16

    def test_two_queues_in_one_cycle_share_the_same_eight_once(self):
        """kueue 14570."""
        book = ledger(queue("a", 0), queue("b", 0), queue("owner", 8))
        assert book.take("a", {GPU: 8})
        assert not book.take("b", {GPU: 8})
        assert (book.used("a", GPU), book.used("b", GPU)) == (8, 0)

    def test_only_what_is_borrowed_is_given_back(self):
        """kueue 840: 40 of its own, 10 borrowed; the owner wants its 10 back, and gets no more."""
        book = ledger(queue("owner", 10), queue("b", 40), b=50)
        assert book.borrowers("owner", GPU) == [("b", 10)]
        book.give("b", {GPU: 10})
        assert book.borrowers("owner", GPU) == []
        assert book.available("owner", GPU) == 10

    @pytest.mark.parametrize(("asks", "want"), [("a", (250, 0, 50)), ("b", (150, 150, 0))])
    def test_two_borrowers_settle(self, asks, want):
        """kueue 3779: A and B have 150 nominal each, best-effort 0; A holds 250, best-effort 50.
        A wants 50 more: it borrows itself, so nobody gives. B gets its own back, and afterwards
        nothing moves again though all three still ask."""
        book = ledger(
            queue("a", 150), queue("b", 150), queue("best-effort", 0),
            **{"a": 250, "best-effort": 50},
        )  # fmt: skip
        for name in (asks, *("a", "b" if asks == "b" else "a", "best-effort") * 20):
            _reclaim(book, name, 50)
        assert tuple(book.used(name, GPU) for name in ("a", "b", "best-effort")) == want

    def test_quota_does_not_protect_and_does_not_hide(self):
        """KAI 2064: quotas of 8 each on 8 accelerators; low holds all 8 within its own, high
        waits. The quota allows high its 8, and says that low holds nothing of it: whether low
        gives way is for the preemption policy of high's class, not for a silent wait."""
        book = ledger(queue("high", 8), queue("low", 8), low=8)
        assert book.nominal_left("high", GPU) == 8
        assert book.take("high", {GPU: 8})
        assert book.borrowers("high", GPU) == []
        assert PolicySet().reclaim_policy("high") is ReclaimPolicy.RECLAIM_ELASTIC


def test_the_example_of_the_guide():
    """docs/guides/administrator.md, Queues and quotas."""
    book = ledger(
        queue("research", 32, None, 24),
        queue("product", 24, 8),
        queue("best-effort", 0, weight=0.5),
        cohort=8,
    )
    assert {name: book.available(name, GPU) for name in ("research", "product", "best-effort")} == {
        "research": 64, "product": 32, "best-effort": 56,
    }  # fmt: skip
    assert book.take("research", {GPU: 16})
    assert book.available("best-effort", GPU) == 48
    assert book.take("best-effort", {GPU: 40})
    assert book.available("research", GPU) == 8
    assert (book.nominal_left("research", GPU), book.lent_out("research", GPU)) == (16, 8)
    assert book.borrowers("research", GPU) == [("best-effort", 40)]
    book.give("best-effort", {GPU: 8})
    assert book.take("research", {GPU: 16})
    assert (book.available("product", GPU), book.lent_out("product", GPU)) == (0, 24)
    assert book.borrowers("product", GPU) == [("best-effort", 32)]
    book.give("best-effort", {GPU: 24})
    assert book.take("product", {GPU: 24})
    assert book.available("product", GPU) == 0
    assert book.borrowers("product", GPU) == []
    assert book.used("best-effort", GPU) == 8


def _reclaim(book: QuotaLedger, name: str, amount: int) -> None:
    """Take up to `amount`; what the queue's own nominal quota lacks comes from the borrowers."""
    wanted = min(amount, book.nominal_left(name, GPU) or 0)
    while wanted > (book.available(name, GPU) or 0):
        other, borrowed = book.borrowers(name, GPU)[0]
        book.give(other, {GPU: min(borrowed, wanted - (book.available(name, GPU) or 0))})
    book.take(name, {GPU: wanted or amount})


# -- invariants ------------------------------------------------------------------------------

LIMIT = st.none() | st.integers(0, 20)
NAMES = ("a", "b", "c", "d")


@st.composite
def cohorts(draw) -> PolicySet:
    queues = []
    for name in draw(st.permutations(NAMES)):
        nominal = draw(st.integers(0, 20))
        lending = draw(st.none() | st.integers(0, nominal))
        queues.append(queue(name, nominal, draw(LIMIT), lending))
    return policies(*queues, cohort=draw(st.none() | st.integers(0, 10)))


MOVES = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(-20, 30)), max_size=12)


def _play(book: QuotaLedger, moves: list[tuple[str, int]]) -> None:
    for name, amount in moves:
        if amount >= 0:
            book.take(name, {GPU: amount})
        else:
            book.give(name, {GPU: min(-amount, book.used(name, GPU))})


@given(cohorts(), MOVES)
def test_never_more_than_there_is(rules, moves):
    book = QuotaLedger.of(rules, {})
    own = rules.cohorts["team"].quotas[GPU].nominal if rules.cohorts else 0
    for i in range(len(moves)):
        _play(book, moves[i : i + 1])
        used = {name: book.used(name, GPU) for name in NAMES}
        quotas = {name: rules.queues[name].quotas[GPU] for name in NAMES}
        assert sum(used.values()) <= own + sum(quota.nominal for quota in quotas.values())
        for name, quota in quotas.items():
            if quota.borrowing_limit is not None:
                assert used[name] <= quota.nominal + quota.borrowing_limit
            others = sum(used.values()) - used[name]
            rest = own + sum(q.nominal for n, q in quotas.items() if n != name)
            lent = quota.nominal if quota.lending_limit is None else quota.lending_limit
            assert others <= rest + lent


@given(cohorts(), MOVES, st.sampled_from(NAMES), st.integers(0, 40))
def test_available_is_what_can_be_taken(rules, moves, name, amount):
    book = QuotaLedger.of(rules, {})
    _play(book, moves)
    available = book.available(name, GPU)
    before = _state(book)
    assert book.take(name, {GPU: amount}) == (amount <= available)
    if amount <= available:
        assert book.available(name, GPU) == available - amount
        book.give(name, {GPU: amount})
    assert _state(book) == before


@given(cohorts(), MOVES, MOVES)
def test_rollback_restores(rules, first, then):
    book = QuotaLedger.of(rules, {})
    _play(book, first)
    before, mark = _state(book), book.mark()
    _play(book, then)
    book.rollback(mark)
    assert _state(book) == before


@given(cohorts(), st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES}))
def test_order_of_input_makes_no_difference(rules, held):
    backwards = PolicySet(
        queues=dict(reversed(rules.queues.items())), cohorts=dict(reversed(rules.cohorts.items()))
    )
    amounts = {name: {GPU: n} for name, n in held.items()}
    one = QuotaLedger.of(rules, amounts)
    other = QuotaLedger.of(backwards, dict(reversed(amounts.items())))
    assert _state(one) == _state(other)


@given(cohorts(), st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES}))
def test_borrowers_can_give_back_all_that_is_lent_out(rules, held):
    """Even where more is granted than there is: once they have given, the queue has its own."""
    book = QuotaLedger.of(rules, {name: {GPU: n} for name, n in held.items()})
    for name in NAMES:
        for other, borrowed in book.borrowers(name, GPU):
            book.give(other, {GPU: borrowed})
        assert book.lent_out(name, GPU) == 0
        assert book.available(name, GPU) >= book.nominal_left(name, GPU)


def _state(book: QuotaLedger) -> list[object]:
    return [
        (
            book.used(name, GPU),
            book.available(name, GPU),
            book.lent_out(name, GPU),
            book.borrowers(name, GPU),
            book.share(name),
        )
        for name in NAMES
    ]
