//! How a run is stored: its exit code and the end of its output, as the outcome of its record.

use super::program::tail::Tail;
use bytes::Bytes;
use semel::core::outcome::{Body, Outcome};

const EXIT_CODE: &str = "exit-code";
const STDOUT_BYTES: &str = "stdout-bytes";
const STDOUT_CUT: &str = "stdout-cut";
const STDERR_CUT: &str = "stderr-cut";

/// The outcome of a program that has exited.
pub(super) fn outcome(code: i32, stdout: &Tail, stderr: &Tail) -> Outcome {
    let ((out, out_cut), (err, err_cut)) = (stdout.parts(), stderr.parts());
    let headers = [
        (EXIT_CODE, code.to_string()),
        (STDOUT_BYTES, out.len().to_string()),
        (STDOUT_CUT, out_cut.to_string()),
        (STDERR_CUT, err_cut.to_string()),
    ];
    Outcome { headers: headers.into_iter().collect(), ..Outcome::value([out, err].concat()) }
}

/// A stored run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredRun {
    /// `None` if the outcome was not stored by this command, or cannot be read.
    pub(super) code: Option<i32>,
    /// `false` if nothing is known about the output.
    pub(super) has_output: bool,
    pub(super) stdout: Bytes,
    pub(super) stderr: Bytes,
    /// How many bytes before these were not stored.
    pub(super) stdout_cut: u64,
    pub(super) stderr_cut: u64,
}

impl StoredRun {
    /// An operator's response has other headers: its body counts as standard output.
    pub(super) fn of(outcome: &Outcome) -> Self {
        let header = |name: &str| {
            let (_, value) = outcome.headers.iter().find(|(known, _)| *known == name.as_bytes())?;
            std::str::from_utf8(value).ok()
        };
        let number = |name| header(name).and_then(|text| text.parse().ok());
        let (body, has_output) = match &outcome.body {
            Body::Kept(bytes) => (bytes.clone(), true),
            Body::NotRetained | Body::Sealed(_) => (Bytes::new(), false),
        };
        let middle = header(STDOUT_BYTES).and_then(|text| text.parse().ok()).unwrap_or(body.len());
        let middle = middle.min(body.len());
        Self {
            code: header(EXIT_CODE).and_then(|text| text.parse().ok()),
            has_output,
            stdout: body.slice(..middle),
            stderr: body.slice(middle..),
            stdout_cut: number(STDOUT_CUT).unwrap_or_default(),
            stderr_cut: number(STDERR_CUT).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::core::outcome::Status;

    #[test]
    fn a_run_is_read_back_as_it_was_stored() {
        let (mut out, mut err) = (Tail::new(4), Tail::new(4));
        out.push(b"123456");
        err.push(b"\xff\n");
        let run = StoredRun::of(&outcome(3, &out, &err));
        assert_eq!((run.code, &run.stdout[..], &run.stderr[..]), (Some(3), &b"3456"[..], &b"\xff\n"[..]));
        assert_eq!((run.stdout_cut, run.stderr_cut, run.has_output), (2, 0, true));
    }

    #[test]
    fn a_response_by_hand_is_standard_output() {
        let run = StoredRun::of(&Outcome::http(201, [("exit-code", "4")], "done"));
        assert_eq!((run.code, &run.stdout[..], run.stderr.len()), (Some(4), &b"done"[..], 0));
        let run = StoredRun::of(&Outcome::not_retained(Status::Http(200)));
        assert_eq!((run.code, run.has_output), (None, false));
    }
}
