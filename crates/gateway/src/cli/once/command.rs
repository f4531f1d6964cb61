//! From the flags to the command that the engine recognises.

use super::arguments::Args;
use crate::config::ONCE;
use semel::core::policy::PolicyError;
use semel::core::scope::Caller;
use semel::{Intent, Key, Operation, Policy, Scope, payload};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

/// How much later than the program's timeout the engine's deadline is: for SIGTERM, SIGKILL, and a busy machine.
const DEADLINE_SLACK: Duration = Duration::from_secs(30);

/// What the record promises.
pub(super) fn policy(args: &Args) -> Result<Policy, PolicyError> {
    let longest_run = args.timeout + DEADLINE_SLACK;
    Policy::new(args.class.into()).with(|policy| {
        policy.lease = args.lease;
        policy.work_deadline = longest_run;
        policy.ttl = args.ttl;
        // Programs deny no permission; it only has to fit the lease.
        policy.denied_ttl = args.ttl;
        policy.tombstone = args.tombstone;
        policy.dedup_window = args.dedup_window;
    })
}

/// The program under a key.
pub(super) fn intent(key: Key, policy: Policy, command: &[OsString]) -> Intent {
    let scope = Scope::new(Caller::Anonymous, Operation::named(ONCE));
    Intent::new(scope, key, policy, payload::Raw::from(fingerprinted(command)))
}

/// The arguments, each after its length: no text in one can imitate the boundary to the next.
fn fingerprinted(command: &[OsString]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for argument in command {
        let argument = argument.as_bytes();
        bytes.extend((argument.len() as u64).to_be_bytes());
        bytes.extend(argument);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    fn bytes(command: &[&[u8]]) -> Vec<u8> {
        fingerprinted(&command.iter().map(|part| OsString::from_vec(part.to_vec())).collect::<Vec<_>>())
    }

    #[test]
    fn different_arguments_have_different_fingerprints() {
        let commands: [&[&[u8]]; 7] = [
            &[b"a", b"b"],
            &[b"a b"],
            &[b"ab"],
            &[b"a", b"", b"b"],
            &[b"a", b"b", b""],
            &[b"\xff"],
            &[b"\xfe"],
        ];
        for (index, one) in commands.iter().enumerate() {
            for other in &commands[index + 1..] {
                assert_ne!(bytes(one), bytes(other), "{one:?} {other:?}");
            }
        }
    }
}
