"""pgbench as a workload: PostgreSQL's own load generator, with an identity in each transaction."""
