//! The servers, and what happens to them.

use crate::disk::SmallDisk;
use clap::ValueEnum;
use semel_test_support::{PostgresServer, RedisServer, ScratchDir};

/// A kind of outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Outage {
    /// Redis is emptied.
    RedisEmptied,
    /// Redis restarts without its files.
    RedisWithoutFiles,
    /// Redis delays all writes.
    RedisPaused,
    /// The Redis master is killed, and its replica promoted.
    RedisPromoted,
    /// PostgreSQL's processes behind the gateways' connections stop; new connections work.
    PostgresHalfOpen,
    /// PostgreSQL stops as a whole: connections are accepted, and nothing is answered.
    PostgresHung,
    /// The same with a second host in the URL, which is promoted.
    PostgresHungAndPromoted,
    /// The disk of an SQLite file is full.
    DiskFull,
}

/// The servers of one round: the one in use, and the one that replaces it.
pub(crate) struct Servers {
    outage: Outage,
    redis: Option<(RedisServer, Option<RedisServer>)>,
    postgres: Option<(PostgresServer, Option<PostgresServer>)>,
    disk: Option<SmallDisk>,
}

impl Outage {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether what was acknowledged is gone from the server afterwards.
    pub(crate) fn loses_data(self) -> bool {
        matches!(self, Self::RedisEmptied | Self::RedisWithoutFiles)
    }

    pub(crate) fn start(self, folder: &ScratchDir) -> Servers {
        let (mut redis, mut postgres, mut disk) = (None, None, None);
        match self {
            Self::RedisEmptied | Self::RedisPaused => {
                redis = Some((RedisServer::start(folder.join("redis"), &[]), None));
            }
            Self::RedisWithoutFiles => {
                redis = Some((RedisServer::start(folder.join("redis"), &["--appendonly", "no"]), None));
            }
            Self::DiskFull => disk = Some(SmallDisk::mount(folder.join("disk"))),
            Self::RedisPromoted => {
                let master = RedisServer::start(folder.join("master"), &[]);
                let replica = master.replica(folder.join("replica"));
                redis = Some((master, Some(replica)));
            }
            Self::PostgresHalfOpen | Self::PostgresHung => {
                postgres = Some((PostgresServer::start(folder.join("postgres")), None));
            }
            Self::PostgresHungAndPromoted => {
                let primary = PostgresServer::start(folder.join("primary"));
                let standby = primary.standby(folder.join("standby"));
                primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
                primary.sql("SELECT pg_reload_conf()");
                postgres = Some((primary, Some(standby)));
            }
        }
        Servers { outage: self, redis, postgres, disk }
    }
}

impl Servers {
    pub(crate) fn url(&self) -> String {
        if let Some(disk) = &self.disk {
            return format!("sqlite:{}", disk.path().join("semel.db").display());
        }
        match (&self.redis, &self.postgres) {
            (Some((master, Some(replica))), _) => {
                // What is answered has reached the replica.
                format!(
                    "redis://{},{}?wait=1&timeout=2&connect_timeout=1",
                    master.address(),
                    replica.address()
                )
            }
            (Some((server, None)), _) => server.url(),
            (None, Some((primary, Some(standby)))) => {
                let ports = [primary.port(), standby.port()];
                format!(
                    "postgres://semel@127.0.0.1:{},127.0.0.1:{}/semel?sslmode=disable",
                    ports[0], ports[1]
                )
            }
            (None, Some((server, None))) => format!("{}?sslmode=disable", server.url()),
            (None, None) => String::new(),
        }
    }

    pub(crate) fn begin(mut self) -> Self {
        if let Some(disk) = &self.disk {
            disk.fill();
        }
        match (&mut self.redis, &mut self.postgres) {
            (Some((master, Some(replica))), _) => {
                master.kill();
                replica.promote();
                // A store that waits for a replica takes writes only with one.
                let follows = format!("REPLICAOF 127.0.0.1 {}", replica.port());
                master.restart();
                master.ask(&follows);
            }
            (Some((server, None)), _) => match self.outage {
                Outage::RedisWithoutFiles => server.restart(),
                // Until it is told to go on.
                Outage::RedisPaused => drop(server.ask("CLIENT PAUSE 600000 WRITE")),
                _ => drop(server.ask("FLUSHALL")),
            },
            (None, Some((primary, Some(standby)))) => {
                primary.halt();
                standby.promote();
            }
            (None, Some((server, None))) if self.outage == Outage::PostgresHalfOpen => {
                server.halt_connections();
            }
            (None, Some((server, None))) => server.halt(),
            (None, None) => {}
        }
        self
    }

    pub(crate) fn end(self) -> Self {
        // A former primary stays as it is: it must not come back beside its successor.
        if let Some((server, None)) = &self.postgres {
            server.resume();
        }
        if let Some((server, None)) = self.redis.as_ref().filter(|_| self.outage == Outage::RedisPaused) {
            server.ask("CLIENT UNPAUSE");
        }
        if let Some(disk) = &self.disk {
            disk.make_room();
        }
        self
    }
}
