//! The Lua scripts, each of which the servers run atomically. A script checks everything before it changes
//! anything. A write that is sent twice is refused the second time.

use crate::resp;
use bytes::Bytes;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::sync::LazyLock;

/// A script and the hash by which servers know it.
pub(crate) struct Script {
    text: &'static str,
    hash: LazyLock<String>,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(crate) static $name: Script = Script {
            text: include_str!(concat!("scripts/", $file)),
            hash: LazyLock::new(|| sha1_hex(include_bytes!(concat!("scripts/", $file)))),
        };
    };
}

script!(WRITE, "write.lua");
script!(GET, "get.lua");
script!(LIST, "list.lua");
script!(HEADS, "heads.lua");
script!(FORGET, "forget.lua");
script!(COUNT, "count.lua");
script!(SET, "set.lua");
script!(META, "meta.lua");
script!(MARK, "mark.lua");
script!(COMPLETE, "complete.lua");
script!(ACCEPT, "accept.lua");
script!(EPOCH, "epoch.lua");
script!(PROBE, "probe.lua");
script!(PERSIST, "persist.lua");
script!(PASSED, "passed.lua");

impl Script {
    /// What a server's error says about the script: the command that failed, and whether that was before the
    /// script took effect. Index entries that it wrote until then are corrected when they are found.
    pub(crate) fn failure(&self, error: &str) -> Option<(&'static str, bool)> {
        let (_, rest) = error.split_once("user_script:")?;
        let failed: usize = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        let line = self.text.lines().nth(failed.checked_sub(1)?)?;
        let command = line.split_once("redis.call('")?.1.split('\'').next()?;
        let takes_effect =
            self.text.lines().position(|line| line.contains("redis.call('SET', KEYS[1], next)"));
        Some((command, takes_effect.is_some_and(|takes_effect| failed <= takes_effect + 1)))
    }

    /// The command that runs it, by its hash or with its text.
    pub(crate) fn question(&self, keys: &[&[u8]], arguments: &[&[u8]], by_hash: bool) -> Bytes {
        let count = keys.len().to_string();
        let (verb, script): (&[u8], &[u8]) =
            if by_hash { (b"EVALSHA", self.hash.as_bytes()) } else { (b"EVAL", self.text.as_bytes()) };
        let mut all = Vec::with_capacity(keys.len() + arguments.len() + 3);
        all.extend([verb, script, count.as_bytes()]);
        all.extend_from_slice(keys);
        all.extend_from_slice(arguments);
        resp::command(&all)
    }
}

/// The digest that identifies scripts and detects damage. Nothing secret depends on it.
pub(crate) fn sha1_hex(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes))
}
