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

from tableorm.stores import Traffic

from .batch import throttled_part
from .faults import body_of, code_of, is_throttled, never_sent
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
    azure-core's retries, told what is safe: reads are repeated whatever happened; writes only where it is certain that
    they were not done: they were never sent, or refused for their rate. The rest is in doubt, and the mapper's.

    Args:
        traffic: Where to count.
        options: Counts and times of azure-core: `retry_total`, `retry_backoff_factor`, `retry_backoff_max`.
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
        """Send a request as often as it takes, and as its time allows."""
        self._traffic.attempts += 1
        return await super().send(request)

    def configure_retries(self, options: dict[str, Any]) -> dict[str, Any]:
        """Every method may be repeated, as far as `is_retry` and `increment` allow."""
        options.setdefault("retry_on_methods", _METHODS)
        until: float | None = options.pop(DEADLINE, None)
        settings: dict[str, Any] = super().configure_retries(options)
        return {**settings, DEADLINE: until}

    def is_retry(self, settings: dict[str, Any], response: PipelineResponse[Any, Any]) -> bool:
        """Whether an answer lets its request be sent again."""
        http = response.http_response
        status = http.status_code
        if status == _BATCH_DONE:
            # All of a transaction is refused where one operation is, in an answer that is a success by its status.
            throttled = throttled_part(body_of(http)) is not None
        elif status < 400:
            return False
        else:
            throttled = is_throttled(status, code_of(http)) if status in (429, 503) else False
        self._traffic.throttled += throttled
        if response.http_request.method in _READS:
            return settings["total"] > 0 and status in (408, 429, 500, 502, 503, 504)
        return settings["total"] > 0 and throttled

    def increment(self, settings: dict[str, Any], response: Any = None, error: Exception | None = None) -> bool:
        """Count an attempt that failed; whether there is another."""
        request: HttpRequest = response.http_request
        if error is not None and request.method not in _READS and not never_sent(error):
            return False
        counted = response
        if error is None and response.http_response.status_code == _BATCH_DONE:
            # azure-core takes that status for a success, and counts the others so.
            settings["history"].append(RequestHistory(request, http_response=response.http_response))
            counted = PipelineRequest(request, response.context)
        again: bool = super().increment(settings, counted, error)
        if again and self._pause(settings, response, error) >= _left(settings):
            # To wait until the time is over would end in a time-out, which tells less: a write would be in doubt.
            return False
        if again:
            self._traffic.attempts += 1
            self._traffic.retries += 1
            _log.info(
                "%s %s is sent again after %s",
                request.method,
                urlsplit(request.url).path,
                f"status {response.http_response.status_code}" if error is None else type(error).__name__,
            )
        return again

    def get_retry_after(self, response: PipelineResponse[Any, Any]) -> float | None:
        """The seconds that an answer asks to wait; of a transaction, its part that was refused."""
        http = response.http_response
        part = throttled_part(body_of(http)) if http.status_code == _BATCH_DONE else None
        return super().get_retry_after(response) if part is None else part.retry_after

    def _pause(self, settings: dict[str, Any], response: Any, error: Exception | None) -> float:
        """The seconds until the next attempt, as `sleep` takes them."""
        asked = self.get_retry_after(response) if error is None else None
        seconds: float = asked or self.get_backoff_time(settings)
        return seconds


def _left(settings: Mapping[str, Any]) -> float:
    """The seconds that are left for a request, its repetitions included."""
    until: float | None = settings[DEADLINE]
    return float("inf") if until is None else until - asyncio.get_running_loop().time()
