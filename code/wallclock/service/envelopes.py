"""What SNS and S3 put into a queue: a request in a notification, or the event of an upload."""

import os
from typing import Any
from urllib.parse import quote, unquote_plus

import orjson
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest

from wallclock.service.module import ItemError

#: Seconds for which an object's URL is valid: the longest that a message can be held.
_VALID_S = 43_200
#: What is sent to a queue when it is connected, and by whom.
_TOLD = {"s3:TestEvent": "S3", "SubscriptionConfirmation": "SNS"}


class Envelopes:
    """Opens messages.

    Args:
        callback_url: of messages that name none; without it events of S3 are refused.
        credentials, region: of the queue; they read the objects of S3 that events name.
    """

    def __init__(self, callback_url: str = "", credentials: Any = None, region: str = "") -> None:
        self._callback_url = callback_url
        self._credentials, self._region = credentials, region
        cn = ".cn" if region.startswith("cn-") else ""
        own = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        self._s3 = own or f"https://s3.{region}.amazonaws.com{cn}"

    def open(self, body: str) -> dict[str, Any]:
        """The values of a request. Raises ItemError: stage parse, permanent."""
        values = _object(body, "the body")
        if values.get("Type") == "Notification" and "url" not in values:
            values = _object(values.get("Message"), "the Message of the SNS notification")
        if "Records" in values and "url" not in values:
            values = self._uploaded(values["Records"])
        if "url" not in values and (said := str(values.get("Event", values.get("Type")))) in _TOLD:
            raise ItemError("parse", f"{said} of {_TOLD[said]} is no request", True)
        return {"callback_url": self._callback_url, **values}

    def _uploaded(self, records: Any) -> dict[str, Any]:
        """The request for an object that an event of S3 names."""
        # What our credentials read goes to the receiver of the settings, to no other.
        if not self._callback_url:
            raise ItemError("parse", "an event of S3 names no callback: set callback_url=URL", True)
        try:
            (record,) = records
            event, bucket = str(record["eventName"]), str(record["s3"]["bucket"]["name"])
            key = unquote_plus(record["s3"]["object"]["key"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ItemError(
                "parse", "Records is not one event of S3 about one object", True
            ) from error
        if "ObjectCreated:" not in event:
            raise ItemError(
                "parse", f"{event[:99]} is no upload: have S3 send s3:ObjectCreated:* alone", True
            )
        get = AWSRequest("GET", f"{self._s3}/{quote(bucket, safe='')}/{quote(key)}")
        known = self._credentials.get_frozen_credentials()
        S3SigV4QueryAuth(known, "s3", self._region, _VALID_S).add_auth(get)
        return {"id": f"s3://{bucket}/{key}", "url": get.url}


def _object(text: Any, what: str) -> dict[str, Any]:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ItemError("parse", f"{what} is not JSON: {error}", True) from error
    if not isinstance(values, dict):
        raise ItemError("parse", f"{what} is not a JSON object", True)
    return values
