//! Libraries of other languages, below `target/`, in the versions that are pinned in committed files.

use std::fs;
use std::path::Path;

use crate::cargo;

const REQUIREMENTS: &str = "crates/gateway/tests/gateway/clients/requirements.txt";
const MANIFEST: &str = "crates/gateway/tests/gateway/clients/package.json";

/// A Python environment with exactly the required packages.
pub(super) fn python(folder: &Path) -> Result<(), String> {
    provide(folder, REQUIREMENTS, || {
        let mut create = cargo::program("python3");
        create.args(["-m", "venv", "--clear"]).arg(folder);
        cargo::capture(create)?;
        let mut install = cargo::program(&folder.join("bin/python").to_string_lossy());
        install.args(["-m", "pip", "install", "--quiet", "--no-deps", "-r", REQUIREMENTS]);
        cargo::capture(install).map(drop)
    })
}

/// The Node modules of the manifest.
pub(super) fn node(folder: &Path) -> Result<(), String> {
    provide(folder, MANIFEST, || {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        fs::copy(cargo::root().join(MANIFEST), folder.join("package.json"))
            .map_err(|error| format!("{MANIFEST}: {error}"))?;
        let mut install = cargo::program("npm");
        install.args(["install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]);
        install.current_dir(folder);
        cargo::capture(install).map(drop)
    })
}

/// Installs unless the same list was installed before.
fn provide(folder: &Path, list: &str, install: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let required = fs::read(cargo::root().join(list)).map_err(|error| format!("{list}: {error}"))?;
    let mark = folder.join("installed");
    if fs::read(&mark).is_ok_and(|installed| installed == required) {
        return Ok(());
    }
    println!("installing {list}");
    install()?;
    // Written last: an incomplete folder has no mark, and is created again.
    fs::write(&mark, required).map_err(|error| format!("{}: {error}", mark.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_up_to_date_environment_is_kept_and_another_is_rebuilt() {
        let folder = std::env::temp_dir().join(format!("semel-xtask-provided-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let times = |expected: usize, answer: Result<(), String>| {
            let mut installed = 0;
            let result = provide(&folder, MANIFEST, || {
                installed += 1;
                answer
            });
            assert_eq!(installed, expected);
            result
        };
        assert!(times(1, Err("no network".to_owned())).is_err());
        assert_eq!(times(1, Ok(())), Ok(()), "a failure leaves no mark");
        assert_eq!(times(0, Ok(())), Ok(()));
        fs::write(folder.join("installed"), "another list").unwrap();
        assert_eq!(times(1, Ok(())), Ok(()));
        fs::remove_dir_all(&folder).unwrap();
    }
}
