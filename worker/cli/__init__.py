"""`medevac`, the command line."""

from __future__ import annotations

import os
import sys
import traceback


def main() -> None:
    """Ends the process itself: an interpreter that finalises while Temporal's threads run can abort with 134."""
    code = 1
    try:
        from worker.cli.app import run

        code = run(sys.argv[1:])
    except BrokenPipeError:
        # The reader (`head`) has what it wanted.
        code = 0
        sys.stdout = None
    except KeyboardInterrupt:
        code = 130
    except Exception:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None:
                    stream.flush()
            except OSError:
                pass
        os._exit(code)
