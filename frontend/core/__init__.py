"""The core language: nodes, scopes, the table of forms, the library, `syntax-rules`, checks, printer.

Must not contain: handlers of forms (`expand`), or states (`lower`).
"""
