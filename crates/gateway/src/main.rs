//! The program `semel`.

use std::process::ExitCode;

fn main() -> ExitCode {
    semel_gateway::cli::main()
}
