//! No space, and no permission.

use crate::child::{ChildProcess, Part, command, in_shell};
use crate::scratch::{Scratch, claimed, finished, id};
use semel_core::store::Store as _;
use std::process::{Command, Stdio};

/// How to start a process that may mount: as root, or in a user namespace.
fn namespace() -> Vec<&'static str> {
    let ways = [vec!["unshare", "--mount"], vec!["unshare", "--user", "--map-root-user", "--mount"]];
    let works = |way: &Vec<&str>| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ways.into_iter()
        .find(works)
        .expect("this test mounts a small file system: it needs `unshare`, and root or user namespaces")
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_writing_resumes_with_space() {
    let scratch = Scratch::new("full");
    let script =
        format!("mount -t tmpfs -o size=8m tmpfs '{}' && exec \"$@\"", scratch.directory().display());
    assert!(ChildProcess::start(in_shell(&namespace(), &script, Part::Fill, &scratch.file())).ended());
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_file_system_is_reported() {
    let scratch = Scratch::new("read-only");
    // An intact file, in a directory that cannot be written.
    assert!(ChildProcess::start(command(Part::Open, &scratch.file(), 1)).ended());
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let script = script.replace("$0", &scratch.directory().display().to_string());
    assert!(ChildProcess::start(in_shell(&namespace(), &script, Part::ReadOnly, &scratch.file())).ended());
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_later_write_failures() {
    let scratch = Scratch::new("limited");
    // In blocks of 512 bytes; beyond it a write fails without a signal.
    let script = "trap '' XFSZ; ulimit -f 4000; exec \"$@\"";
    let mut child = ChildProcess::start(in_shell(&[], script, Part::Grow, &scratch.file()));
    let mut acknowledged = Vec::new();
    while let Some(numbers) = child.next_numbers("acknowledged") {
        acknowledged.push(numbers[0]);
    }
    assert!(child.ended());
    let store = scratch.open();
    for number in acknowledged {
        let expected = finished(&claimed(number), vec![7; 50_000]);
        assert!(store.get(id(number)).await.expect("read").record() == Some(&expected), "{number}");
    }
    assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
}
