"""Follow-up requests of a handler in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.isolation.rig import names
from worker.core.model import FollowUp

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.isolation.rig import Rig


def test_follow_up_requests_come_only_with_a_good_outcome(make: Callable[..., Rig]) -> None:
    good, failed, other = make().run("send", "send fail", "ok")
    assert names([good, failed, other]) == ["OK", "FAILED ValueError", "OK"]
    assert good.sent == (FollowUp("others", b"a", "one"), FollowUp(None, None, "two"))
    assert (good.result, failed.sent, other.sent) == (b"sent", (), ())


def test_follow_up_requests_above_the_size_of_a_report_are_rejected(make: Callable[..., Rig]) -> None:
    outcome, behind = make(handler="sending:flood").run("", "ok")
    assert names([outcome, behind]) == ["REJECTED OversizedResult", "OK"]
    assert outcome.sent == ()
