"""Checks of the files for TLS, before a port is opened."""

from __future__ import annotations

import logging
import ssl
from typing import Final

from interposer.core.errors import ConfigError

__all__ = ["check_tls"]

_log: Final = logging.getLogger("interposer.serving")


def check_tls(certificate: str, key: str, client_ca: str | None) -> None:
    """Check that a server can use its files for TLS; log a warning if clients will refuse its certificate.

    Args:
        certificate: a file with the certificate of the server, and perhaps those of its authorities.
        key: a file with the private key of the certificate.
        client_ca: a file with the authorities of clients; None if clients need no certificate.

    Raises:
        ConfigError: a file cannot be read, has another content, the key belongs to another certificate, or OpenSSL
            refuses the certificate, such as one with a short key.
    """
    for path in filter(None, (certificate, client_ca)):
        _check_certificates(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_key(context, certificate, key)
    problem = _problem_of_clients(context, certificate)
    if problem:
        _log.warning("clients will refuse the certificate %s: %s", certificate, problem)


def _check_certificates(path: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        raise ConfigError(f"{path} has no certificate in the format PEM") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _load_key(context: ssl.SSLContext, certificate: str, key: str) -> None:
    is_encrypted = False

    def password() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        return ""

    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        if is_encrypted:
            raise ConfigError(f"the private key {key} is encrypted; the server needs one without a password") from None
        if "MISMATCH" in (error.reason or "") or error.reason == "NO_CERTIFICATE_ASSIGNED":  # the latter: of its kind
            raise ConfigError(f"the private key {key} does not belong to the certificate {certificate}") from None
        if error.library == "SSL" and error.reason:
            raise ConfigError(f"OpenSSL refuses the certificate {certificate}: {_words_of(error)}") from None
        raise ConfigError(f"{key} has no private key in the format PEM") from None
    except OSError as error:
        raise ConfigError(f"{key} cannot be read: {error.strerror}") from None


def _words_of(error: ssl.SSLError) -> str:
    return (error.reason or "the handshake fails").replace("_", " ").lower()


def _problem_of_clients(context: ssl.SSLContext, certificate: str) -> str:
    """Return why clients that trust this very certificate refuse it, such as an expired one; empty if they do not.

    The client and the server of this check exchange their messages in memory.
    """
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.load_verify_locations(certificate)
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:  # such as a kind of key that no client supports
            return _words_of(error)
    return ""
