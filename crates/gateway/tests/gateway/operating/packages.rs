//! The results of `cargo xtask dist`, checked by the programs that read them: dpkg, tar, man, sha256sum.

use super::{repository, run};
use crate::tools;
use semel_test_support::ScratchDir;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packs the program under test, with this umask.
fn packed(out: &Path, umask: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "umask \"$1\" && shift && exec \"$@\"", "sh", umask, env!("CARGO")]);
    command.args(["xtask", "dist", "--quick", "--program", env!("CARGO_BIN_EXE_semel"), "--out"]).arg(out);
    run(command.current_dir(repository("")));
}

/// The one file whose name has this ending.
fn one(folder: &Path, end: &str) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    assert_eq!(found.len(), 1, "{end}: {found:?}");
    found.remove(0)
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The files that an installation must have, below its prefix.
fn is_whole(prefix: &Path, zsh: &str) {
    for (file, holds) in [
        ("share/bash-completion/completions/semel", "semel__subcmd__records"),
        (zsh, "#compdef semel"),
        ("share/fish/vendor_completions.d/semel.fish", "complete -c semel"),
        ("lib/systemd/system/semel.service", "AmbientCapabilities=CAP_NET_BIND_SERVICE"),
        ("share/doc/semel/examples/semel.toml", "[listen]"),
        ("share/doc/semel/LICENSE-MIT", "MIT"),
        ("share/doc/semel/operations/alerts.yml", "alert:"),
    ] {
        let text =
            std::fs::read_to_string(prefix.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(holds), "{file} lacks {holds}");
    }
    let answer = run(Command::new(prefix.join("bin/semel")).arg("--version"));
    assert!(answer.starts_with(&format!("semel {}", version())), "{answer}");
    if let Some(man) = tools::program("man") {
        for (page, holds) in [("semel.1.gz", "idempotency"), ("semel-records-resolve.1.gz", "--reason")] {
            let mut command = Command::new(&man);
            command.args(["--local-file", "--no-hyphenation"]).arg(prefix.join("share/man/man1").join(page));
            let text = run(command.env("MANPAGER", "cat").env("MAN_KEEP_FORMATTING", "").env("LC_ALL", "C"));
            assert!(text.replace('\u{8}', "").contains(holds), "{page}: {text}");
        }
    }
}

#[test]
fn the_packages_hold_all_that_an_installation_needs() {
    if tools::program("dpkg-deb").is_none() {
        return;
    }
    let scratch = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "packages");
    let out = scratch.join("out");
    packed(&out, "022");
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out));
    assert_eq!(std::fs::read_to_string(out.join("SHA256SUMS")).expect("it").lines().count(), 3);

    let tarball = one(&out, "-linux.tar.gz");
    let local = scratch.join("local");
    std::fs::create_dir(&local).expect("a folder");
    run(Command::new("tar").args(["--strip-components=1", "-xzf"]).arg(&tarball).arg("-C").arg(&local));
    is_whole(&local, "share/zsh/site-functions/_semel");

    let package = one(&out, ".deb");
    let about = run(Command::new("dpkg-deb").arg("-I").arg(&package));
    for line in ["Package: semel", &format!("Version: {}", version()), "Depends: libc6 (>= 2."] {
        assert!(about.contains(line), "{about}");
    }
    let listed = run(Command::new("dpkg-deb").arg("-c").arg(&package));
    assert!(listed.lines().all(|line| line.contains(" root/root ")), "{listed}");
    assert!(listed.contains("./etc/semel/") && !listed.contains("semel.db"), "{listed}");
    let root = scratch.join("root");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root));
    is_whole(&root.join("usr"), "share/zsh/vendor-completions/_semel");

    let context = one(&out, "-container.tar.gz");
    let listed = run(Command::new("tar").arg("-tzf").arg(&context));
    assert!(listed.contains("/Containerfile") && listed.contains("/semel\n"), "{listed}");

    // Neither the umask nor the time changes a byte.
    let again = scratch.join("again");
    packed(&again, "077");
    let sums = [&out, &again].map(|out| std::fs::read_to_string(out.join("SHA256SUMS")).expect("checksums"));
    assert_eq!(sums[0], sums[1]);
}
