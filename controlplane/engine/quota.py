"""Quotas: what each queue uses, may still use, and borrows.

The arithmetic is Kueue's (pkg/cache/scheduler/resource_node.go; KEP-79, Hierarchical Cohorts) for
cohorts of one level:

- a queue's **local** quota is what its lending limit keeps from the others (nominal - lending
  limit; nothing without a limit: all may be lent);
- a cohort's **total** is its own quota and what its queues may lend (nominal - local); its **use**
  is what each queue uses beyond its local quota;
- a queue may take what is left of its local quota, and what is left of the cohort's total, but of
  the cohort no more than what it put in and its borrowing limit.

A resource that a queue has no quota for isn't limited there, and doesn't count in its cohort.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.fairness import weighted_share
from controlplane.engine.policy import PolicySet
from controlplane.engine.queues import Quota


@dataclass(slots=True, eq=False)
class _Pool:
    """One resource of a cohort."""

    total: int
    used: int = 0
    members: list[_Account] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Account:
    """One resource of a queue."""

    queue: str
    nominal: int
    local: int
    borrowing_limit: int | None
    pool: _Pool | None
    used: int = 0

    def available(self) -> int:
        """Negative while more is used than there is (a quota was lowered)."""
        if self.pool is None:
            return self.nominal - self.used
        shared = self.pool.total - self.pool.used
        if self.borrowing_limit is not None:
            in_pool = max(0, self.used - self.local)
            shared = min(shared, self.nominal - self.local - in_pool + self.borrowing_limit)
        return max(0, self.local - self.used) + shared

    def change(self, amount: int) -> None:
        before = max(0, self.used - self.local)
        self.used += amount
        if self.pool is not None:
            self.pool.used += max(0, self.used - self.local) - before

    @property
    def borrowed(self) -> int:
        return max(0, self.used - self.nominal)


class QuotaLedger:
    """What each queue uses, may still use, and borrows, by resource. Mutable, for one cycle, with
    marks to go back to. A queue that isn't known, or has no quota for a resource, isn't limited."""

    def __init__(self, policies: PolicySet) -> None:
        self._weights = {name: queue.weight for name, queue in policies.queues.items()}
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._resources: dict[str, tuple[str, ...]] = {}
        self._log: list[tuple[_Account, int]] = []
        pools: dict[tuple[str, str], _Pool] = {}
        for name, cohort in policies.cohorts.items():
            for resource, quota in cohort.quotas.items():
                pools[name, resource] = _Pool(quota.nominal)
        for name in sorted(policies.queues):
            queue = policies.queues[name]
            self._resources[name] = tuple(sorted(queue.quotas))
            for resource, quota in queue.quotas.items():
                pool = None
                if queue.cohort:
                    pool = pools.setdefault((queue.cohort, resource), _Pool(0))
                self._accounts[name, resource] = _open(name, quota, pool)

    @classmethod
    def of(cls, policies: PolicySet, held: Mapping[str, Mapping[str, int]]) -> QuotaLedger:
        """The ledger of what is granted now: `held` is queue -> resource -> accelerators of managed
        workloads. It may be more than the quotas allow (they were lowered): it isn't refused."""
        ledger = cls(policies)
        for queue, amounts in held.items():
            for resource, amount in amounts.items():
                account = ledger._accounts.get((queue, resource))
                if account is not None:
                    account.change(amount)
        return ledger

    # -- what there is -----------------------------------------------------------------------

    def available(self, queue: str, resource: str) -> int | None:
        """Accelerators that the queue may take now: what is left of its own, and what it may
        borrow. 0 also while more is used than there is; None: not limited."""
        account = self._accounts.get((queue, resource))
        return None if account is None else max(0, account.available())

    def nominal_left(self, queue: str, resource: str) -> int | None:
        """Accelerators of its own nominal quota that the queue doesn't use, whether they are lent
        out or not; None: not limited."""
        account = self._accounts.get((queue, resource))
        return None if account is None else max(0, account.nominal - account.used)

    def used(self, queue: str, resource: str) -> int:
        """Accelerators that the queue uses; 0 where it isn't limited (not counted)."""
        account = self._accounts.get((queue, resource))
        return 0 if account is None else account.used

    def borrowed(self, queue: str, resource: str) -> int:
        """Accelerators that the queue uses beyond its nominal quota."""
        account = self._accounts.get((queue, resource))
        return 0 if account is None else account.borrowed

    def lent_out(self, queue: str, resource: str) -> int:
        """Accelerators that others have to give back until all that is left of the queue's
        nominal quota is available to it."""
        account = self._accounts.get((queue, resource))
        if account is None or account.used >= account.nominal:
            return 0
        return max(0, account.nominal - account.used - account.available())

    def borrowers(self, queue: str, resource: str) -> list[tuple[str, int]]:
        """(queue, accelerators beyond its nominal quota) of those that hold what is this queue's
        own, the one with the highest weighted share first: Kueue's reclaimWithinCohort under fair
        sharing. Empty while nothing of its own is lent out: a queue that borrows itself takes
        nothing back, so two borrowers never take from each other for ever (kueue 3779).

        Taking more of one than it borrows would go into its own quota: don't.
        """
        account = self._accounts.get((queue, resource))
        if account is None or account.pool is None or not self.lent_out(queue, resource):
            return []
        found = [one for one in account.pool.members if one.borrowed and one is not account]
        found.sort(key=lambda one: (-self.share(one.queue)[0], -one.borrowed, one.queue))
        return [(one.queue, one.borrowed) for one in found]

    def share(self, queue: str) -> tuple[float, str]:
        """(weighted share, dominant resource) of a queue, in thousandths of what its cohort can
        lend; (0.0, "") for one that borrows nothing, isn't known or has no cohort."""
        borrowed: dict[str, int] = {}
        lendable: dict[str, int] = {}
        for resource in self._resources.get(queue, ()):
            account = self._accounts[queue, resource]
            if account.pool is not None and account.borrowed:
                borrowed[resource], lendable[resource] = account.borrowed, account.pool.total
        return weighted_share(borrowed, lendable, self._weights[queue]) if borrowed else (0.0, "")

    # -- taking and giving -------------------------------------------------------------------

    def take(self, queue: str, amounts: Mapping[str, int]) -> bool:
        """Count resource -> accelerators to the queue; False, and nothing changed, if any of them
        is more than it may take."""
        wanted = self._entries(queue, amounts)
        for account, amount in wanted:
            if amount > max(0, account.available()):
                return False
        for account, amount in wanted:
            self._change(account, amount)
        return True

    def give(self, queue: str, amounts: Mapping[str, int]) -> None:
        """The queue gives back resource -> accelerators. Raises ValueError, and changes nothing, if
        that is more than it uses."""
        wanted = self._entries(queue, amounts)
        for account, amount in wanted:
            if amount > account.used:
                raise ValueError(f"queue {queue} uses {account.used}: it can't give back {amount}")
        for account, amount in wanted:
            self._change(account, -amount)

    def mark(self) -> int:
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark."""
        while len(self._log) > mark:
            account, amount = self._log.pop()
            account.change(-amount)

    # -- inside ------------------------------------------------------------------------------

    def _entries(self, queue: str, amounts: Mapping[str, int]) -> list[tuple[_Account, int]]:
        found = []
        for resource, amount in amounts.items():
            if amount < 0:
                raise ValueError(f"{resource} is {amount}: give 0 or more")
            account = self._accounts.get((queue, resource))
            if account is not None and amount:
                found.append((account, amount))
        return found

    def _change(self, account: _Account, amount: int) -> None:
        account.change(amount)
        self._log.append((account, amount))


def _open(queue: str, quota: Quota, pool: _Pool | None) -> _Account:
    lending = quota.lending_limit
    local = 0 if lending is None else max(0, quota.nominal - lending)
    account = _Account(queue, quota.nominal, local, quota.borrowing_limit, pool)
    if pool is not None:
        pool.total += quota.nominal - local
        pool.members.append(account)
    return account
