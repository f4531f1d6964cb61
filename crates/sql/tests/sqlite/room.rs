//! No room, and no permission.

use crate::child::{Part, Playing, command, in_shell};
use crate::scratch::{Scratch, claimed, finished, id};
use semel_core::store::Store as _;
use std::process::{Command, Stdio};

/// How to start something that may mount: as root, or as whoever we are in a user namespace of our own.
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
fn a_full_disk_is_told_as_such_and_writing_goes_on_once_there_is_room() {
    let scratch = Scratch::new("full");
    let script =
        format!("mount -t tmpfs -o size=4m tmpfs '{}' && exec \"$@\"", scratch.directory().display());
    assert!(Playing::start(in_shell(&namespace(), &script, Part::Fill, &scratch.file())).ended());
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_file_system_is_told_as_such() {
    let scratch = Scratch::new("read-only");
    // A file that is in order, and a directory that takes no more.
    assert!(Playing::start(command(Part::Open, &scratch.file(), 1)).ended());
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let script = script.replace("$0", &scratch.directory().display().to_string());
    assert!(Playing::start(in_shell(&namespace(), &script, Part::ReadOnly, &scratch.file())).ended());
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_before_writes_began_to_fail_is_there() {
    let scratch = Scratch::new("limited");
    // In blocks of 512 bytes; past it a write fails, and does not kill.
    let script = "trap '' XFSZ; ulimit -f 4000; exec \"$@\"";
    let mut playing = Playing::start(in_shell(&[], script, Part::Grow, &scratch.file()));
    let mut acknowledged = Vec::new();
    while let Some(told) = playing.told("acknowledged") {
        acknowledged.push(told[0]);
    }
    assert!(playing.ended());
    let store = scratch.open();
    for number in acknowledged {
        let expected = finished(&claimed(number), vec![7; 50_000]);
        assert!(store.get(id(number)).await.expect("read").record() == Some(&expected), "{number}");
    }
    assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
}
