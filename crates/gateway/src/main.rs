//! The program `semel`.
//!
//! **What lives here**: the entry point. **What must never**: anything that a test could not reach through the
//! library.

use std::process::ExitCode;

fn main() -> ExitCode {
    semel_gateway::cli::main()
}
