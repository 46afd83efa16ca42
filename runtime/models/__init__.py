"""Models: which one a task asks, the providers that reach them, what is sent and what comes back.

A provider is one module that runs in a helper process (`provider`); `choice` says which one a model
has, `client` asks it on behalf of a run. What is sent is made by `prompt`, with what `files` reads.
Imported when a task is performed, never by a plain run.
"""
