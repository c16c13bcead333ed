"""Life signs of long activities, and the only way in which they wait."""

from __future__ import annotations

import contextvars
import threading
import time
from datetime import timedelta
from types import TracebackType

from temporalio import activity

from activities.failures import waits

_LOOK_S = 0.2
"""How often a wait looks for a stopping worker; a cancel wakes it at once."""


class Cancelled(Exception):
    """The workflow asked this step to stop. The step says what it has done until here, as `cancelled`."""


class Pulse:
    """Heartbeats from its own thread for as long as the `with` block runs, so a slow call never looks like a death.

    The heartbeat carries nothing: the next attempt reads the world. Activities that use it are declared with
    `no_thread_cancel_exception=True`: an exception thrown into the middle of a call would leave it unknown
    whether the call was made, so cancellation is looked for between calls, by `check` and `wait`.
    """

    def __init__(self) -> None:
        timeout = activity.info().heartbeat_timeout or timedelta(seconds=5)
        self._every_s = max(0.1, timeout.total_seconds() / 5)
        self._over = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._beat,), name="heartbeat", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(self._every_s)

    def _beat(self) -> None:
        while not self._over.is_set():
            try:
                activity.heartbeat()
            except Exception:
                # The server judges a silent activity; a failed life sign must not end a step by itself.
                activity.logger.warning("heartbeat could not be sent", exc_info=True)
            self._over.wait(self._every_s)

    def check(self) -> None:
        """Raises `Cancelled` when asked to stop; a retryable error when only this worker or attempt must go."""
        if activity.is_cancelled():
            details = activity.cancellation_details()
            if details is None or details.cancel_requested:
                raise Cancelled
            raise waits("this attempt was stopped; the next one reads the world and goes on", 0.1, "Stopped")
        if activity.is_worker_shutdown():
            raise waits("worker is stopping; another one goes on", 0.1, "WorkerShutdown")

    def wait(self, seconds: float) -> None:
        """Waits, but no longer than until a cancel or a stopping worker, which it raises as `check` does."""
        end = time.monotonic() + seconds
        self.check()
        while (left := end - time.monotonic()) > 0:
            activity.wait_for_cancelled_sync(min(left, _LOOK_S))
            self.check()
