//! What happens only on Redis servers.

mod emptied;
mod servers;
mod settings;
mod starting;
