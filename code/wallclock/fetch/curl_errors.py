"""What libcurl's errors mean: whose fault, and why."""

import pycurl

from wallclock.fetch.retries import (
    CertificateError,
    NoSuchHostError,
    PermanentError,
    RequestError,
    TransientError,
)

_LOST = {
    pycurl.E_COULDNT_CONNECT: "no connection: refused, or no route",
    pycurl.E_GOT_NOTHING: "closed without an answer",
    pycurl.E_PARTIAL_FILE: "cut off before the end of the body",
    pycurl.E_RECV_ERROR: "the connection was lost",
    pycurl.E_SEND_ERROR: "the connection was lost",
}


def failure_of(code: int, text: str) -> RequestError:
    """What an error with this code and text is raised as."""
    # libcurl has one code for a URL's protocol, and for an answer that is no HTTP.
    is_scheme = code == pycurl.E_UNSUPPORTED_PROTOCOL and text.startswith("Protocol ")
    if is_scheme or code == pycurl.E_URL_MALFORMAT:
        return PermanentError("not a URL")
    if code == pycurl.E_COULDNT_RESOLVE_HOST:
        return NoSuchHostError("the host's name cannot be looked up")
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        return CertificateError(f"certificate: {text.partition(': ')[2] or text}")
    return TransientError(_LOST.get(code, text or f"libcurl's error {code}"))
