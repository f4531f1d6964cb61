//! What is found.

use semel::core::store;
use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// Somebody should check it.
    Warning,
    /// A guarantee is broken, or will be: somebody has to act.
    Error,
}

impl Severity {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable code.
    pub code: &'static str,
    /// What is wrong, and what can happen.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl Finding {
    pub(super) fn notice(code: &'static str, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Notice, code, what: problem.into(), fix: fix.into() }
    }

    pub(crate) fn warning(code: &'static str, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, code, what: problem.into(), fix: fix.into() }
    }

    /// A finding of severity error.
    pub fn error(code: &'static str, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, what: problem.into(), fix: fix.into() }
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
