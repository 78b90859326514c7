"""boto3's client with the settings of a test."""

import os

import pytest

from wallclock.fetch.s3 import Client, connect

KEY, SECRET, REGION = "AKIA", "secret/+", "eu-west-1"


def client_of(endpoint: str, key: str = KEY, secret: str = SECRET, token: str = "") -> Client:
    """Of a store; with an empty key, anonymous."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        for name, value in variables_of(endpoint, key, secret, token).items():
            patch.setenv(name, value)
        return connect("tests")


def variables_of(endpoint: str, key: str, secret: str, token: str = "") -> dict[str, str]:
    """The environment with these settings, and no others of the machine's."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret if key else "",
        "AWS_SESSION_TOKEN": token,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
