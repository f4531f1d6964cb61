//! Passwords for the servers of stores. A store's URL never contains one: it says where to read it.

use crate::named_file::{self, Limit};
use std::env::VarError;
use std::path::PathBuf;

/// The limit for files with a password.
const LIMIT: Limit = Limit { bytes_max: 64 << 10, of: "a password" };

/// Where a password is read from: the parameter `password` of a store's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Password {
    /// `env:NAME`: this environment variable.
    Variable(String),
    /// `file:PATH`: this file, without its line breaks at the end.
    File(PathBuf),
}

impl Password {
    /// The meaning of a parameter's value. If it has none, it may be the password itself, and must not be repeated.
    pub fn parse(value: &str) -> Option<Self> {
        match value.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Some(Self::Variable(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Some(Self::File(PathBuf::from(path))),
            _ => None,
        }
    }

    /// Reads it. Call this for every connection, so that a password can be changed while nodes run. An error says why it
    /// cannot be read, and which parameter named it.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Variable(name) => std::env::var(name).map(String::into_bytes).map_err(|error| {
                let problem = without_value(&error);
                format!("{problem}: password=env:{name} in the store's URL names this variable")
            }),
            Self::File(path) => {
                let mut bytes = named_file::read(path, LIMIT)
                    .map_err(|error| format!("password=file:{}: {error}", path.display()))?;
                while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                    bytes.pop();
                }
                Ok(bytes)
            }
        }
    }
}

/// The error itself shows the value of a variable that is not UTF-8: here, the password.
fn without_value(error: &VarError) -> &'static str {
    match error {
        VarError::NotPresent => "environment variable not found",
        VarError::NotUnicode(_) => "environment variable is not UTF-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_test_support::ScratchDir;

    #[test]
    fn only_the_place_of_a_password_is_understood() {
        assert_eq!(Password::parse("env:SECRET"), Some(Password::Variable("SECRET".to_owned())));
        assert_eq!(Password::parse("file:/a:b"), Some(Password::File("/a:b".into())));
        for bad in ["", "hunter2", "hunter2:x", "env:", "file:", "ENV:SECRET"] {
            assert_eq!(Password::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_password_is_read_without_the_line_break_of_its_file() {
        let folder = ScratchDir::new("password");
        let file = folder.write("password", " hunter2 \r\n\n");
        assert_eq!(Password::File(file.clone()).read().as_deref(), Ok(&b" hunter2 "[..]));
        let missing = Password::File(folder.join("none")).read().expect_err("no such file");
        assert!(
            missing.starts_with(&format!("password=file:{}/none: ", folder.path().display())),
            "{missing}"
        );
        let unset =
            Password::Variable("SEMEL_NO_SUCH_VARIABLE".to_owned()).read().expect_err("it is not set");
        assert_eq!(
            unset,
            "environment variable not found: password=env:SEMEL_NO_SUCH_VARIABLE in the store's URL names this variable"
        );
    }

    #[test]
    fn an_error_does_not_show_a_password_that_is_not_text() {
        let error = VarError::NotUnicode("hunter2".into());
        assert!(error.to_string().contains("hunter2"), "otherwise the error could be shown");
        assert_eq!(without_value(&error), "environment variable is not UTF-8");
    }
}
