//! What is found.

use semel::core::store;
use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// Somebody should look.
    Warning,
    /// A promise is not kept, or will not be: somebody has to act.
    Error,
}

impl Severity {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A short name that stays the same.
    pub code: &'static str,
    /// What is wrong, and what can come of it.
    pub what: String,
    /// How to fix it. Its name in JSON is the first one that it had.
    #[serde(rename = "mend")]
    pub fix: String,
}

impl Finding {
    pub(super) fn notice(code: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Notice, code, what: what.into(), fix: fix.into() }
    }

    pub(super) fn warning(code: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, code, what: what.into(), fix: fix.into() }
    }

    /// Of the worst kind.
    pub fn error(code: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, what: what.into(), fix: fix.into() }
    }
}

impl From<store::Hazard> for Finding {
    fn from(hazard: store::Hazard) -> Self {
        let severity = match hazard.severity {
            store::Severity::Notice => Severity::Notice,
            store::Severity::Unverified => Severity::Warning,
            store::Severity::Danger => Severity::Error,
        };
        Self { severity, code: hazard.code, what: hazard.what, fix: hazard.fix }
    }
}
