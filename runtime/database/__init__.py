"""Run store in PostgreSQL for several machines: connections, schema, stored runs, claims and workers."""
