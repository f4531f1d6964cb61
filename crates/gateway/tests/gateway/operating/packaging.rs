//! The files in `packaging/`: each is checked by the program that reads it, if that is installed.

use super::{repository, run, text};
use crate::tools;
use crate::world::Scratch;
use std::process::Command;

#[test]
fn systemd_takes_the_unit_and_finds_it_well_closed() {
    let Some(analyze) = tools::program("systemd-analyze") else { return };
    let scratch = Scratch::new();
    // The unit refers to an installed program; the one under test is not installed.
    let unit = text("packaging/systemd/semel.service").replace("/usr/bin/semel", env!("CARGO_BIN_EXE_semel"));
    let path = scratch.write("semel.service", &unit);
    let output = run(Command::new(&analyze).args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path));
    assert!(!output.contains("semel.service:"), "{output}");
    // The score ranges from 0 (fully locked down) to 100 (open).
    run(Command::new(&analyze)
        .args(["security", "--no-pager", "--offline=true", "--threshold=20"])
        .arg(&path));
}

#[test]
fn nginx_takes_its_sample() {
    let Some(nginx) = tools::program("nginx") else { return };
    let scratch = Scratch::new();
    // On a Unix socket: the port may be in use, or not permitted.
    let server = text("packaging/front/nginx.conf").replace("listen 80;", "listen unix:front.sock;");
    assert!(server.contains("front.sock"));
    let around = format!(
        "pid nginx.pid; events {{ }} http {{ access_log off; client_body_temp_path t1; proxy_temp_path t2; \
         fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n{server}\n}}"
    );
    let path = scratch.write("nginx.conf", &around);
    let folder = path.parent().expect("a folder");
    let mut command = Command::new(nginx);
    run(command.args(["-t", "-e", "stderr", "-p"]).arg(folder).arg("-c").arg(&path).current_dir(folder));
}

#[test]
fn haproxy_takes_its_sample() {
    let Some(haproxy) = tools::program("haproxy") else { return };
    run(Command::new(haproxy).args(["-c", "-f"]).arg(repository("packaging/front/haproxy.cfg")));
}

#[test]
fn the_manifests_fit_their_schemas_and_nothing_runs_as_root() {
    let Some(python) = tools::python() else { return };
    let files = [
        "kubernetes/gateway.yml",
        "kubernetes/sidecar.yml",
        "kubernetes/podmonitor.yml",
        "compose/compose.yml",
        "front/envoy.yml",
    ];
    let files = files.map(|file| repository(&format!("packaging/{file}")));
    let script = repository("crates/gateway/tests/gateway/operating/scripts/manifests.py");
    let output = run(Command::new(python).arg(script).args(files));
    assert!(output.ends_with("done\n"), "{output}");
}

#[test]
fn the_configuration_for_compose_has_no_mistake() {
    let scratch = Scratch::new();
    let secret = scratch.write("hashing_secret", "5e".repeat(32));
    let shipped = text("packaging/compose/semel.toml");
    let adapted = shipped.replace("/run/secrets/hashing_secret", &secret.to_string_lossy());
    assert_ne!(adapted, shipped, "compose.yml provides the secret as a file");
    let path = scratch.write("semel.toml", &adapted);
    run(Command::new(env!("CARGO_BIN_EXE_semel")).args(["config", "check"]).arg(path));
}

/// The configuration in a manifest: the indented lines below its name.
fn configuration(manifest: &str) -> String {
    let block = manifest.lines().skip_while(|line| *line != "  semel.toml: |").skip(1);
    let block = block.take_while(|line| line.is_empty() || line.starts_with("    "));
    block.map(str::trim_start).collect::<Vec<_>>().join("\n")
}

#[test]
fn each_manifests_configuration_lacks_only_a_token() {
    for file in ["gateway.yml", "sidecar.yml"] {
        let scratch = Scratch::new();
        let shipped = configuration(&text(&format!("packaging/kubernetes/{file}")));
        let check = |config: &str| {
            let path = scratch.write("semel.toml", config);
            let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
            command.args(["config", "check"]).arg(path);
            command
        };
        let refused = check(&shipped).output().expect("it runs");
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{file} contains a token that anybody can read");
        assert_eq!(errors.matches("`hash` is not the hash of a token").count(), 1, "{errors}");
        let with_token = shipped.replace("REPLACE-ME", &semel_admin::TokenHash::of("s3cret").digits());
        run(&mut check(&with_token));
    }
}
