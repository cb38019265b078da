"""All commands on a broker with TLS, SCRAM and ACLs, with the rights that the documentation lists and no others.

``E2E_LONG=1`` runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import admin

from pipeline.audit.result import Verdict
from pipeline.jobs.answers import answers
from pipeline.jobs.audit import audit
from pipeline.jobs.collect import collect
from pipeline.jobs.replay import replay
from pipeline.jobs.submit import submit
from pipeline.settings import AnswersSettings, KafkaSettings, ReplaySettings, SubmitSettings
from tests.long_form import long_only
from tests.secured_broker import USER, secured_broker
from tests.spark.cluster.standalone import standalone
from tests.spark.support import responder
from tests.spark.support.exchange import Site
from tests.spark.support.programs import program
from tests.spark.support.site import write_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_admin: Any = admin  # the types of the library are incomplete
_type, _operation = _admin.ResourceType, _admin.AclOperation
ROWS = 200
SECONDS = 240.0
AUTHORIZER = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Yield topics of a secured broker. The tests' clients use another listener, without TLS and with all rights."""
    with secured_broker(tmp_path, AUTHORIZER) as broker:
        site = Site(broker, tmp_path)
        client = {f"KAFKA_CONFIG_{name.replace('.', '_').upper()}": value for name, value in broker.client().items()}
        site.environment |= {**client, "KAFKA_BOOTSTRAP_SERVER": broker.secured_bootstrap}
        site.kafka = KafkaSettings.load(site.environment)
        allow(site)
        yield site


def allow(site: Site) -> None:
    """Grant the rights that docs/pipeline-submit.md lists."""
    read = (_operation.READ, _operation.DESCRIBE, _operation.DESCRIBE_CONFIGS)
    write = (*read, _operation.WRITE)
    literal, prefixed = _admin.ResourcePatternType.LITERAL, _admin.ResourcePatternType.PREFIXED
    rights = [
        (_type.TOPIC, site.requests, literal, write),
        (_type.TOPIC, site.acks, literal, read),
        (_type.TOPIC, site.dead_letters, literal, read),
        (_type.TOPIC, f"{site.requests}.submitted", literal, (*write, _operation.CREATE)),
        (_type.TRANSACTIONAL_ID, "pipeline/", prefixed, (_operation.DESCRIBE, _operation.WRITE)),
    ]
    allowed = _admin.AclPermissionType.ALLOW
    bindings = [
        _admin.AclBinding(kind, name, pattern, f"User:{USER}", "*", one, allowed)
        for kind, name, pattern, operations in rights
        for one in operations
    ]
    client = _admin.AdminClient({"bootstrap.servers": site.bootstrap})
    for made in client.create_acls(bindings).values():
        made.result(30)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    long_only,
]


def test_all_commands_work_with_tls_a_password_and_the_documented_rights(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    source = write_table(tmp_path, ROWS)
    submitted = submit(spark, SubmitSettings(kafka=site.kafka, source=source, **site.common))
    assert (submitted.planned, submitted.sent) == (ROWS, ROWS)
    responder.main(site.bootstrap, site.requests, site.acks, ROWS, transactional=True)
    assert collect(spark, site.collecting()).rows == ROWS
    assert answers(spark, AnswersSettings(kafka=site.kafka, **site.common)).rows == ROWS
    assert audit(spark, site.auditing()).verdict is Verdict.PROVED
    assert replay(spark, ReplaySettings(kafka=site.kafka, **site.common)).selected == 0
    again = SubmitSettings(kafka=site.kafka, semantics="at-least-once", source=source, **{**site.common, "job": "k"})
    assert submit(spark, again).sent == ROWS


def test_all_commands_work_on_a_cluster_with_tls_a_password_and_these_rights(site: Site, tmp_path: Path) -> None:
    with standalone(tmp_path) as cluster:

        def run(command: str, *options: str) -> str:
            arguments = cluster.submit(tmp_path, command, "--job", site.job, "--lake", site.lake, *options)
            with program(arguments, {**cluster.environment, **site.environment}, tmp_path) as running:
                return running.finish(SECONDS)

        source = write_table(tmp_path, ROWS)
        run("submit", "--input", source.uri, "--id", "id", "--payload", "payload", "--parts", "4")
        responder.main(site.bootstrap, site.requests, site.acks, ROWS, transactional=True)
        run("collect", "--available-now")
        run("answers")
        assert '"verdict": "proved"' in run("audit")
