"""Memory: what the project's files say, found again by words. See `spec/memory.md`.

`ignore` lists the files, `terms` and `outline` read them, `index` keeps what was read, `search` finds
in it, `recall` answers a request, `rerank` lets a model put the best first.
"""
