//! Starts a gateway, and kills it when it is dropped.

use semel_test_support::ScratchDir;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::net::TcpStream;

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    process: Child,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Gateway {
    pub(crate) async fn start(
        semel: &Path,
        folder: &ScratchDir,
        number: u32,
        store: &str,
        upstream: SocketAddr,
    ) -> Self {
        let config = format!(
            "[upstream]\nurl = \"http://{upstream}\"\n[store]\nurl = '{store}'\n[clock]\nskew = \"1s\"\n"
        );
        let config = folder.write(&format!("gateway-{number}.toml"), config);
        let log = std::fs::File::create(folder.join(format!("gateway-{number}.log"))).expect("a log");
        let (address, admin) = (free_address(), free_address());
        let mut command = Command::new(semel);
        command.args(["serve", "--lease", "5s", "--wait", "2s", "--listen", &address.to_string()]);
        command.args(["--admin", &admin.to_string(), "--config"]).arg(config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let gateway = Self { address, admin, process: command.spawn().expect("semel starts") };
        while TcpStream::connect(admin).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        gateway
    }
}

/// It is free until another process takes it.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}
