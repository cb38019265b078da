"""The report of an audit: one page without other files, with the verdict at the top. No Spark, no Kafka."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser

import pytest

from pipeline.audit.evidence import Evidence, State
from pipeline.audit.result import AuditResult, Counts
from pipeline.report import page
from pipeline.report.words import duration, percent, rounded, shortened
from tests.spark.support.findings import proved

PNG = b"\x89PNG"


class Reader(HTMLParser):
    """The texts of a page, its addresses, and whether every tag that is opened is closed."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.opened: list[str] = []
        self.feed(text)
        self.close()
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in self.VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_contains_its_images_and_refers_to_no_other_file() -> None:
    text = page(proved())
    reader = Reader(text)
    assert len(reader.addresses) == 4
    for address in reader.addresses:
        kind, _, content = address.partition("base64,")
        assert kind == "data:image/png;"
        assert base64.b64decode(content).startswith(PNG)
    assert not re.search(r"https?://|@import|url\(", text)


@pytest.mark.parametrize(
    ("counts", "heading", "line"),
    [
        ({}, "PROVED", "Each of 200,000 requests has exactly one committed answer."),
        ({"missing": 7, "answered": 199_993}, "DISPROVED", "7 requests without an answer"),
        ({"open": 1}, "UNDECIDED", "1 answer in undecided transactions, or behind one"),
        ({"open": 1, "duplicate": 2}, "UNDECIDED", "so far: 2 requests answered more than once"),
    ],
)
def test_the_verdict_and_its_reason_come_before_the_counts(counts: dict[str, int], heading: str, line: str) -> None:
    texts = Reader(page(proved(**counts))).texts
    assert heading in texts
    assert line in texts
    assert texts.index(line) < texts.index("planned")


def test_lost_records_are_named_if_they_alone_prevent_a_proof() -> None:
    found = proved()
    found.loss_allowed = True
    assert "No verdict is possible: records may have been lost." in Reader(page(found)).texts


def test_data_from_topics_is_only_text_on_the_page() -> None:
    found = proved(missing=1)
    found.lists["missing"] = [{"sequence": 1, "source_id": "<script>alert(1)</script>"}]
    found.job = "<i>job"
    text = page(found)
    assert "<script" not in text
    assert "<i>job" not in text
    assert "<script>alert(1)</script>" in Reader(text).texts


def test_long_lists_are_cut_and_places_are_short() -> None:
    found = proved(duplicate=20)
    entry = {"topic": "acks", "partition": 1, "offset": 5, "place": "first"}
    found.lists["duplicate"] = [{**entry, "offset": number} for number in range(40)]
    texts = Reader(page(found)).texts
    assert "acks/1/11" in texts
    assert "acks/1/12" not in texts


def test_a_job_without_answers_has_a_page() -> None:
    reader = Reader(page(AuditResult(job="j", requests_from="manifest", counts=Counts())))
    assert reader.addresses == []
    assert "UNDECIDED" in reader.texts


@pytest.mark.parametrize("workers", [0, 1, 200])
def test_a_page_can_have_any_number_of_workers(workers: int) -> None:
    found = proved()
    found.workers = [
        {"worker": f"a-very-long-name-of-a-host-somewhere-{n}", "work_seconds": None, "cpu_seconds": None}
        for n in range(workers)
    ]
    assert len(Reader(page(found)).addresses) == (4 if workers else 3)


def test_numbers_and_texts_are_written_in_a_readable_form() -> None:
    assert [duration(s) for s in (0, 0.0000042, 0.35, 4.2, 119, 1000, 12_600, 200_000)] == [
        *("0 µs", "4.2 µs", "350 ms", "4.2 s", "119 s", "16.7 min", "3.5 h", "2.31 d"),
    ]
    assert [percent(*pair) for pair in ((0, 5), (5, 5), (199_999, 200_000), (1, 10**9), (1, 3), (1, 0))] == [
        *("0 %", "100 %", "99.99 %", "0.01 %", "33.33 %", ""),
    ]
    assert [rounded(number) for number in (1156.4, 3.14159)] == ["1,156", "3.14"]
    assert shortened("abcdefghij", 5) == "ab…ij"


def test_failed_evidence_is_on_the_page_with_its_remedy() -> None:
    found = proved()
    found.evidence.append(Evidence("acks is not compacted", State.FAILED, "cleanup.policy=<compact>", "set delete"))
    texts = " ".join(Reader(page(found)).texts)
    assert "UNDECIDED" in texts
    assert "not shown that acks is not compacted: cleanup.policy=<compact> (to do: set delete)" in texts
    assert "To do: set delete" in re.sub(r"\s+", " ", texts)
