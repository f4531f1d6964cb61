//! Passwords for the servers of stores. A store's URL never contains one: it says where to read it.

use crate::named_file::{self, Limit};
use std::env::VarError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

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

    /// Reads it. Call this for every connection, so that a password can be changed while nodes run.
    pub fn read(&self) -> Result<Vec<u8>, PasswordError> {
        match self {
            Self::Variable(name) => std::env::var(name)
                .map(String::into_bytes)
                .map_err(|error| PasswordError::of_variable(name, &error)),
            Self::File(path) => {
                let mut bytes = named_file::read(path, LIMIT)
                    .map_err(|source| PasswordError::File { path: path.clone(), source })?;
                while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                    bytes.pop();
                }
                Ok(bytes)
            }
        }
    }
}

/// Why a password cannot be read, and which parameter named it.
#[derive(Debug, Error)]
pub enum PasswordError {
    /// The environment has no variable of this name.
    #[error("environment variable not found: password=env:{0} in the store's URL names this variable")]
    VariableNotFound(String),
    /// The value of the variable of this name is not text.
    #[error("environment variable is not UTF-8: password=env:{0} in the store's URL names this variable")]
    VariableNotUtf8(String),
    /// The file cannot be read.
    #[error("password=file:{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl PasswordError {
    /// `error` is not kept: it has the value of a variable that is not UTF-8, here the password.
    fn of_variable(name: &str, error: &VarError) -> Self {
        match error {
            VarError::NotPresent => Self::VariableNotFound(name.to_owned()),
            VarError::NotUnicode(_) => Self::VariableNotUtf8(name.to_owned()),
        }
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
        assert_eq!(Password::File(file.clone()).read().expect("a password"), b" hunter2 ");
        let missing = Password::File(folder.join("none")).read().expect_err("no such file");
        let shown = missing.to_string();
        assert!(shown.starts_with(&format!("password=file:{}/none: ", folder.path().display())), "{shown}");
        let PasswordError::File { path, source } = missing else { panic!("{missing:?}") };
        assert_eq!((path, source.kind()), (folder.join("none"), io::ErrorKind::NotFound));
        let unset =
            Password::Variable("SEMEL_NO_SUCH_VARIABLE".to_owned()).read().expect_err("it is not set");
        assert_eq!(
            unset.to_string(),
            "environment variable not found: password=env:SEMEL_NO_SUCH_VARIABLE in the store's URL names this variable"
        );
    }

    #[test]
    fn an_error_does_not_show_a_password_that_is_not_text() {
        let error = VarError::NotUnicode("hunter2".into());
        assert!(error.to_string().contains("hunter2"), "otherwise the error could be shown");
        let shown = PasswordError::of_variable("SECRET", &error);
        assert_eq!(
            shown.to_string(),
            "environment variable is not UTF-8: password=env:SECRET in the store's URL names this variable"
        );
        assert!(!format!("{shown:?}").contains("hunter2"), "{shown:?}");
    }
}
