"""Calls of models: requests, providers and answers.

Each provider is a module that runs in a helper process (`provider`). `project.models` chooses the provider of
a model, and `client` calls it for a run. `prompt` makes the request, with files that `prompt_files` reads.
Imported when a task is performed, never by a run without one.
"""
