//! CPU time of a server on this machine: its main process and all its children, including finished ones.

use crate::client::of_process;
use crate::database::Database;
use std::error::Error;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

pub(crate) struct Server {
    postmaster: u32,
}

impl Server {
    pub(crate) fn of(runtime: &Runtime, database: &Database) -> Result<Self, Box<dyn Error>> {
        let parent = runtime.block_on(async {
            let (session, connection) = tokio_postgres::connect(database.url(), NoTls).await?;
            tokio::spawn(connection);
            let row = session.query_one("SELECT pg_backend_pid()", &[]).await?;
            // The session's process exists while the session is open.
            let pid: i32 = row.try_get(0)?;
            Ok::<_, tokio_postgres::Error>(of_process(&pid.to_string()).map(|cpu| cpu.parent))
        })?;
        let postmaster =
            parent.ok_or("the server's processes are not on this machine: its CPU cannot be measured")?;
        Ok(Self { postmaster })
    }

    /// A server that reports its process ID.
    pub(crate) fn of_process(pid: u32) -> Result<Self, Box<dyn Error>> {
        let server = Self { postmaster: pid };
        server.cpu_micros().map_err(|_| "the server is not on this machine: its CPU cannot be measured")?;
        Ok(server)
    }

    pub(crate) fn cpu_micros(&self) -> Result<f64, Box<dyn Error>> {
        let postmaster = of_process(&self.postmaster.to_string()).ok_or("the server has ended")?;
        let mut sum = postmaster.own_micros + postmaster.children_micros;
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            else {
                continue;
            };
            sum +=
                of_process(pid).filter(|cpu| cpu.parent == self.postmaster).map_or(0.0, |cpu| cpu.own_micros);
        }
        Ok(sum)
    }
}
