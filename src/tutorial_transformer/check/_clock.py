"""How long a learner's code has been at work; what it imports does not count."""

import sys
import time


class Clock:
    """Runs out after `limit` seconds of work, or after twice as long on a busy machine."""

    def __init__(self, limit: float) -> None:
        self.limit, self.modules = limit, len(sys.modules)
        self.start, self.work = time.monotonic(), time.process_time()

    def is_over(self) -> bool:
        """Whether the time is up; each new module starts the clock again.

        A first torch optimiser imports for seconds, and an import that is stopped half-way breaks
        the whole process.
        """
        if len(sys.modules) > self.modules:
            self.__init__(self.limit)
        late = time.monotonic() - self.start
        return late > 2 * self.limit or min(late, time.process_time() - self.work) > self.limit
