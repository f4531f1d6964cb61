//! Which process is the server.

use super::describe;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The process that a pid file names, if it is running and is the server. The number may belong to another process by
/// now, but no other process runs in the server's data folder.
pub fn find(pid_file: &Path, data: &Path) -> Result<Option<u32>, String> {
    if !Path::new("/proc/self/cwd").exists() {
        return Err("a private server needs Linux, whose /proc shows which process is which".to_owned());
    }
    let text = match fs::read_to_string(pid_file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(describe(pid_file, &error)),
    };
    let data = fs::canonicalize(data).map_err(|error| describe(data, &error))?;
    let pid = text.lines().next().and_then(|line| line.trim().parse::<u32>().ok());
    Ok(pid.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder == data)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScratchDir;

    #[test]
    fn a_process_is_the_server_only_in_its_data_folder() {
        let folder = ScratchDir::new("pid");
        let pid_file = folder.join("server.pid");
        let own_folder = std::env::current_dir().unwrap();
        let own_pid = std::process::id();
        let mut found = Vec::new();
        for (text, data) in [
            (format!("{own_pid}\nmore"), own_folder.as_path()),
            (format!("{own_pid}\n"), folder.path()),
            ("4194305\n".to_owned(), &own_folder),
            (String::new(), &own_folder),
            ("-1".to_owned(), &own_folder),
        ] {
            fs::write(&pid_file, text).unwrap();
            found.push(find(&pid_file, data).unwrap());
        }
        fs::remove_file(&pid_file).unwrap();
        assert_eq!(found, [Some(own_pid), None, None, None, None]);
        assert_eq!(find(&pid_file, folder.path()), Ok(None), "no pid file");
    }
}
