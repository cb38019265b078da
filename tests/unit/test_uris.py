"""Which texts are URIs, with one slash or two, and which are paths. No Spark here."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.uris import absolute, scheme_of


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("file:/data/lake", "file"),
        ("file:///data/lake", "file"),
        ("S3A:/bucket/lake", "s3a"),
        ("s3a://bucket/lake", "s3a"),
        ("hdfs:/lake", "hdfs"),
        ("jdbc:postgresql://host/db", "jdbc"),
        ("/data/lake", ""),
        ("data/a:b", ""),
        ("lakehouse.jobs", ""),
    ],
)
def test_a_scheme_is_followed_by_a_colon(text: str, scheme: str) -> None:
    assert scheme_of(text) == scheme


@pytest.mark.parametrize("uri", ["file:/data/lake", "hdfs:/x", "s3a://bucket/x", "jdbc:postgresql://host/db"])
def test_a_uri_is_unchanged_except_for_a_final_slash(uri: str) -> None:
    assert absolute(uri) == absolute(f"{uri}/") == uri


def test_a_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("out/") == f"{tmp_path}/out"
    assert absolute("~/out") == f"{Path.home()}/out"
    assert absolute("/") == "/"
