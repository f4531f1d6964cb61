//! Starts the servers for a test run, and stops those that it started. If a server cannot be started, the run
//! fails.

use std::process::Command;

use super::{Ready, SERVERS, Server, Services, Source, advise, try_external};
use crate::report::Verdict;

/// Every server that tests may need, started or found.
#[derive(Default)]
pub(crate) struct TestServers {
    services: Services,
    ready: Vec<Ready>,
    started: Vec<&'static dyn Server>,
}

impl TestServers {
    /// Starts those that do not run, as a step of the test run. Each unavailable server is a failure of the
    /// step.
    pub(crate) fn up(&mut self) -> Verdict {
        self.up_of(|_| true)
    }

    /// Starts only the named ones.
    pub(crate) fn up_named(&mut self, names: &[&str]) -> Verdict {
        self.up_of(|server| names.contains(&server.name()))
    }

    fn up_of(&mut self, is_wanted: impl Fn(&dyn Server) -> bool) -> Verdict {
        let mut failures = Vec::new();
        for server in SERVERS.iter().filter(|server| is_wanted(**server)) {
            match self.provide(*server) {
                Ok(ready) => {
                    if let Source::Private { is_new: true, .. } = ready.source {
                        self.started.push(*server);
                    }
                    self.ready.push(ready);
                }
                Err(reason) => failures.push(format!("{} is needed: {reason}", server.name())),
            }
        }
        if failures.is_empty() { Verdict::Passed } else { Verdict::Failed(failures) }
    }

    fn provide(&self, server: &dyn Server) -> Result<Ready, String> {
        let ready = self.services.up(server).map_err(|reason| advise(server, &reason))?;
        if let Source::External = ready.source {
            try_external(server, &ready)?;
        }
        Ok(ready)
    }

    /// Sets the variables that name the servers to the tests.
    pub(crate) fn hand_to(&self, tests: &mut Command) {
        for ready in &self.ready {
            tests.env(ready.variable, &ready.url);
        }
    }

    /// Stops those that this run started. A server that cannot be stopped does not fail the tests.
    pub(crate) fn down(&mut self) {
        while let Some(server) = self.started.pop() {
            if let Err(reason) = self.services.down(server) {
                eprintln!("{} was not stopped: {reason}", server.name());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers from the environment are used unchanged, so this needs no server.
    fn with(name: &str, environment: fn(&str) -> Option<String>) -> TestServers {
        let folder = std::env::temp_dir().join(format!("semel-servers-{name}-{}", std::process::id()));
        TestServers { services: Services { folder, environment }, ..TestServers::default() }
    }

    #[test]
    fn each_unavailable_server_is_a_failure_with_advice() {
        let mut servers = with("all", |_| Some("postgres://127.0.0.1:1/semel".to_owned()));
        let verdict = servers.up();
        std::fs::remove_dir_all(&servers.services.folder).unwrap();
        let Verdict::Failed(lines) = verdict else { panic!("nothing listens there") };
        assert_eq!(lines.len(), SERVERS.len());
        for (line, server) in lines.iter().zip(SERVERS) {
            let named = format!("{} names it", server.variable());
            assert!(line.starts_with(&format!("{} is needed: ", server.name())), "{line}");
            assert!(line.contains(&named), "{line}");
        }
    }

    #[test]
    fn no_private_standby_is_made_of_an_external_server() {
        let servers = with("own", |name| {
            (name == "SEMEL_TEST_POSTGRES_URL").then(|| "postgres://127.0.0.1:1/semel".to_owned())
        });
        for server in SERVERS.iter().filter(|server| server.needs().is_some()) {
            let refused = servers.provide(*server).unwrap_err();
            assert!(refused.contains(&format!("set {} too", server.variable())), "{refused}");
        }
        std::fs::remove_dir_all(&servers.services.folder).unwrap();
    }

    #[test]
    fn tests_get_every_url() {
        let ready = |variable, url: &str| Ready { variable, url: url.to_owned(), source: Source::External };
        let servers = TestServers {
            ready: vec![ready("SEMEL_TEST_A_URL", "a:1"), ready("SEMEL_TEST_B_URL", "b:2")],
            ..TestServers::default()
        };
        let mut command = Command::new("true");
        servers.hand_to(&mut command);
        let variables: Vec<_> =
            command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))).collect();
        assert_eq!(variables, [("SEMEL_TEST_A_URL", "a:1"), ("SEMEL_TEST_B_URL", "b:2")]);
    }
}
