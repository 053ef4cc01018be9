"""
The service's error codes, with which a store refuses a request.

A store raises `Fault`. The mapper turns it into the error of `tableorm.errors` that names the model and the key.
"""

from enum import StrEnum


class Code(StrEnum):
    """
    Error codes of the Table service, then those that the Queue and Blob services add.

    Source: REST, "Table service error codes", "Queue service error codes", "Blob service error codes" and "Common REST
    API error codes".
    """

    __hash__ = str.__hash__  # so that a code is found by its text, and faster

    ATOM_NOT_SUPPORTED = "AtomFormatNotSupported"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    AUTHORIZATION_FAILURE = "AuthorizationFailure"
    AUTHORIZATION_PERMISSION = "AuthorizationPermissionMismatch"
    AUTHORIZATION_PROTOCOL = "AuthorizationProtocolMismatch"
    AUTHORIZATION_RESOURCE_TYPE = "AuthorizationResourceTypeMismatch"
    AUTHORIZATION_SERVICE = "AuthorizationServiceMismatch"
    AUTHORIZATION_SOURCE_IP = "AuthorizationSourceIPMismatch"
    BATCH_PARTITIONS = "CommandsInBatchActOnDifferentPartitions"
    CORS_PREFLIGHT_FAILURE = "CorsPreflightFailure"
    DUPLICATE_PROPERTIES = "DuplicatePropertiesSpecified"
    DUPLICATE_ROW = "InvalidDuplicateRow"
    ENTITY_EXISTS = "EntityAlreadyExists"
    ENTITY_NOT_FOUND = "EntityNotFound"
    ENTITY_TOO_LARGE = "EntityTooLarge"
    HOST_INFORMATION_NOT_PRESENT = "HostInformationNotPresent"
    INSUFFICIENT_PERMISSIONS = "InsufficientAccountPermissions"
    INTERNAL_ERROR = "InternalError"
    INVALID_AUTHENTICATION_INFO = "InvalidAuthenticationInfo"
    INVALID_HEADER_VALUE = "InvalidHeaderValue"
    INVALID_INPUT = "InvalidInput"
    INVALID_QUERY_PARAMETER = "InvalidQueryParameterValue"
    INVALID_RESOURCE_NAME = "InvalidResourceName"
    INVALID_URI = "InvalidUri"
    INVALID_VALUE_TYPE = "InvalidValueType"
    INVALID_XML_DOCUMENT = "InvalidXmlDocument"
    INVALID_XML_NODE_VALUE = "InvalidXmlNodeValue"
    JSON_NOT_SUPPORTED = "JsonFormatNotSupported"
    KEY_OUT_OF_RANGE = "OutOfRangeInput"
    MEDIA_TYPE_NOT_SUPPORTED = "MediaTypeNotSupported"
    METHOD_NOT_ALLOWED = "MethodNotAllowed"
    MISSING_CONTENT_LENGTH = "MissingContentLengthHeader"
    MISSING_HEADER = "MissingRequiredHeader"
    MISSING_QUERY_PARAMETER = "MissingRequiredQueryParameter"
    NO_AUTHENTICATION = "NoAuthenticationInformation"
    NOT_IMPLEMENTED = "NotImplemented"
    OPERATION_TIMED_OUT = "OperationTimedOut"
    PROPERTIES_NEED_VALUE = "PropertiesNeedValue"
    PROPERTY_NAME_INVALID = "PropertyNameInvalid"
    PROPERTY_NAME_TOO_LONG = "PropertyNameTooLong"
    PROPERTY_VALUE_TOO_LARGE = "PropertyValueTooLarge"
    REQUEST_BODY_TOO_LARGE = "RequestBodyTooLarge"
    RESOURCE_EXISTS = "ResourceAlreadyExists"
    RESOURCE_NOT_FOUND = "ResourceNotFound"
    SERVER_BUSY = "ServerBusy"
    TABLE_BEING_DELETED = "TableBeingDeleted"
    TABLE_EXISTS = "TableAlreadyExists"
    TABLE_NOT_FOUND = "TableNotFound"
    TOO_MANY_PROPERTIES = "TooManyProperties"
    TOO_MANY_REQUESTS = "TooManyRequests"
    CONDITION_NOT_SATISFIED = "UpdateConditionNotSatisfied"
    UNSUPPORTED_VERB = "UnsupportedHttpVerb"
    XMETHOD_COUNT = "XMethodIncorrectCount"
    XMETHOD_NOT_POST = "XMethodNotUsingPost"
    XMETHOD_VALUE = "XMethodIncorrectValue"

    MESSAGE_NOT_FOUND = "MessageNotFound"
    MESSAGE_TOO_LARGE = "MessageTooLarge"
    PARAMETER_OUT_OF_RANGE = "OutOfRangeQueryParameterValue"
    POP_RECEIPT_MISMATCH = "PopReceiptMismatch"
    QUEUE_BEING_DELETED = "QueueBeingDeleted"
    QUEUE_EXISTS = "QueueAlreadyExists"
    QUEUE_NOT_FOUND = "QueueNotFound"

    APPEND_POSITION_NOT_MET = "AppendPositionConditionNotMet"
    BLOB_EXISTS = "BlobAlreadyExists"
    BLOB_NOT_FOUND = "BlobNotFound"
    BLOCK_COUNT_EXCEEDED = "BlockCountExceedsLimit"
    CONDITION_NOT_MET = "ConditionNotMet"
    CONTAINER_BEING_DELETED = "ContainerBeingDeleted"
    CONTAINER_EXISTS = "ContainerAlreadyExists"
    CONTAINER_NOT_FOUND = "ContainerNotFound"
    INVALID_BLOB_TYPE = "InvalidBlobType"
    INVALID_BLOCK_LIST = "InvalidBlockList"
    INVALID_METADATA = "InvalidMetadata"
    INVALID_RANGE = "InvalidRange"
    METADATA_TOO_LARGE = "MetadataTooLarge"

    # Not a code of the service: a backend uses it when no answer came, after a time-out or a reset connection.
    NO_ANSWER = "NoAnswer"

    # Nor this one: nothing has ever answered at the URL, which has no such host, or a port where nobody listens.
    NO_HOST = "NoHost"

    # Nor this one: the service says `ResourceNotFound`, as of a row, when there is no such account.
    NO_ACCOUNT = "NoAccount"

    # Nor this one: rows that hold one entity were not of one moment.
    TORN_ROWS = "TornRows"


STATUS: dict[str, int] = {
    **dict.fromkeys(Code, 400),
    Code.ATOM_NOT_SUPPORTED: 415,
    Code.AUTHENTICATION_FAILED: 403,
    Code.AUTHORIZATION_FAILURE: 403,
    Code.AUTHORIZATION_PERMISSION: 403,
    Code.AUTHORIZATION_PROTOCOL: 403,
    Code.AUTHORIZATION_RESOURCE_TYPE: 403,
    Code.AUTHORIZATION_SERVICE: 403,
    Code.AUTHORIZATION_SOURCE_IP: 403,
    Code.CORS_PREFLIGHT_FAILURE: 403,
    Code.ENTITY_EXISTS: 409,
    Code.ENTITY_NOT_FOUND: 404,
    Code.INSUFFICIENT_PERMISSIONS: 403,
    Code.INTERNAL_ERROR: 500,
    Code.JSON_NOT_SUPPORTED: 415,
    Code.MEDIA_TYPE_NOT_SUPPORTED: 415,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.MISSING_CONTENT_LENGTH: 411,
    Code.NO_AUTHENTICATION: 401,
    Code.NOT_IMPLEMENTED: 501,
    Code.OPERATION_TIMED_OUT: 500,
    Code.REQUEST_BODY_TOO_LARGE: 413,
    Code.RESOURCE_EXISTS: 409,
    Code.RESOURCE_NOT_FOUND: 404,
    Code.SERVER_BUSY: 503,
    Code.TABLE_BEING_DELETED: 409,
    Code.TABLE_EXISTS: 409,
    Code.TABLE_NOT_FOUND: 404,
    Code.TOO_MANY_REQUESTS: 429,
    Code.CONDITION_NOT_SATISFIED: 412,
    Code.UNSUPPORTED_VERB: 405,
    Code.MESSAGE_NOT_FOUND: 404,
    Code.QUEUE_BEING_DELETED: 409,
    Code.QUEUE_EXISTS: 409,
    Code.QUEUE_NOT_FOUND: 404,
    Code.APPEND_POSITION_NOT_MET: 412,
    Code.BLOB_EXISTS: 409,
    Code.BLOB_NOT_FOUND: 404,
    Code.BLOCK_COUNT_EXCEEDED: 409,
    Code.CONDITION_NOT_MET: 412,
    Code.CONTAINER_BEING_DELETED: 409,
    Code.CONTAINER_EXISTS: 409,
    Code.CONTAINER_NOT_FOUND: 404,
    Code.INVALID_BLOB_TYPE: 409,
    Code.INVALID_RANGE: 416,
    Code.NO_ANSWER: 504,
    Code.NO_ACCOUNT: 404,
    Code.TORN_ROWS: 409,
    Code.NO_HOST: 504,
}
"""The HTTP status of each code: 400, unless another one says more."""

THROTTLING = frozenset({Code.SERVER_BUSY, Code.TOO_MANY_REQUESTS})
"""Codes that say that the store is asked for too much at once."""

LOST_RACE = frozenset(
    {Code.ENTITY_EXISTS, Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND, Code.CONDITION_NOT_SATISFIED}
)
"""Codes that say that a row is not as it was read: another writer has written, made or deleted it meanwhile."""

TRANSIENT = THROTTLING | {Code.INTERNAL_ERROR, Code.OPERATION_TIMED_OUT, Code.NO_ANSWER}
"""Codes after which the same request may well succeed a moment later."""


class Fault(Exception):
    """
    The error with which a store refuses a request, in the service's words. Stores raise no other.

    Args:
        code: The service's error code.
        message: One sentence, without request ID and time.
        index: Which operation of a transaction failed, counted from 0; None when the store did not say.
        property: The property that is at fault, if there is one.
        doubt: Whether a write may still have happened, or happen later: after a time-out, a reset connection, a 5xx.
        retry_after: After how many seconds the service wants to be asked again, if it said so.
        request_id: The service's ID of the request, by which its operators find it; None if it gave none.
    """

    def __init__(
        self,
        code: Code | str,
        message: str,
        index: int | None = None,
        property: str | None = None,  # noqa: A002
        doubt: bool = False,  # noqa: FBT001, FBT002 - positional, so that a fault survives pickling
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(code, message, index, property, doubt, retry_after, request_id)
        self.code, self.message, self.index, self.property = str(code), message, index, property
        self.doubt, self.retry_after, self.request_id = doubt, retry_after, request_id

    @property
    def transient(self) -> bool:
        """Whether the same request may well succeed a moment later."""
        return self.doubt or self.code in TRANSIENT

    def __str__(self) -> str:
        at = "" if self.index is None else f"{self.index}:"
        return f"{at}{self.code}: {self.message}"
