//! The upstream: answers each request at once, with as little work as possible.

use crate::message;
use std::error::Error;
use std::io::Write as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

/// Serves until the process is killed. Prints its address on a line.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        loop {
            let (stream, _) = listener.accept().await?;
            // The client reports a broken connection.
            tokio::spawn(async move { drop(connection(stream).await) });
        }
    })
}

async fn connection(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 16 * 1024];
    while message::read(&mut stream, &mut buffer).await?.is_some() {
        stream.write_all(message::RESPONSE).await?;
    }
    Ok(())
}
