//! Who runs this command, for histories.

use semel_admin::COMMAND_LINE;

/// The name in the history for actions from this process: `cli:` and the effective user, by its name in the system's list of
/// users, otherwise its number. The system says who that is; the environment could say anything.
#[cfg(unix)]
pub(super) fn name() -> String {
    use crate::bounded_read::{FileKind, read_text};
    let id = rustix::process::geteuid().as_raw();
    let users = read_text(std::path::Path::new("/etc/passwd"), FileKind::Users).unwrap_or_default();
    let user = named(&users, id).unwrap_or_else(|| format!("uid-{id}"));
    format!("{COMMAND_LINE}{user}")
}

/// The name in the history for actions from this process, on systems that this program cannot ask for its user.
#[cfg(not(unix))]
pub(super) fn name() -> String {
    COMMAND_LINE.trim_end_matches(':').to_owned()
}

/// The first user with this number: `name:password:number:…` in each line.
#[cfg(unix)]
fn named(users: &str, id: u32) -> Option<String> {
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    });
    name.filter(|name| !name.is_empty() && semel_text::printable::is_all_printable(name)).map(str::to_owned)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/:\n\nbroken\n:x:7:7:::\nx\u{202e}:x:8:8:::\n";
        assert_eq!(named(users, 0).as_deref(), Some("root"));
        assert_eq!(named(users, 1000).as_deref(), Some("ada"));
        for unknown in [1, 7, 8, 100_000] {
            assert_eq!(named(users, unknown), None, "{unknown}");
        }
    }
}
