"""Settings among other variables, and secrets in unusual places."""

from __future__ import annotations

import json

from tests.unit.environment import load


def test_a_password_with_a_slash_is_masked() -> None:
    url = "postgresql://me:tr0ub/4dor@host/db"
    settings = load(
        WORKER_OFFSET_STORE="worker.stores.sql:store",
        WORKER_STORE_URL=url,
        WORKER_HANDLER_KWARGS=json.dumps({"db": url}),
    )
    described = {name: value for name, value, _ in settings.describe()}
    assert "4dor" not in described["WORKER_STORE_URL"]
    assert "4dor" not in described["WORKER_HANDLER_KWARGS"]


def test_variables_that_kubernetes_sets_for_a_service_are_ignored() -> None:
    load(
        KAFKA_CONFIG_SERVICE_HOST="10.0.0.1",
        KAFKA_CONFIG_SERVICE_PORT="80",
        KAFKA_CONFIG_PORT="tcp://10.0.0.1:80",
        KAFKA_CONFIG_PORT_80_TCP="tcp://10.0.0.1:80",
        KAFKA_CONFIG_PORT_80_TCP_PROTO="tcp",
    )
    settings = load(KAFKA_CONFIG_SERVICE_HOST="10.0.0.1")
    assert settings.properties == {}
