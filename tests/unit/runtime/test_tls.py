"""What is said of certificates, from the errors that clients wrap around them."""

import ssl

import pytest

from changefeed.runtime.tls import certificate_failure


def verification(why: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.verify_message = why
    return error


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def wrapped(cause: Exception) -> Exception:
    error = ConnectionError("no answer")
    error.__cause__ = cause
    return error


def test_a_certificate_that_is_not_trusted_is_seen_however_deep_it_is_wrapped() -> None:
    error = wrapped(wrapped(verification("certificate has expired")))
    assert "(certificate has expired)" in str(certificate_failure(error))


@pytest.mark.parametrize(
    "reason",
    [
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
    ],
)
def test_a_server_that_does_not_take_ours_is_seen(reason: str) -> None:
    assert "does not take the certificate" in str(certificate_failure(wrapped(alert(reason))))
