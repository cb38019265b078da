"""The image's HEALTHCHECK: exit 0 when ``/livez`` answers 200, or when the endpoints are switched off.

Standard library only, and no proxy: ``urllib`` would send a request for 127.0.0.1 to the one in the environment.
"""

# ruff: noqa: INP001 - a single file, copied into the image

from __future__ import annotations

import http.client
import os
import sys
from pathlib import Path


def port() -> int:
    """WORKER_HTTP_PORT, or what stands in the file that WORKER_HTTP_PORT_FILE names, or the default."""
    named = os.environ.get("WORKER_HTTP_PORT_FILE")
    text = Path(named).read_text(encoding="utf-8") if named else os.environ.get("WORKER_HTTP_PORT")
    return int(text.strip()) if text and text.strip() else 8080


def main() -> int:
    """Ask once; the container engine repeats and counts."""
    number = port()
    if number == 0:
        return 0
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=4)
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        print(f"/livez on port {number}: {error}")  # noqa: T201 - the engine keeps it as the check's output
        return 1
    finally:
        connection.close()
    print(f"/livez on port {number}: {status}")  # noqa: T201
    return 0 if status == http.HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main())
