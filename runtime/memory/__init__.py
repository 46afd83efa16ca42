"""Memory: full-text search in the project's files. See `spec/memory.md`.

`ignore` lists the files, `terms` and `outline` tokenize them, `index` stores the result, `search` finds
files, `recall` answers a request, `rerank` lets a model order the matches. Must not contain: knowledge of
runs.
"""
