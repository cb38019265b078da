"""truststore.py FILE: write the system's certificate authorities in Java's own format (JKS), if the system has a list.

For a Java runtime that comes as a Python package and so is not part of the system: it cannot read PEM, and its
keytool takes one certificate at a time.
"""

import hashlib
import os
import re
import ssl
import struct
import sys
from pathlib import Path

BUNDLES = (
    os.environ.get("SSL_CERT_FILE", ""),
    "/etc/ssl/certs/ca-certificates.crt",  # Debian and its family
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat and its family
    "/etc/ssl/cert.pem",  # Alpine
)
PASSWORD = "changeit"  # noqa: S105  # Java's customary one; nothing in here is secret, the format only wants one


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def jks(certificates: list[bytes]) -> bytes:
    """A JKS key store of version 2 with these certificates (DER) as trusted ones."""
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, der in enumerate(certificates):
        body += struct.pack(">I", 2) + text(f"ca-{number}") + struct.pack(">Q", 0)  # kind, alias, date
        body += text("X.509") + struct.pack(">I", len(der)) + der
    salted = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body  # the format's own integrity check
    return body + hashlib.sha1(salted, usedforsecurity=False).digest()


def main() -> None:
    bundle = next((path for path in BUNDLES if os.access(path, os.R_OK)), None)
    if bundle is None:
        return
    pem = re.findall(
        "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----",
        Path(bundle).read_text(encoding="utf-8", errors="replace"),
        re.DOTALL,
    )
    Path(sys.argv[1]).write_bytes(jks([ssl.PEM_cert_to_DER_cert(certificate) for certificate in pem]))


if __name__ == "__main__":
    main()
