"""The programs `llc` and `ll-loop`, and `python -m llc`.

Until a command is ready for it, Ctrl-C ends the process without a word: a KeyboardInterrupt in the middle of
an import would leave a traceback.
"""

from .runtime.host import signals

if signals.getsignal(signals.SIGINT) is signals.default_int_handler:
    signals.signal(signals.SIGINT, signals.SIG_DFL)

from .runtime.cli.entry import main, main_ll_loop  # after the handler

__all__ = ["main", "main_ll_loop"]

if __name__ == "__main__":
    raise SystemExit(main())
