//! Valkey, from `PATH` or from Debian's unstable distribution. The packages are unpacked into the server's
//! own folder; the system is not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{PID_FILE, USER, info, missing_packages, program, start, stop, url};
use crate::cargo;
use crate::services::home::{Home, describe};
use crate::services::server::Server;
use crate::tools::packages;
use semel_test_support::launcher::redis;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The kind of server.
pub(in crate::services) struct Valkey;

impl Server for Valkey {
    fn name(&self) -> &'static str {
        "valkey"
    }

    fn variable(&self) -> &'static str {
        "SEMEL_TEST_VALKEY_URL"
    }

    fn user(&self) -> &'static str {
        USER
    }

    /// It uses the user and the client of Redis.
    fn missing_packages(&self) -> Vec<&'static str> {
        missing_packages()
    }

    fn url(&self, port: u16) -> String {
        url(port)
    }

    fn pid_file(&self) -> &'static str {
        PID_FILE
    }

    fn start(&self, home: &Home, port: u16, _: Option<&str>) -> Result<(), String> {
        let server = server(home)?;
        start(home, server, &home.data(), port, &[])
    }

    fn stop(&self, home: &Home) -> Result<(), String> {
        stop(home, &home.data())
    }

    fn version(&self, url: &str) -> Result<String, String> {
        info(url, "valkey_version")
    }
}

/// The installed program, or an unpacked one with its libraries.
fn server(home: &Home) -> Result<Command, String> {
    if let Some(installed) = program("valkey-server") {
        return Ok(home.command(&installed));
    }
    let root = home.path("root");
    if redis::unpacked_valkey(&root).is_none() {
        unpack(home, &root)?;
    }
    let unpacked = redis::unpacked_valkey(&root).ok_or("the package of valkey-server lacks the program")?;
    let mut server = home.command(Path::new(&unpacked[0]));
    server.args(&unpacked[1..]);
    Ok(server)
}

fn unpack(home: &Home, root: &Path) -> Result<(), String> {
    if !packages::is_root() {
        return Err("valkey-server is not installed, and only root can fetch it from Debian".to_owned());
    }
    let mirror = mirror().ok_or("valkey-server is not installed, and this is not Debian")?;
    eprintln!("fetching valkey-server from {mirror}");
    let apt = home.path("apt");
    for folder in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(folder)).map_err(|error| describe(&apt, &error))?;
    }
    let write = |name: &str, text: &str| {
        let path = apt.join(name);
        fs::write(&path, text).map_err(|error| describe(&path, &error))
    };
    write("sources.list", &format!("deb [signed-by={KEYRING}] {mirror} sid main\n"))?;
    // As if nothing were installed, so that every library is included.
    write("status", "")?;
    for arguments in [
        &["update", "-q"][..],
        &["install", "-y", "-q", "--download-only", "--no-install-recommends", "valkey-server"],
    ] {
        let mut command = cargo::program("apt-get");
        for (name, value) in [
            ("Dir::Etc::sourcelist", apt.join("sources.list")),
            ("Dir::Etc::sourceparts", PathBuf::from("-")),
            ("Dir::State::lists", apt.join("lists")),
            ("Dir::State::status", apt.join("status")),
            ("Dir::Cache", apt.join("cache")),
        ] {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        }
        // The user that apt downloads as may not be able to enter the folder.
        command.args(["-o", "APT::Sandbox::User=root"]).args(arguments);
        cargo::capture(command)?;
    }
    let half = home.path("root.new");
    let archives = apt.join("cache/archives");
    for entry in fs::read_dir(&archives).map_err(|error| describe(&archives, &error))?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "deb") {
            let mut extract = cargo::program("dpkg-deb");
            extract.arg("-x").arg(entry.path()).arg(&half);
            cargo::capture(extract)?;
        }
    }
    fs::rename(&half, root).map_err(|error| describe(root, &error))
}

/// The system's own mirror.
fn mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let more = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(more.map(|entry| entry.path()));
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.flat_map(|text| mirrors(&text)).next()
}

fn mirrors(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(str::split_whitespace);
    let is_mirror = |word: &&str| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian");
    words.filter(is_mirror).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_mirror_is_found_in_both_formats() {
        let text = "# http://old.example/debian\nURIs: http://a.example/debian\ndeb http://b.example/debian/ bookworm main\n\
                    deb http://b.example/debian-security bookworm main\n";
        assert_eq!(mirrors(text), ["http://a.example/debian", "http://b.example/debian/"]);
    }
}
