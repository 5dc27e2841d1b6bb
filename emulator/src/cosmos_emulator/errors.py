"""The one error of the protocol: a status, a sub-status, and a text that gives advice."""

import json

_CODES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "Conflict",
    410: "Gone",
    412: "PreconditionFailed",
    413: "RequestEntityTooLarge",
    424: "FailedDependency",
    429: "TooManyRequests",
    449: "RetryWith",
    500: "InternalServerError",
    503: "ServiceUnavailable",
    507: "InsufficientStorage",
}

PARTITION_KEY_MISMATCH = 1001
CROSS_PARTITION_QUERY_NOT_SERVABLE = 1004
COLLECTION_RID_MISMATCH = 1024
READ_SESSION_NOT_AVAILABLE = 1002
OWNER_NOT_FOUND = 1003
RANGE_GONE = 1002
SPLIT_RUNNING = 1007
THROTTLED = 3200
WRITE_FORBIDDEN = 3
NOT_FOR_ENTRA = 5300


class CosmosError(Exception):
    """The answer is an error. ``retry_after_ms`` goes out as a header where it is given, and
    ``info`` in the body: what a client needs to help itself.
    """

    def __init__(
        self,
        status: int,
        message: str,
        substatus: int = 0,
        retry_after_ms: int | None = None,
        info: str | None = None,
    ) -> None:
        super().__init__(status, message, substatus, retry_after_ms, info)  # so that it pickles
        self.status = status
        self.message = message
        self.substatus = substatus
        self.retry_after_ms = retry_after_ms
        self.info = info
        self.headers: dict[str, str] = {}  # of the range that was asked

    def __str__(self) -> str:
        return f"{self.status}/{self.substatus}: {self.message}"

    def body(self, activity_id: str) -> bytes:
        """Return the body in the form that clients parse for people."""
        errors = json.dumps({"Errors": [self.message]}, ensure_ascii=False)
        text = f"Message: {errors}\r\nActivityId: {activity_id}"
        code = _CODES.get(self.status, "Error")
        info = {} if self.info is None else {"additionalErrorInfo": self.info}
        return json.dumps({"code": code, "message": text, **info}).encode()


def bad_request(message: str, substatus: int = 0) -> CosmosError:
    return CosmosError(400, message, substatus)


def not_supported(what: str, instead: str) -> CosmosError:
    """Return the refusal of something that Cosmos DB can do and the emulator cannot."""
    return CosmosError(400, f"{what} is not supported by this emulator. {instead}")
