"""
Retries: the step of the pipeline that sends a request again, where that is safe.
"""

import logging
from typing import Any
from urllib.parse import urlsplit

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import AsyncHTTPPolicy
from azure.core.rest import HttpRequest

from tableorm.protocol.codes import Fault
from tableorm.stores import RetryBudget, RetryPolicy, Traffic

from .batch import find_throttled_part
from .faults import NoHost, NoToken, body_of, code_of, fault_of_error, fault_of_response, is_throttled, lacks_host

_READS = frozenset({"GET", "HEAD"})

# The service answers every transaction with this status, also one that it refused.
_BATCH_DONE = 202

# The option that tells `RepeatPolicy` when a request's time is over, by the loop's clock.
DEADLINE = "tableorm_deadline"

_log = logging.getLogger("tableorm_azure")


class RepeatPolicy(AsyncHTTPPolicy[Any, Any]):
    """
    Repeats requests as the user's `RetryPolicy` says, in the place of the SDK's own retries, which are turned off.

    Reads are repeated after every transient fault. Writes are repeated only if it is certain that they were not done:
    they were never sent, or refused for their rate. Other writes are in doubt, and the mapper finds out what became of
    them. Before anything has answered, a host without an address, or one that refuses connections, is reported at once:
    the URL is likely to be wrong.

    Args:
        traffic: Counts the attempts.
        policy: How often, and after which pauses.
        host: The host that requests go to, with its port.
        answered: The hosts that have answered.
    """

    def __init__(self, traffic: Traffic, policy: RetryPolicy, host: str, answered: set[str]) -> None:
        self._traffic, self._policy = traffic, policy
        self._host, self._answered = host, answered

    async def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        """Send a request, and repeat it as often as needed and as its time allows."""
        budget = RetryBudget(self._policy, until=request.context.options.pop(DEADLINE, None))
        http: HttpRequest = request.http_request
        repetitions = 0
        while True:
            self._traffic.attempts += 1
            request.context["retry_count"] = repetitions  # for traces
            try:
                response = await self.next.send(request)
                self._answered.add(self._host)
                fault = self._find_fault(http.method, response.http_response)
                if fault is None or not await _another(budget, fault):
                    return response
            except ClientAuthenticationError:
                raise
            except AzureError as error:
                if self._host not in self._answered and not isinstance(error, NoToken) and lacks_host(error):
                    raise NoHost(error.message) from (error.inner_exception or error.__cause__)
                fault = fault_of_error(error, write=http.method not in _READS)
                if not await _another(budget, fault):
                    raise
            repetitions += 1
            self._traffic.retries += 1
            _log.info("%s %s is sent again after %s", http.method, urlsplit(http.url).path, fault.code)

    def _find_fault(self, method: str, http: Any) -> Fault | None:
        """Return the fault of an answer, None if it is none; count it if the request was rejected for its rate."""
        status: int = http.status_code
        if status == _BATCH_DONE and method == "POST":
            # If an operation is rejected for its rate, so is the whole transaction, with the status of a success. The
            # answer to a read may be far longer, and is not searched.
            fault = find_throttled_part(body_of(http))
            self._traffic.throttled += fault is not None
            return fault
        if status < 400:
            return None
        self._traffic.throttled += is_throttled(status, code_of(http))
        return fault_of_response(status, http.headers, body_of(http), write=method not in _READS)


async def _another(budget: RetryBudget, fault: Fault) -> bool:
    return fault.transient and not fault.doubt and await budget.another(fault)
