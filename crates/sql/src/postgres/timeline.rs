//! Which servers are trusted after a failover.
//!
//! A promotion starts a new timeline. A server on an older one is a replaced primary: it lacks later
//! acknowledged writes, and would grant their claims again. A store relies on what it has seen since it was
//! opened.

use super::session::Session;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;
use tracing::{info, warn};

/// The name of the timeline of a server that takes writes, in a statement.
pub(super) const TIMELINE_NAME: &str =
    "pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)";

/// The server's timeline, and its cluster. `NULL` on a standby, and without the right to read it.
const TIMELINE: &str = "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL \
     ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) END, \
     CASE WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') \
     THEN (SELECT system_identifier FROM pg_catalog.pg_control_system()) END";

/// The position of a server that takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// Shared by all servers of one cluster: a primary, its standbys and their copies.
    cluster: Option<i64>,
    timeline: u32,
}

impl Origin {
    /// `None` if the server does not report it: it is a standby, or does not show its log.
    pub(super) async fn of(session: &Session) -> Option<Self> {
        let rows = session.query(TIMELINE, &[]).await.ok()?;
        let row = rows.first()?;
        let segment: Option<String> = row.try_get(0).ok()?;
        let timeline = u32::from_str_radix(segment?.get(..8)?, 16).ok()?;
        Some(Self { cluster: row.try_get(1).ok().flatten(), timeline })
    }

    /// Whether two clusters are unrelated. Unknown ones count as the same.
    fn is_of_another_cluster_than(self, other: Self) -> bool {
        self.cluster.zip(other.cluster).is_some_and(|(one, other)| one != other)
    }
}

/// The servers that a store has seen.
#[derive(Debug, Default)]
pub(super) struct Timelines(Mutex<SeenServers>);

#[derive(Debug, Default)]
struct SeenServers {
    latest: Option<Origin>,
    /// The last refusal, so that it is logged once.
    refused: Option<Origin>,
}

impl Timelines {
    fn seen(&self) -> MutexGuard<'_, SeenServers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a server that takes writes.
    pub(super) fn admit(&self, origin: Option<Origin>) -> Result<(), NotAdmitted> {
        let Some(origin) = origin else { return Ok(()) };
        let mut seen = self.seen();
        let Some(latest) = seen.latest else {
            seen.latest = Some(origin);
            return Ok(());
        };
        let cause = if origin.is_of_another_cluster_than(latest) {
            NotAdmitted::OtherCluster
        } else if origin.timeline < latest.timeline {
            NotAdmitted::Replaced { timeline: origin.timeline, latest: latest.timeline }
        } else {
            if origin.timeline > latest.timeline {
                info!(
                    from = latest.timeline,
                    to = origin.timeline,
                    "PostgreSQL was failed over to another server"
                );
            }
            seen.latest = Some(Origin { cluster: origin.cluster.or(latest.cluster), ..origin });
            seen.refused = None;
            return Ok(());
        };
        if seen.refused != Some(origin) {
            seen.refused = Some(origin);
            warn!("a PostgreSQL server is not used: {cause}");
        }
        Err(cause)
    }

    /// Whether a later timeline was seen since a connection was opened.
    pub(super) fn has_replaced(&self, origin: Option<Origin>) -> bool {
        let Some(origin) = origin else { return false };
        self.seen().latest.is_some_and(|latest| origin.timeline < latest.timeline)
    }
}

/// Why a server must not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum NotAdmitted {
    #[error(
        "the server belongs to another database cluster than the one that the store was opened on, and does not have its records; \
         correct the hosts in the store's URL, or restart the gateway if the database was moved there"
    )]
    OtherCluster,
    #[error(
        "the server is a primary that was replaced: it writes to timeline {timeline}, and timeline {latest} has been seen. What was \
         acknowledged since then is not on it; stop it, or make it a standby of the new primary"
    )]
    Replaced { timeline: u32, latest: u32 },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(cluster: i64, timeline: u32) -> Origin {
        Origin { cluster: (cluster != 0).then_some(cluster), timeline }
    }

    #[test]
    fn only_the_latest_timeline_is_trusted() {
        let timelines = Timelines::default();
        assert!(timelines.admit(None).is_ok(), "a server that does not say");
        assert!(timelines.admit(Some(origin(7, 3))).is_ok());
        assert!(timelines.admit(Some(origin(7, 3))).is_ok());
        assert!(timelines.admit(Some(origin(7, 4))).is_ok() && timelines.has_replaced(Some(origin(7, 3))));
        let refused = timelines.admit(Some(origin(7, 3))).expect_err("replaced");
        assert_eq!(refused, NotAdmitted::Replaced { timeline: 3, latest: 4 });
        let shown = refused.to_string();
        assert!(shown.contains("timeline 3") && shown.contains("timeline 4"), "{shown}");
        assert!(timelines.admit(Some(origin(0, 3))).is_err(), "the cluster cannot be read");
        assert!(timelines.admit(Some(origin(0, 5))).is_ok() && timelines.admit(Some(origin(7, 4))).is_err());
        assert!(!timelines.has_replaced(Some(origin(7, 5))) && !timelines.has_replaced(None));
    }

    #[test]
    fn another_cluster_is_refused_on_any_timeline() {
        let timelines = Timelines::default();
        assert!(timelines.admit(Some(origin(7, 3))).is_ok());
        for timeline in [1, 3, 9] {
            let refused = timelines.admit(Some(origin(8, timeline))).expect_err("another cluster");
            assert_eq!(refused, NotAdmitted::OtherCluster);
            assert!(refused.to_string().contains("another database cluster"), "{refused}");
        }
        assert!(timelines.admit(Some(origin(7, 3))).is_ok(), "and changes nothing");
    }
}
