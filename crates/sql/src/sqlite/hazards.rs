//! Hazards of the file's location and settings.
//!
//! Contents: checks of the writing connection's settings, the file system, and the file's name. The file is
//! never opened without SQLite.

use super::files::{LostFile, OpenFiles, Part};
use super::open::{FULL, File};
use semel_core::store::{Error, Hazard, Severity};
use std::path::Path;

/// The settings of the writer's connection (`synchronous` and the journal mode), or why they are not known.
pub(super) type Settings = Result<(i64, String), Error>;

/// All hazards. `failed` is why pages are no longer moved from the log into the file.
pub(super) fn find(file: &File, files: &OpenFiles, settings: Settings, failed: Option<&str>) -> Vec<Hazard> {
    let set = match settings {
        Ok((synchronous, journal_mode)) => self::settings(synchronous, &journal_mode),
        Err(error) => vec![settings_unverified(&error)],
    };
    let location =
        [file_system(&file.path), files.lost().as_ref().map(lost), failed.map(not_moved), long_log(file)];
    set.into_iter().chain(location.into_iter().flatten()).collect()
}

/// The hazards that a reader can see. The settings of a writer's connection are not visible to it, but every
/// writer refuses unsafe ones.
pub(super) fn from_outside(file: &File, journal_mode: rusqlite::Result<String>) -> Vec<Hazard> {
    let set = match journal_mode {
        Ok(mode) => settings(FULL, &mode),
        Err(error) => vec![settings_unverified(&error)],
    };
    set.into_iter().chain(file_system(&file.path)).chain(long_log(file)).collect()
}

fn settings_unverified(error: &dyn std::error::Error) -> Hazard {
    Hazard {
        severity: Severity::Unverified,
        code: "sqlite-settings-unverified",
        what: format!("the settings for writing the file could not be read: {error}"),
        fix: "check again when the store answers".to_owned(),
    }
}

fn settings(synchronous: i64, journal_mode: &str) -> Vec<Hazard> {
    let mut found = Vec::new();
    if synchronous < FULL {
        found.push(Hazard {
            severity: Severity::Danger,
            code: "sqlite-synchronous",
            what: format!(
                "SQLite is set to synchronous={synchronous}: commits do not wait for the disk, and a power \
                 failure can take back outcomes that were acknowledged"
            ),
            fix: "set PRAGMA synchronous=FULL; nothing in this software sets less".to_owned(),
        });
    }
    if journal_mode != "wal" {
        found.push(Hazard {
            severity: Severity::Danger,
            code: "sqlite-journal-mode",
            what: format!("the journal mode is {journal_mode}: readers and the writer block each other"),
            fix: "set PRAGMA journal_mode=WAL, and find out who changed it".to_owned(),
        });
    }
    found
}

/// One of the files was renamed or removed. SQLite does not do that while the database is open.
fn lost(lost: &LostFile) -> Hazard {
    let code = match lost.part {
        Part::Database => "sqlite-file-replaced",
        Part::Log => "sqlite-log-replaced",
        Part::LogIndex => "sqlite-log-index-replaced",
    };
    Hazard {
        severity: Severity::Danger,
        code,
        what: format!(
            "{lost}: the store answers nothing more, and what was written since cannot be relied on"
        ),
        fix: lost.remedy().to_owned(),
    }
}

/// The disk failed while pages were moved from the log into the file.
fn not_moved(reason: &str) -> Hazard {
    Hazard {
        severity: Severity::Danger,
        code: "sqlite-checkpoint-failed",
        what: format!(
            "the disk failed while what was written was moved from the log into the file ({reason}): the log is kept \
             and grows, and the file alone is not complete"
        ),
        fix: "look at the disk; stop this process, copy the file together with its -wal, and open the store again"
            .to_owned(),
    }
}

/// A reader prevents a restart of the log.
fn long_log(file: &File) -> Option<Hazard> {
    let bytes = std::fs::metadata(file.wal()).map_or(0, |found| found.len());
    (bytes > file.wal_bytes_max.saturating_mul(4)).then(|| Hazard {
        severity: Severity::Notice,
        code: "sqlite-long-log",
        what: format!(
            "the write-ahead log has grown to {} MiB: a reader holds on to an old state of the file, and the log \
             cannot be used again from its beginning until it lets go",
            bytes >> 20
        ),
        fix: "look for a backup or a forgotten transaction that has the file open".to_owned(),
    })
}

#[cfg(target_os = "linux")]
fn file_system(path: &Path) -> Option<Hazard> {
    match rustix::fs::statfs(path) {
        Ok(system) => by_magic(u64::from_ne_bytes(system.f_type.to_ne_bytes()) & 0xffff_ffff),
        Err(error) => Some(unverified(&format!("it could not be asked for ({error})"))),
    }
}

#[cfg(not(target_os = "linux"))]
fn file_system(_: &Path) -> Option<Hazard> {
    Some(unverified("on this operating system it is not looked at"))
}

/// By the magic number from `statfs`; see `linux/magic.h`.
#[cfg(target_os = "linux")]
fn by_magic(magic: u64) -> Option<Hazard> {
    let shared = |name| Hazard {
        severity: Severity::Danger,
        code: "sqlite-network-file-system",
        what: format!(
            "the file is on {name}: locks and shared memory do not work across machines, and two of them can \
             damage it"
        ),
        fix: "move the file to a local disk, or use a database server".to_owned(),
    };
    let memory = |name| Hazard {
        severity: Severity::Danger,
        code: "sqlite-in-memory",
        what: format!("the file is on {name}, which is lost when the machine stops"),
        fix: "move the file to a disk".to_owned(),
    };
    match magic {
        0x6969 => Some(shared("NFS")),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some(shared("SMB/CIFS")),
        0x0102_1997 => Some(shared("9p")),
        0x5346_414f | 0x6b41_4653 => Some(shared("AFS")),
        0x00c3_6400 => Some(shared("CephFS")),
        0x0bd0_0bd0 => Some(shared("Lustre")),
        0x7461_636f => Some(shared("OCFS2")),
        0x4750_4653 => Some(shared("GPFS")),
        0x1983_0326 => Some(shared("BeeGFS")),
        0x2003_0528 => Some(shared("OrangeFS")),
        0xbacb_acbc => Some(shared("a VMware shared folder")),
        0x0116_1970 => Some(shared("GFS2")),
        0x786f_4256 => Some(shared("a VirtualBox shared folder")),
        0x0102_1994 => Some(memory("tmpfs")),
        0x8584_58f6 => Some(memory("ramfs")),
        0x6573_5546 => Some(unverified("it is a FUSE file system, which may do anything")),
        _ => None,
    }
}

fn unverified(reason: &str) -> Hazard {
    Hazard {
        severity: Severity::Unverified,
        code: "sqlite-file-system-unverified",
        what: format!("whether the file system keeps what SQLite needs of it is not known: {reason}"),
        fix: "make sure that the file is on a local disk".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_full_durability_is_a_hazard() {
        let codes = |synchronous, mode| -> Vec<_> {
            settings(synchronous, mode).into_iter().map(|found| (found.severity, found.code)).collect()
        };
        assert_eq!(codes(2, "wal"), []);
        assert_eq!(codes(3, "wal"), []);
        assert_eq!(codes(1, "wal"), [(Severity::Danger, "sqlite-synchronous")]);
        assert_eq!(codes(2, "delete"), [(Severity::Danger, "sqlite-journal-mode")]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn file_systems_with_unreliable_locks_or_storage_are_named() {
        let severity = |magic| by_magic(magic).map(|found| (found.severity, found.code));
        for magic in [
            0x6969,
            0xff53_4d42,
            0xfe53_4d42,
            0x0102_1997,
            0x4750_4653,
            0x1983_0326,
            0x2003_0528,
            0xbacb_acbc,
        ] {
            assert_eq!(severity(magic), Some((Severity::Danger, "sqlite-network-file-system")), "{magic:x}");
        }
        assert_eq!(severity(0x0102_1994), Some((Severity::Danger, "sqlite-in-memory")));
        assert_eq!(severity(0x6573_5546), Some((Severity::Unverified, "sqlite-file-system-unverified")));
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1, 0x794c_7630] {
            assert_eq!(severity(local), None, "{local:x}");
        }
    }
}
