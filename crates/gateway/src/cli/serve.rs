//! `semel serve`: the flags, which override the configuration file. No flag takes a secret.

use super::cli_error::CliError;
use super::config::{render_mistakes, text};
use super::flags;
use crate::config::flags::FLAGS;
use crate::config::{self, Config, ConfigError, Overrides, Plan};
use crate::serve;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args as _, Command, FromArgMatches};
use semel::SystemClock;
use semel_telemetry::logging;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Options that the demo reads too. It has its own service, store and settings.
const IN_A_DEMO: [&str; 3] = ["listen", "log", "log-level"];

/// The flags. Those of options that the configuration file has too are made from the rows of [`FLAGS`].
#[derive(Debug, Clone)]
pub(super) struct Args {
    config: Option<PathBuf>,
    demo: bool,
    exit: bool,
    over: Overrides,
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("SEMEL_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("The configuration file; flags and environment variables override it. `semel config init` writes one");
        let demo = Arg::new("demo")
            .long("demo")
            .action(ArgAction::SetTrue)
            .help("Show what Semel does, with a payment service and clients that come with it");
        let exit = Arg::new("exit")
            .long("exit")
            .action(ArgAction::SetTrue)
            .requires("demo")
            .help("End after the demo; the exit code says whether its ledger balances");
        let (upstream, others) = FLAGS.split_at(1);
        command
            .args(upstream.iter().map(flags::argument))
            .args([config, demo, exit])
            .args(others.iter().map(flags::argument))
            .group(ArgGroup::new("what").required(true).multiple(true).args(["upstream", "demo", "config"]))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let demo = matches.get_flag("demo");
        let config = matches.get_one("config").cloned();
        let over = flags::given(matches)?;
        if demo {
            check_demo(matches)?;
        }
        // The demo reads neither a file nor the variables of other options.
        let (config, over) = if demo { (None, over.only(&IN_A_DEMO)) } else { (config, over) };
        Ok(Self { config, demo, exit: matches.get_flag("exit"), over })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Refuses flags that the demo would not read.
fn check_demo(matches: &ArgMatches) -> Result<(), clap::Error> {
    let config = (matches.value_source("config") == Some(ValueSource::CommandLine)).then_some("config");
    let others = flags::on_command_line(matches).map(|flag| flag.name);
    let Some(name) = config.into_iter().chain(others).find(|name| !IN_A_DEMO.contains(name)) else {
        return Ok(());
    };
    let problem = format!("--{name} and --demo cannot be used together: the demo has its own settings\n");
    Err(clap::Error::raw(ErrorKind::ArgumentConflict, problem))
}

/// What environment variables set, as `semel serve` reads them. A value that it refuses is a mistake.
pub(super) fn from_environment() -> Result<Overrides, ConfigError> {
    // The service may be missing: a file can name it.
    let command = Args::augment_args(Command::new("semel serve"));
    let mut command = command.mut_group("what", |group| group.required(false));
    command.build();
    let matches = command.clone().try_get_matches_from(["semel serve"]);
    let matches = matches.map_err(|error| refused_variable(&command, &error))?;
    let arguments = Args::from_arg_matches(&matches).map_err(|error| refused_variable(&command, &error))?;
    Ok(arguments.over)
}

/// The mistake in a variable, in the words of the flag's error.
fn refused_variable(command: &Command, error: &clap::Error) -> ConfigError {
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ");
    let problem =
        text.split("\n\n").next().unwrap_or(text).lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let variable = command.get_arguments().find_map(|argument| {
        let name = argument.get_env()?.to_str()?;
        problem.contains(&format!("'{argument}'")).then_some(name)
    });
    let fix = match variable {
        Some(name) => format!("set {name} to another value, or unset it"),
        None => "set other values, or unset the variables".to_owned(),
    };
    ConfigError { problem, fix, ..ConfigError::default() }
}

/// Runs until the process is asked to stop.
pub(super) fn main(arguments: Args) -> Result<ExitCode, CliError> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    serve::allocator::tune();
    let threads = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.map_err(|error| CliError::failed(format!("no threads could be started: {error}")))
    };
    if arguments.demo {
        // The demo itself prints what goes wrong.
        let config = arguments.read()?;
        let level = arguments.over.value("log-level").map_or(logging::Level::Error, |_| config.log_level);
        logging::begin(config.log, level, None);
        return Ok(threads()?.block_on(serve::demo::run(config.listen.address, arguments.exit))?);
    }
    let config = arguments.read()?;
    let spans = config.tracer.as_ref().map(|tracer| tracer.spans(Arc::new(SystemClock)));
    let config_log = config.log;
    logging::begin(config_log, config.log_level, spans);
    let no_upstream = "no upstream is set: give --upstream, or write `url` under [upstream]";
    let plan = config.plan().ok_or_else(|| CliError::failed(no_upstream))?;
    let Args { config: file, over, .. } = arguments;
    let reread = file.map(|file| Box::new(move || reread(&file, &over)) as Box<serve::Reread>);
    let is_json = config_log == logging::Form::Json;
    match threads()?.block_on(serve::run(plan, reread)) {
        // If all lines are JSON, so is the last one.
        Err(why) if is_json => {
            tracing::error!("{why}");
            Ok(ExitCode::FAILURE)
        }
        ended => Ok(ended?),
    }
}

/// Reads the file again, while the gateway runs.
fn reread(file: &Path, over: &Overrides) -> Result<Plan, Vec<ConfigError>> {
    let mistake = |problem: String, fix: &str| {
        vec![ConfigError { problem, fix: fix.to_owned(), ..ConfigError::default() }]
    };
    let text = text(file).map_err(|why| mistake(why.to_string(), "put the file back"))?;
    let config = config::read(&text, over, &config::environment)?;
    let none = || mistake("no upstream is set".to_owned(), "write `url` under [upstream]");
    config.plan().ok_or_else(none)
}

impl Args {
    /// The file, if there is one, overridden by the flags.
    fn read(&self) -> Result<Config, CliError> {
        let Some(file) = &self.config else {
            return config::read("", &self.over, &config::environment).map_err(|mistakes| {
                let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
                CliError::failed(mistakes.join("\n"))
            });
        };
        config::read(&text(file)?, &self.over, &config::environment)
            .map_err(|mistakes| CliError::failed(render_mistakes(file, &mistakes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::Url;
    use clap::CommandFactory as _;
    use semel::core::policy::{Class, Policy};
    use semel_http::KeyRule;
    use std::time::Duration;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Args,
    }

    fn plan(flags: &[&str]) -> Result<Plan, String> {
        let line = ["serve", "--upstream", "http://127.0.0.1:3000"].into_iter().chain(flags.iter().copied());
        let matches = Line::command().try_get_matches_from(line).map_err(|error| error.to_string())?;
        let arguments = Line::from_arg_matches(&matches).map_err(|error| error.to_string())?.arguments;
        let config = arguments.read().map_err(|error| error.to_string())?;
        config.plan().ok_or_else(|| "no upstream".to_owned())
    }

    #[test]
    fn without_flags_the_defaults_are_those_of_the_documentation() {
        let plan = plan(&[]).expect("a plan");
        assert_eq!(plan.listen.address.to_string(), "127.0.0.1:8080");
        assert_eq!(plan.store, Url::default());
        assert_eq!(plan.route_settings.key, KeyRule::Optional);
        let (work_deadline, skew) = (Duration::from_secs(66), Duration::from_secs(5));
        let policy = Policy::new(Class::External)
            .with(|policy| {
                policy.work_deadline = work_deadline;
                policy.skew = skew;
            })
            .expect("fit for use");
        assert_eq!(plan.route_settings.policy, policy);
        assert_eq!(plan.route_settings.wait, Some(Duration::from_secs(2)));
        assert_eq!(plan.route_settings.request_bytes_max, 10 << 20);
        assert_eq!(plan.route_settings.response_bytes_max, 10 << 20);
        assert_eq!(plan.upstream.connect_timeout, Duration::from_secs(5));
        assert_eq!(plan.upstream.response_timeout, Duration::from_mins(1));
    }

    #[test]
    fn an_attempt_may_take_a_little_longer_than_the_upstream_may() {
        let plan = plan(&["--response-timeout", "10m", "--connect-timeout", "1s"]).expect("a plan");
        assert_eq!(plan.route_settings.policy.work_deadline, Duration::from_secs(602));
    }

    #[test]
    fn both_ways_to_ask_for_keys_mean_the_same() {
        for flags in [&["--require-key"][..], &["--key", "required"]] {
            assert_eq!(plan(flags).expect("a plan").route_settings.key, KeyRule::Required);
        }
    }

    #[test]
    fn impossible_settings_are_refused() {
        for flags in [
            &["--ttl", "10s"][..],
            &["--lease", "0s"],
            &["--class", "local"],
            &["--class", "downstream", "--dedup-window", "30s"],
            &["--store", "nowhere"],
            &["--tls-cert", "chain.pem"],
            &["--demo"],
            &["--exit"],
            &["--ttl", "24"],
        ] {
            assert!(plan(flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn a_port_alone_is_a_port_of_every_address() {
        assert_eq!(plan(&["--listen", ":8080"]).expect("a plan").listen.address.to_string(), "0.0.0.0:8080");
        assert!(plan(&["--listen", ":x"]).is_err());
    }

    #[test]
    fn addresses_that_get_in_each_others_way_are_refused() {
        for flags in [
            &["--listen", "127.0.0.1:3000"][..],
            &["--listen", ":3000"],
            &["--admin", "127.0.0.1:3000"],
            &["--admin", "127.0.0.1:8080"],
            &["--listen", ":9090"],
        ] {
            assert!(plan(flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn two_flags_for_one_key_are_refused_together() {
        let error = plan(&["--require-key", "--key", "off"]).expect_err("they contradict each other");
        assert!(error.contains("--require-key and --key cannot be used together"), "{error}");
    }

    #[test]
    fn a_demo_takes_no_flag_that_it_does_not_read() {
        let demo = |flags: &[&str]| {
            let line = ["serve", "--demo"].into_iter().chain(flags.iter().copied());
            let matches = Line::command().try_get_matches_from(line).map_err(|error| error.kind())?;
            Line::from_arg_matches(&matches).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(demo(&["--exit", "--listen", ":80", "--log", "json", "--log-level", "info"]), Ok(()));
        let conflict = Err(ErrorKind::ArgumentConflict);
        for flags in [&["--ttl", "1h"][..], &["--config", "a"], &["--anonymous"], &["--store", "memory:"]] {
            assert_eq!(demo(flags), conflict, "{flags:?}");
        }
    }

    #[test]
    fn the_guide_names_every_flag_with_its_default() {
        let guide = include_str!("../../../../docs/guide/src/serve.md");
        let rows: Vec<_> = guide.lines().filter(|line| line.starts_with("| `--")).collect();
        for flag in
            Line::command().get_arguments().filter_map(|flag| flag.get_long().map(|name| (name, flag)))
        {
            let (name, flag) = flag;
            if name == "help" {
                continue;
            }
            let names = |row: &&&str| {
                let cell = row.split(" | ").next().unwrap_or_default();
                cell.contains(&format!("`--{name}`")) || cell.contains(&format!("`--{name} "))
            };
            let row = rows.iter().find(names);
            let row = row.unwrap_or_else(|| panic!("the guide does not name --{name}"));
            for default in flag.get_default_values().iter().filter(|_| flag.get_action().takes_values()) {
                let default = default.to_str().expect("text");
                assert!(row.contains(&format!("`{default}`")), "--{name}: {default} is not in {row}");
            }
        }
    }
}
