"""Memory: full-text search in the project's files. See `spec/memory.md`.

`ignore` lists the files, `terms` and `outline` extract their terms, `index` stores them, `search` finds
files, `recall` answers a request, `rerank` lets a model rank the matches. Must not contain: knowledge of
runs.
"""
