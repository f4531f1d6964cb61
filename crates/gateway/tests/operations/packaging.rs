//! The files in `packaging/`: each is checked by the program that reads it, if that is installed.

use crate::world::Scratch;
use crate::{repository, run, text, tools};
use std::process::Command;

#[test]
fn systemd_takes_the_unit_and_finds_it_well_closed() {
    let Some(analyze) = tools::program("systemd-analyze") else { return };
    let scratch = Scratch::new();
    // The unit names a program that is installed; this one is not.
    let unit = text("packaging/systemd/semel.service").replace("/usr/bin/semel", env!("CARGO_BIN_EXE_semel"));
    let path = scratch.write("semel.service", &unit);
    let said = run(Command::new(&analyze).args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path));
    assert!(!said.contains("semel.service:"), "{said}");
    // From 0, closed to everything, to 100, open to everything.
    run(Command::new(&analyze)
        .args(["security", "--no-pager", "--offline=true", "--threshold=20"])
        .arg(&path));
}

#[test]
fn nginx_takes_its_sample() {
    let Some(nginx) = tools::program("nginx") else { return };
    let scratch = Scratch::new();
    // On a socket in the file system: the port may be somebody's, or not ours to take.
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
    let script = repository("crates/gateway/tests/operations/scripts/manifests.py");
    let said = run(Command::new(python).arg(script).args(files));
    assert!(said.ends_with("done\n"), "{said}");
}

#[test]
fn the_configuration_for_compose_has_no_mistake() {
    let scratch = Scratch::new();
    let secret = scratch.write("hashing_secret", "5e".repeat(32));
    let shipped = text("packaging/compose/semel.toml");
    let own = shipped.replace("/run/secrets/hashing_secret", &secret.to_string_lossy());
    assert_ne!(own, shipped, "compose.yml hands the secret over as a file");
    let path = scratch.write("semel.toml", &own);
    run(Command::new(env!("CARGO_BIN_EXE_semel")).args(["config", "check"]).arg(path));
}

/// The configuration in a manifest: the indented lines below its name.
fn configuration(manifest: &str) -> String {
    let block = manifest.lines().skip_while(|line| *line != "  semel.toml: |").skip(1);
    let block = block.take_while(|line| line.is_empty() || line.starts_with("    "));
    block.map(str::trim_start).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_configuration_in_each_manifest_lacks_a_token_and_is_otherwise_without_a_mistake() {
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
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{file} would open the admin address to whoever reads it");
        assert_eq!(said.matches("`hash` is not the hash of a token").count(), 1, "{said}");
        let own = shipped.replace("REPLACE-ME", &semel_gateway::admin::TokenHash::of("s3cret").digits());
        run(&mut check(&own));
    }
}
