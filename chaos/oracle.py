"""The verdict: all invariants applied to the evidence of a run. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.answer_invariants import answered_once, answers_belong, dead_letters_belong, effects_once, nothing_lost
from chaos.feature_invariants import cancelled_in_time, checkpoints_kept, client_resolves, follow_ups_belong
from chaos.pipeline_invariants import audit_agrees, calls_end_well, collected_once, table_submitted
from chaos.process_invariants import all_committed, exits_well, expectations_met, memory_flat
from chaos.start_invariants import attempts_limited, handlers_in_order, order_kept, starts_belong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.evidence import Evidence
    from chaos.violation import Violation

INVARIANTS: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    *(nothing_lost, answered_once, answers_belong, dead_letters_belong, effects_once),
    *(starts_belong, attempts_limited, order_kept, handlers_in_order),
    *(checkpoints_kept, cancelled_in_time, follow_ups_belong, client_resolves),
    *(table_submitted, calls_end_well, collected_once, audit_agrees),
    *(all_committed, exits_well, expectations_met, memory_flat),
)


def judge(evidence: Evidence) -> list[Violation]:
    """Return every violation of every invariant."""
    return [violation for invariant in INVARIANTS for violation in invariant(evidence)]
