"""The programs `llc` and `ll-loop`, and `python -m llc`.

Until a command is ready for it, Ctrl-C ends the process without a word: a KeyboardInterrupt in the middle of
an import would leave a traceback. The module in C is there without being loaded; `runtime.host.signals`,
which others use, would itself be such an import.
"""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from .runtime.cli.entry import main, main_ll_loop  # after the handler

__all__ = ["main", "main_ll_loop"]

if __name__ == "__main__":
    raise SystemExit(main())
