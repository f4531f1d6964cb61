//! The trait that every server implements.

use super::home::Home;

/// A kind of server that tests connect to. A private instance of it lives in a [`Home`].
pub(crate) trait Server: Sync {
    /// The name on the command line, which is also the name of its folder.
    fn name(&self) -> &'static str;

    /// The environment variable that passes the URL to the tests.
    fn variable(&self) -> &'static str;

    /// The system user that runs the server when `cargo xtask` runs as root.
    fn user(&self) -> &'static str;

    /// The Debian packages that are not installed yet.
    fn missing_packages(&self) -> Vec<&'static str>;

    /// The server that a private instance of this one replicates or fronts.
    fn needs(&self) -> Option<&'static dyn Server> {
        None
    }

    /// The URL of a private instance on this port.
    fn url(&self, port: u16) -> String;

    /// The file in [`Home::data`] whose first line is the process ID.
    fn pid_file(&self) -> &'static str;

    /// Starts the server on 127.0.0.1 with [`Home::data`] as its data and working directory, which identifies
    /// the process later. Missing or incomplete data is created again. The caller has checked that no
    /// instance runs. `needed` is the URL of the running server that it [needs](Self::needs).
    fn start(&self, home: &Home, port: u16, needed: Option<&str>) -> Result<(), String>;

    /// Stops the server that [`Server::pid_file`] names and waits until it ends. The caller has checked that
    /// the process is the server.
    fn stop(&self, home: &Home) -> Result<(), String>;

    /// Asks the server for its version. An answer means that it is ready for the tests.
    fn version(&self, url: &str) -> Result<String, String>;

    /// Whether a server that answers is usable for the tests. `needed` is the URL of the server that a
    /// private instance needs.
    fn verify(&self, url: &str, needed: Option<&str>) -> Result<(), String> {
        let _ = (url, needed);
        Ok(())
    }
}
