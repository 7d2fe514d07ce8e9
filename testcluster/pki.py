"""The cluster's certificate authority, the certificates it signs, and kubeconfig files."""

import base64
import datetime
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from testcluster.layout import API_PORT, FIRST_SERVICE, NODE, NODE_ADDRESS

SERVER = f"https://{NODE_ADDRESS}:{API_PORT}"

#: File name -> (common name, organisation) of each client.
CLIENTS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "apiserver-kubelet": ("apiserver", "system:masters"),
}

#: File name -> the names and addresses of each server.
SERVERS = {
    "apiserver": (NODE_ADDRESS, FIRST_SERVICE, "127.0.0.1", "kubernetes.default.svc", "localhost"),
    "kubelet-server": (NODE_ADDRESS, NODE),
}

#: What the key of an authority is for: to sign certificates.
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Authority:
    """A certificate and its key, able to sign others."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @staticmethod
    def new() -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("gpulease-test-cluster", "")
        builder = _builder(name, name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        builder = builder.add_extension(_SIGNS, True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
        )
        return Authority(certificate=builder.sign(key, hashes.SHA256()), key=key)

    def sign(self, name: x509.Name, names: tuple[str, ...]) -> tuple[bytes, bytes]:
        """Return a certificate and its key as PEM; `names` make it a server's."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, self.certificate.subject, key.public_key())
        # From 3.13 on Python verifies strictly (RFC 5280): who signed it is said by its key, too.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(signer, False)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), False)
        if names:
            alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
            builder = builder.add_extension(alternatives, False)
        signed = builder.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM), _pem(key)

    def pem(self) -> str:
        """Return the certificate by which others trust what it signs."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def server(self, *names: str) -> bytes:
        """Return a server's certificate for these names or addresses, and its key, as PEM."""
        return b"".join(self.sign(_name(names[0], ""), names))


def write_all(pki: Path, config: Path, admin: Path) -> None:
    """Write every key, certificate and kubeconfig of a new cluster."""
    authority = Authority.new()
    ca = authority.certificate.public_bytes(serialization.Encoding.PEM)
    (pki / "ca.crt").write_bytes(ca)
    _secret(pki / "ca.key", _pem(authority.key))
    for file_name, (common, organisation) in CLIENTS.items():
        certificate, key = authority.sign(_name(common, organisation), ())
        _pair(pki, file_name, certificate, key)
        path = admin if file_name == "admin" else config / f"{file_name}.kubeconfig"
        _secret(path, _kubeconfig(ca, certificate, key))
    for file_name, names in SERVERS.items():
        _pair(pki, file_name, *authority.sign(_name(names[0], ""), names))
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _secret(pki / "sa.key", _pem(accounts))
    (pki / "sa.pub").write_bytes(
        accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _kubeconfig(ca: bytes, certificate: bytes, key: bytes) -> bytes:
    """Return a kubeconfig as JSON, which every reader of YAML reads."""

    def text(pem: bytes) -> str:
        return base64.b64encode(pem).decode("ascii")

    cluster = {"server": SERVER, "certificate-authority-data": text(ca)}
    user = {"client-certificate-data": text(certificate), "client-key-data": text(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    return json.dumps(document, indent=1).encode("utf-8")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
    )


def _name(common: str, organisation: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organisation:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(attributes)


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _pair(pki: Path, file_name: str, certificate: bytes, key: bytes) -> None:
    (pki / f"{file_name}.crt").write_bytes(certificate)
    _secret(pki / f"{file_name}.key", key)


def _secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
