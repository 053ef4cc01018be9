"""
Retries: azure-core's policy, told which requests are safe to send again.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import AsyncRetryPolicy, RequestHistory
from azure.core.rest import HttpRequest

from tableorm.protocol.codes import Code
from tableorm.stores import Traffic, note_repetition

from .batch import find_throttled_part
from .faults import body_of, code_of, is_throttled, never_sent, retry_after_of
from .options import Options

__all__ = ["DEADLINE", "RetryPolicy"]

_READS = frozenset({"GET", "HEAD"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "MERGE"})

# The service answers every transaction with this status, also one that it refused.
_BATCH_DONE = 202

# The option that tells `RetryPolicy` when a request's time is over, by the loop's clock.
DEADLINE = "tableorm_deadline"

_log = logging.getLogger("tableorm_azure")


class RetryPolicy(AsyncRetryPolicy[Any, Any]):
    """
    azure-core's retries, limited to what is safe.

    Reads are repeated whatever happened. Writes are repeated only if it is certain that they were not done: they were
    never sent, or refused for their rate. Other writes are in doubt, and the mapper finds out what became of them.

    Args:
        traffic: Counts the attempts.
        options: The settings of azure-core: `retry_total`, `retry_backoff_factor`, `retry_backoff_max`.
    """

    def __init__(self, traffic: Traffic, options: Options) -> None:
        total = options.retry_total
        super().__init__(
            retry_total=total,
            retry_connect=total,
            retry_read=total,
            retry_status=total,
            retry_backoff_factor=options.retry_backoff_factor,
            retry_backoff_max=options.retry_backoff_max,
            timeout=options.timeout,
        )
        self._traffic = traffic

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        """Send a request, and repeat it as often as needed and as its time allows."""
        self._traffic.attempts += 1
        return await super().send(request)

    def configure_retries(self, options: dict[str, Any]) -> dict[str, Any]:
        """Allow every method to be repeated; `is_retry` and `increment` decide."""
        options.setdefault("retry_on_methods", _METHODS)
        until: float | None = options.pop(DEADLINE, None)
        settings: dict[str, Any] = super().configure_retries(options)
        return {**settings, DEADLINE: until}

    def is_retry(self, settings: dict[str, Any], response: PipelineResponse[Any, Any]) -> bool:
        """Return whether the request of an answer may be sent again."""
        http = response.http_response
        status = http.status_code
        if status == _BATCH_DONE:
            # If an operation is refused for its rate, so is the whole transaction, with the status of a success.
            throttled = find_throttled_part(body_of(http)) is not None
        elif status < 400:
            return False
        else:
            throttled = is_throttled(status, code_of(http)) if status in (429, 503) else False
        self._traffic.throttled += throttled
        if response.http_request.method in _READS:
            return settings["total"] > 0 and status in (408, 429, 500, 502, 503, 504)
        return settings["total"] > 0 and throttled

    def increment(self, settings: dict[str, Any], response: Any = None, error: Exception | None = None) -> bool:
        """Count an attempt that failed. Return whether another one follows."""
        request: HttpRequest = response.http_request
        if error is not None and request.method not in _READS and not never_sent(error):
            return False
        counted = response
        if error is None and response.http_response.status_code == _BATCH_DONE:
            # azure-core takes this status for a success; this is how it counts a failure.
            settings["history"].append(RequestHistory(request, http_response=response.http_response))
            counted = PipelineRequest(request, response.context)
        again: bool = super().increment(settings, counted, error)
        if again and self._get_pause(settings, response, error) >= _time_left(settings):
            # To wait until the time is over would end in a time-out, which says less: a write would be in doubt.
            return False
        if again:
            self._traffic.attempts += 1
            self._traffic.retries += 1
            outcome = f"status {response.http_response.status_code}" if error is None else type(error).__name__
            note_repetition(_outcome_of(response, error))
            _log.info("%s %s is sent again after %s", request.method, urlsplit(request.url).path, outcome)
        return again

    def get_retry_after(self, response: PipelineResponse[Any, Any]) -> float | None:
        """Return the seconds that an answer asks to wait, or that the refused part of a transaction asks."""
        http = response.http_response
        part = find_throttled_part(body_of(http)) if http.status_code == _BATCH_DONE else None
        return retry_after_of(http.headers) if part is None else part.retry_after

    def _get_pause(self, settings: dict[str, Any], response: Any, error: Exception | None) -> float:
        """Return the seconds until the next attempt, which `sleep` waits."""
        asked = self.get_retry_after(response) if error is None else None
        seconds: float = asked or self.get_backoff_time(settings)
        return seconds


def _outcome_of(response: Any, error: Exception | None) -> str:
    """Return the error code of an attempt that failed."""
    if error is not None:
        return Code.NO_ANSWER.value
    http = response.http_response
    # A transaction with the status of a success was refused for its rate.
    return Code.SERVER_BUSY.value if http.status_code == _BATCH_DONE else code_of(http) or f"status {http.status_code}"


def _time_left(settings: Mapping[str, Any]) -> float:
    """Return the seconds that are left for a request and its repetitions."""
    until: float | None = settings[DEADLINE]
    return float("inf") if until is None else until - asyncio.get_running_loop().time()
