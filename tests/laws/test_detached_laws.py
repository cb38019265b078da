"""The laws of partitions also hold if running tasks are detached. See ``test_partition_laws``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.laws.detaching_model import DetachingModel
from tests.laws.test_partition_laws import PartitionLaws, dispatch_rules, endings, numbers

if TYPE_CHECKING:
    from worker.core.dispatch import DispatchRule
    from worker.core.model import Verdict


class DetachedLaws(PartitionLaws):
    """Tasks outlive the leases of their partitions. The next owner settles them by their marks, or takes them over."""

    make_model = DetachingModel
    model: DetachingModel

    @rule(number=numbers, dispatch=dispatch_rules, comes_back=st.booleans())
    def move(self, number: int, dispatch: DispatchRule, comes_back: bool) -> None:
        """A partition moves while a task runs, which may be a detached task of this process. It may come back."""
        self.model.write(number, 1, b"a")
        self.model.deliver(number, 2)
        self.commit(dispatch)
        if self.model.running is None and self.model.submitted:
            self.model.look()
        if self.model.running is not None:
            number = self.model.running.record.partition.number
        self.model.revoke(number)
        self.model.serve_held()
        self.model.now += 1
        self.model.tick()
        if self.model.sent is not None:
            self.model.arrive(applied=True)
        self.model.serve_held()
        if comes_back:
            self.model.assign(number)
            self.model.deliver(number, 3)

    @rule(detaching=st.booleans())
    def allow(self, detaching: bool) -> None:
        """Choose whether tasks may be detached from now on."""
        self.model.detaching = detaching

    @rule(number=numbers, wrong=st.sampled_from([False, False, True]))
    def watch(self, number: int, wrong: bool) -> None:
        self.model.watch(number, wrong=wrong)

    @precondition(lambda self: self.model.running is not None)
    @rule(number=numbers, verdict=endings)
    def end_elsewhere(self, number: int, verdict: Verdict) -> None:
        """The task ends, and the owner of a partition checks its detached tasks."""
        self.model.finish(verdict)
        while self.model.inbox:
            self.model.collect(after=1)
        self.model.watch(number)

    @invariant()
    def a_holder_answers_once(self) -> None:
        assert self.model.twice == []


class DetachedKeyLaws(DetachedLaws):
    """Tasks of a key wait for a detached task of the same key."""

    ordering = "key"


class DetachedUnorderedLaws(DetachedLaws):
    """No task waits for a detached task."""

    ordering = "unordered"


TestDetachedLaws = DetachedLaws.TestCase
TestDetachedKeyLaws = DetachedKeyLaws.TestCase
TestDetachedUnorderedLaws = DetachedUnorderedLaws.TestCase
TestDetachedLaws.settings = settings(stateful_step_count=40)
TestDetachedKeyLaws.settings = TestDetachedUnorderedLaws.settings = TestDetachedLaws.settings
