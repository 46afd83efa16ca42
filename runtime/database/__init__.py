"""PostgreSQL as the run store of several machines: connections, schema, stored runs, claims and workers."""
