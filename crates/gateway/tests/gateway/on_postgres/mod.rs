//! What happens only on a PostgreSQL server.

mod starting;
