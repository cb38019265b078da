"""docker-compose.yml and the files under config/ match each other, the image and the settings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.container.dockerfile import Dockerfile
from worker.handlers.loader import load
from worker.settings import Settings
from worker.vocabulary import METRICS

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
KUBERNETES = {d["kind"]: d for d in yaml.safe_load_all((ROOT / "config/kubernetes.yaml").read_text(encoding="utf-8"))}
POD = KUBERNETES["Deployment"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
IMAGE_USER = [
    int(x) for x in Dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8")).last("USER").rest.split(":")
]
ENV_FILE = (ROOT / "config/worker.env").read_text(encoding="utf-8")
ASSIGNMENT = re.compile(r"^(#?)([A-Z][A-Z0-9_]+)=(.*)$", re.MULTILINE)


def set_in_env_file() -> dict[str, str]:
    return {name: value for hidden, name, value in ASSIGNMENT.findall(ENV_FILE) if not hidden}


def seconds(duration: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(s|m|h)", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


# ---------------------------------------------------------------- settings


def test_env_file_has_every_variable_and_no_other() -> None:
    names = [name for _, name, _ in ASSIGNMENT.findall(ENV_FILE) if not name.startswith("KAFKA_CONFIG_")]

    assert len(names) == len(set(names))
    assert set(names) == Settings.variables()


def test_env_file_shows_the_defaults() -> None:
    """The settings stay the same if the # is removed from every line."""
    everything = {n: v for _, n, v in ASSIGNMENT.findall(ENV_FILE) if not n.startswith("KAFKA_CONFIG_")}
    explicit = [(name, shown) for name, shown, _ in Settings.load(everything).describe()]
    defaults = [(name, shown) for name, shown, _ in Settings.load(set_in_env_file()).describe()]

    assert explicit == defaults


@pytest.mark.parametrize("variable", sorted(Settings.variables()))
def test_env_file_explains_each_variable(variable: str) -> None:
    """The comment above the variable has its effect, and its default or that it is required."""
    paragraph = next(p for p in ENV_FILE.split("\n\n") if re.search(rf"^#?{variable}=", p, re.MULTILINE))

    assert re.search(r"^# ", paragraph, re.MULTILINE)
    assert re.search(r"Default: \S|Required\.", paragraph)


def test_examples_of_client_properties_are_accepted(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    properties = {n: v for _, n, v in ASSIGNMENT.findall(ENV_FILE) if n.startswith("KAFKA_CONFIG_")}
    properties = {n: str(password) if n.endswith("_FILE") else v for n, v in properties.items()}

    assert len(properties) > 1
    Settings.load(set_in_env_file() | properties)


def test_kubernetes_settings_are_accepted() -> None:
    settings = KUBERNETES["ConfigMap"]["data"]

    assert settings == set_in_env_file() | SERVICES["worker"]["environment"]
    Settings.load(settings)


def test_example_handler_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    assert callable(load(set_in_env_file()["WORKER_HANDLER"], {}))


# ---------------------------------------------------------------- compose


def test_images_are_pinned() -> None:
    for name, service in SERVICES.items():
        if "build" not in service:
            assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), name


def test_worker_waits_for_broker_and_topics() -> None:
    conditions = {name: how["condition"] for name, how in SERVICES["worker"]["depends_on"].items()}

    assert conditions == {"kafka": "service_healthy", "topics": "service_completed_successfully"}
    assert SERVICES["kafka"]["healthcheck"]["test"][0] == "CMD"


def test_compose_creates_the_topics_of_the_worker() -> None:
    made = set(re.findall(r"^create (\S+)", SERVICES["topics"]["command"][0], re.MULTILINE))
    names = set_in_env_file()
    used = {names["KAFKA_REQUEST_TOPIC"], names["KAFKA_ACK_TOPIC"], names["KAFKA_REQUEST_TOPIC"] + ".dlq"}

    assert used | {SERVICES["worker"]["environment"]["KAFKA_STATE_TOPIC"]} == made


def test_the_state_topic_is_compacted() -> None:
    """In the other topics a record must not replace another one with the same key."""
    command = SERVICES["topics"]["command"][0].replace("\\\n", " ")
    compacted = re.findall(r"^create (\S+) .*cleanup\.policy=compact", command, re.MULTILINE)

    assert compacted == [SERVICES["worker"]["environment"]["KAFKA_STATE_TOPIC"]]


def test_worker_reaches_the_listener_that_the_broker_advertises() -> None:
    address = set_in_env_file()["KAFKA_BOOTSTRAP_SERVER"]

    assert f"INSIDE://{address}" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert address.split(":")[0] in SERVICES


def test_worker_can_be_scaled() -> None:
    worker = SERVICES["worker"]

    assert worker["deploy"]["replicas"] >= 2
    assert not {"ports", "container_name"} & worker.keys()


def test_worker_is_confined_and_has_time_to_drain() -> None:
    worker = SERVICES["worker"]

    assert worker["read_only"] is True
    assert worker["tmpfs"] == ["/tmp"]
    assert worker["cap_drop"] == ["ALL"]
    assert seconds(worker["stop_grace_period"]) >= 600
    assert "init" not in worker


def test_prometheus_scrapes_the_worker() -> None:
    (job,) = yaml.safe_load((ROOT / "config/prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    (found,) = job["dns_sd_configs"]

    assert found["names"] == ["worker"]
    assert str(found["port"]) in SERVICES["worker"]["expose"]


def test_mounted_and_named_files_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
    assert (ROOT / SERVICES["worker"]["env_file"]).exists()


def test_compose_file_is_valid() -> None:
    """The compose tool itself checks the schema and the references between services."""
    tool = _compose_command()
    if tool is None:
        pytest.skip("neither docker-compose nor `docker compose` is here: apt-get install docker-compose")
    result = subprocess.run(
        [*tool, "--profile", "monitoring", "-f", ROOT / "docker-compose.yml", "config"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert set(yaml.safe_load(result.stdout)["services"]) == set(SERVICES)


def _compose_command() -> list[str] | None:
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker"):
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=30, check=False)
        return ["docker", "compose"] if plugin.returncode == 0 else None
    return None


# ---------------------------------------------------------------- Kubernetes


def test_probes_request_the_right_paths() -> None:
    paths = {kind: CONTAINER[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}

    assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": 8080}]


def test_pod_is_confined_and_has_time_to_drain() -> None:
    context = POD["securityContext"]

    assert POD["terminationGracePeriodSeconds"] >= 600
    assert context["runAsNonRoot"] is True
    assert [context["runAsUser"], context["runAsGroup"]] == IMAGE_USER
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True
    assert CONTAINER["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "/tmp" in [mount["mountPath"] for mount in CONTAINER["volumeMounts"]]
    assert POD["enableServiceLinks"] is False


def test_volumes_and_labels_match() -> None:
    labels = KUBERNETES["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        KUBERNETES["Deployment"]["spec"]["selector"],
        KUBERNETES["PodDisruptionBudget"]["spec"]["selector"],
        *(spread["labelSelector"] for spread in POD["topologySpreadConstraints"]),
    ]

    assert {m["name"] for m in CONTAINER["volumeMounts"]} == {v["name"] for v in POD["volumes"]}
    assert all(selector == {"matchLabels": labels} for selector in selectors)
    assert CONTAINER["envFrom"] == [{"configMapRef": {"name": KUBERNETES["ConfigMap"]["metadata"]["name"]}}]


def test_memory_limit_is_enough_for_the_processes() -> None:
    """`auto` starts one process per CPU of the limit. The documentation counts 70 MB each, 50 for the supervisor."""
    limits = CONTAINER["resources"]["limits"]
    assert limits["memory"] == "1Gi"
    assert int(limits["cpu"]) * 70 + 50 < 1024


# ---------------------------------------------------------------- the dashboard


def _dashboard() -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads((ROOT / "config/grafana-dashboard.json").read_text(encoding="utf-8"))
    return dashboard


def _expressions() -> list[str]:
    return [target["expr"] for panel in _dashboard()["panels"] for target in panel["targets"]]


def test_dashboard_uses_only_metrics_that_exist() -> None:
    known = {f"worker_{metric.name}" for metric in METRICS}
    used = {re.sub(r"_bucket$", "", name) for text in _expressions() for name in re.findall(r"\bworker_\w+", text)}

    assert used
    assert used <= known


# Metrics for a closer look, which need not be watched.
NOT_SHOWN = {
    "record_bytes_total",
    "records_total",
    "polls_total",
    "pauses_total",
    "paused",
    "queued_bytes",
    "state",
    "state_failures_total",
    "transactions_aborted_total",
    "commits_total",
    "process_up",
    "process_cpu_seconds",
}


def test_every_metric_is_on_the_dashboard_or_left_out_on_purpose() -> None:
    shown = {name for text in _expressions() for name in re.findall(r"\bworker_(\w+?)(?:_bucket)?\{", text)}
    assert {metric.name for metric in METRICS} - shown == NOT_SHOWN


def test_dashboard_groups_by_labels_that_exist() -> None:
    labels = {metric.label for metric in METRICS} | {"le"}
    used = {label for text in _expressions() for label in re.findall(r"by \((\w+)\)", text)}

    assert used <= labels


def test_dashboard_takes_rates_of_counters_only() -> None:
    kinds = {f"worker_{metric.name}": metric.kind for metric in METRICS}
    for text in _expressions():
        for name in re.findall(r"(?:rate|increase)\((worker_\w+?)(?:_bucket)?\{", text):
            assert kinds[name] in ("counter", "histogram"), name


def test_dashboard_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in _dashboard()["panels"]:
        at = panel["gridPos"]
        area = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not area & cells, panel["title"]
        assert max(x for x, _ in area) < 24
        cells |= area


# ---------------------------------------------------------------- no names of one site


@pytest.mark.parametrize(
    "file",
    ["Dockerfile", ".dockerignore", "docker-compose.yml", "config", "scripts/container-proof", "docs/how-to"],
)
def test_deployment_files_name_no_registry_hosts(file: str) -> None:
    """The user who builds the image chooses the registry."""
    path = ROOT / file
    others = r"prometheus:9090\b|collector:4318\b|opentelemetry\.io/"
    for each in [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]:
        assert not re.search(rf"https?://(?!{others})|index-url", each.read_text(encoding="utf-8")), each
