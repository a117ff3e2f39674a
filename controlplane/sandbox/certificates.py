"""The sandbox's own TLS certificate.

kubectl sends a token over TLS only, so the API is served as a real one is: a certificate for
loopback, signed by an authority that the kubeconfig names. The authority's key isn't kept.
"""

from __future__ import annotations

import ipaddress
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.sandbox.kubeconfig import write_private

_DAYS = 3650
_RENEW_DAYS = 30


def ensure(folder: Path, host: str) -> tuple[Path, Path, Path]:
    """Paths of authority, certificate and key in `folder`; made anew when they don't serve."""
    authority, certificate, key = (
        folder / name for name in ("ca.crt", "apiserver.crt", "apiserver.key")
    )
    if not (authority.exists() and key.exists() and _serves(certificate, host)):
        ca_pem, cert_pem, key_pem = _make(host)
        for path, text in ((authority, ca_pem), (key, key_pem), (certificate, cert_pem)):
            write_private(path, text)
    return authority, certificate, key


def _names(host: str) -> list[x509.GeneralName]:
    names = {"localhost", socket.gethostname()}
    addresses = {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")}
    try:
        addresses.add(ipaddress.ip_address(host))
    except ValueError:
        names.add(host)
    return [
        *(x509.DNSName(name) for name in sorted(names)),
        *(x509.IPAddress(address) for address in sorted(addresses, key=str)),
    ]


def _serves(certificate: Path, host: str) -> bool:
    """Whether a kept certificate is still good for `host`."""
    try:
        kept = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = kept.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    fresh = kept.not_valid_after_utc > datetime.now(UTC) + timedelta(days=_RENEW_DAYS)
    return fresh and set(_names(host)) <= set(names)


def _builder(subject: str, issuer: str, public: ec.EllipticCurvePublicKey):
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _make(host: str) -> tuple[str, str, str]:
    """PEM texts of a new authority, a certificate that it signed, and that one's key."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = "concertina-sandbox-ca"
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    authority = (
        _builder(issuer, issuer, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    certificate = (
        _builder("concertina-sandbox", issuer, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .add_extension(identifier, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (
        authority.public_bytes(pem).decode(),
        certificate.public_bytes(pem).decode(),
        private.decode(),
    )
