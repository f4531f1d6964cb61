//! The arguments of `cargo xtask services`. Unknown ones are errors.

use super::SERVERS;
use super::server::Server;
use crate::failure::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// `export`: print only lines for a shell to evaluate.
    Up {
        export: bool,
    },
    Down,
    Status {
        json: bool,
    },
}

/// Reads the action and the servers; all servers if none is named.
pub(super) fn parse(arguments: &[String]) -> Result<(Action, Vec<&'static dyn Server>), Failure> {
    let usage = |reason: String| Err(Failure::Usage(reason));
    let Some((action, rest)) = arguments.split_first() else {
        return usage("services: expected up, down or status".to_owned());
    };
    let mut action = match action.as_str() {
        "up" => Action::Up { export: false },
        "down" => Action::Down,
        "status" => Action::Status { json: false },
        other => return usage(format!("services: unknown action `{other}`; expected up, down or status")),
    };
    let mut chosen: Vec<&'static dyn Server> = Vec::new();
    for argument in rest {
        match (&mut action, argument.as_str()) {
            (Action::Up { export }, "--export") => *export = true,
            (Action::Status { json }, "--json") => *json = true,
            (_, option) if option.starts_with('-') => {
                return usage(format!(
                    "services: unknown option `{option}`; `up` has --export and `status` has --json"
                ));
            }
            (_, name) => match SERVERS.iter().find(|server| server.name() == name) {
                Some(server) if chosen.iter().all(|earlier| earlier.name() != name) => chosen.push(*server),
                Some(_) => {}
                None => {
                    return usage(format!("services: unknown server `{name}`; known servers: {}", names()));
                }
            },
        }
    }
    if chosen.is_empty() {
        chosen = SERVERS.to_vec();
    }
    Ok((action, chosen))
}

fn names() -> String {
    let names: Vec<_> = SERVERS.iter().map(|server| server.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &str) -> Result<(Action, Vec<&'static str>), Failure> {
        let arguments: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
        let (action, servers) = parse(&arguments)?;
        Ok((action, servers.iter().map(|server| server.name()).collect()))
    }

    #[test]
    fn no_name_means_every_server() {
        let all: Vec<_> = SERVERS.iter().map(|server| server.name()).collect();
        assert_eq!(read("down"), Ok((Action::Down, all)));
    }

    #[test]
    fn names_and_options_may_come_in_any_order() {
        let expected = Ok((Action::Up { export: true }, vec!["postgres"]));
        assert_eq!(read("up --export postgres"), expected);
        assert_eq!(read("up postgres --export postgres"), expected);
        assert_eq!(read("status --json").unwrap().0, Action::Status { json: true });
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_list_of_names() {
        let Err(Failure::Usage(reason)) = read("up postgers") else { panic!("accepted") };
        assert!(reason.contains("`postgers`; known servers: postgres"), "{reason}");
    }

    #[test]
    fn an_option_of_another_action_is_refused() {
        for bad in ["", "restart", "down --json", "up --json", "status --export", "up --force"] {
            assert!(matches!(read(bad), Err(Failure::Usage(_))), "{bad}");
        }
    }
}
