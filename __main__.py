"""The programs `llc` and `ll-loop`, and `python -m llc`.

Until a command installs its own handler, Ctrl-C ends the process silently: a KeyboardInterrupt in the middle
of an import would print a traceback. The built-in module `_signal` needs no import from disk, unlike
`runtime.host.signals`, which the other modules use.
"""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from .runtime.cli.entry import main, main_ll_loop  # must follow the installation of the handler

__all__ = ["main", "main_ll_loop"]

if __name__ == "__main__":
    raise SystemExit(main())
