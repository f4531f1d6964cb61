//! `[[operation]]`: which settings apply to which requests. Two operations must not have one name, because they would
//! share their keys.

use super::callbacks::{self, CallbackSettings};
use super::callers::Callers;
use super::plan::Operation;
use super::records::{self, Sealing};
use super::route_options::RouteOptions;
use super::route_settings::RouteErrors;
use super::table::{Span, Table};
use http::Method;
use semel_http::{KeyRule, RoutePattern, RouteSettings, RouteSettingsError, Routes};
use semel_text::printable::is_all_printable;
use std::net::SocketAddr;
use std::time::Duration;

/// What operations inherit.
pub(super) struct Inherited<'d> {
    /// Options that they do not set themselves.
    pub(super) options: &'d RouteOptions,
    /// Callbacks that they do not set themselves.
    pub(super) callbacks: &'d CallbackSettings,
    /// The sealing keys.
    pub(super) sealing: &'d Sealing,
    /// How long an attempt may take.
    pub(super) deadline: Duration,
    /// How far clocks may differ.
    pub(super) skew: Duration,
    /// The gateway's own address.
    pub(super) listen: SocketAddr,
}

/// Every operation, with its own settings and those that it inherits.
pub(super) fn read(
    tables: Vec<Table<'_, '_>>,
    inherited: &Inherited<'_>,
    callers: &mut Callers,
) -> Vec<Operation> {
    let mut read: Vec<ParsedOperation> = Vec::new();
    for table in tables {
        if let Some(operation) = one(&table, inherited, callers, &read) {
            read.push(operation);
        }
        table.end();
    }
    read.into_iter().map(|read| read.operation).collect()
}

struct ParsedOperation {
    operation: Operation,
    pattern: RoutePattern,
    at: Option<Span>,
}

fn one(
    table: &Table<'_, '_>,
    inherited: &Inherited<'_>,
    callers: &mut Callers,
    before: &[ParsedOperation],
) -> Option<ParsedOperation> {
    let identity = callers.of_operation(table);
    let name = name(table, before);
    let template = table.text("path");
    if template.is_none() && !table.has("path") {
        let at = table.span();
        table.document.mistake(
            at.as_ref(),
            "an operation has no path",
            "write path = \"/charges\" or the like",
        );
    }
    let rates_table = table.table("quotas", "[operation.quotas]");
    let (rates, rates_at) = (records::rates(&rates_table), rates_table.span());
    rates_table.end();
    let (own_options, callbacks) =
        (RouteOptions::read(table), callbacks::of_operation(table, inherited.listen));
    let options = own_options.over(inherited.options);
    let route_settings =
        RouteErrors { table, is_whole: false, sealing: inherited.sealing, skew: inherited.skew }
            .route_settings(&options, name, inherited.deadline)?;
    let callbacks = callbacks.of_one(inherited.callbacks, table, &route_settings);
    check_callers(table, &route_settings);
    if route_settings.key == KeyRule::Off && !rates.are_off() {
        let problem = "nothing of this operation is protected (key = \"off\"), so quotas have no effect";
        table.document.mistake(rates_at.as_ref(), problem, "remove quotas, or set key");
    }
    let (template, at) = template?;
    let pattern = RoutePattern::parse(template);
    let pattern =
        pattern.map_err(|error| table.document.mistake(Some(&at), error.problem(), error.remedy())).ok()?;
    check_name(table, template, &route_settings);
    let operation = Operation { template: template.to_owned(), route_settings, callbacks, identity, rates };
    let read = ParsedOperation { operation, pattern, at: Some(at) };
    check_reachable(table, &read, before);
    Some(read)
}

/// Reports operations that distinguish callers but protect nothing.
fn check_callers(table: &Table<'_, '_>, route_settings: &RouteSettings) {
    for key in ["callers", "tenant"] {
        if route_settings.key == KeyRule::Off && table.has(key) {
            let problem =
                format!("nothing of this operation is protected (key = \"off\"), so {key} has no effect");
            table.document.mistake(table.span_of(key).as_ref(), problem, format!("remove {key}, or set key"));
        }
    }
}

/// Reports a name that the records of another route have.
fn check_name(table: &Table<'_, '_>, template: &str, route_settings: &RouteSettings) {
    let named = RouteSettings {
        name: route_settings.name.clone(),
        methods: route_settings.methods.clone(),
        ..RouteSettings::default()
    };
    let routes = Routes::new(RouteSettings::default()).and_then(|routes| routes.with(template, named));
    if let Err(RouteSettingsError::Name(name)) = routes {
        let problem = format!(
            "`{name}` is the name of the records of that route, so they would count as records of this \
                operation, and its probe would be sent for them"
        );
        let fix = "give it a name that is not a method and a path, or remove the line";
        table.document.mistake(table.span_of("name").as_ref(), problem, fix);
    }
}

/// The name of what `semel once` runs.
pub(crate) const ONCE: &str = "(once)";

fn name(table: &Table<'_, '_>, before: &[ParsedOperation]) -> Option<String> {
    let (name, at) = table.text("name")?;
    if name.is_empty() {
        table.document.mistake(Some(&at), "the name is empty", "write a name, or remove the line");
        return None;
    }
    if !is_all_printable(name) {
        let problem =
            format!("{name:?} has control or format characters, which could make it look like another name");
        table.document.mistake(Some(&at), problem, "write a name without them");
        return None;
    }
    if semel_http::is_shadow(name) {
        table.document.mistake(
            Some(&at),
            format!("`{name}` starts like the names of shadow mode's records, which raise no alarms"),
            "give it another name",
        );
        return None;
    }
    if before.iter().any(|read| read.operation.route_settings.name.as_deref() == Some(name)) {
        table.document.mistake(
            Some(&at),
            format!("another operation is already named `{name}`, and the two would share their keys"),
            "give each operation its own name",
        );
    }
    if name.starts_with("(claim)") {
        let problem =
            format!("`{name}` starts like the names of workers' claims, for which no probe is sent");
        table.document.mistake(Some(&at), problem, "give it another name");
    }
    if name.starts_with(ONCE) {
        let problem = format!("`{name}` starts like the name of what `semel once` runs");
        table.document.mistake(Some(&at), problem, "give it another name");
    }
    Some(name.to_owned())
}

/// Reports requests of an operation that earlier operations match first.
fn check_reachable(table: &Table<'_, '_>, read: &ParsedOperation, before: &[ParsedOperation]) {
    let takes = |earlier: &&ParsedOperation, method: &Method| {
        earlier.operation.route_settings.methods.contains(method) && earlier.pattern.covers(&read.pattern)
    };
    let taken: Vec<_> = read
        .operation
        .route_settings
        .methods
        .iter()
        .filter_map(|method| Some((method, before.iter().find(|earlier| takes(earlier, method))?)))
        .collect();
    let Some((_, first)) = taken.first() else { return };
    let methods: Vec<_> = taken.iter().map(|(method, _)| method.as_str()).collect();
    let problem = format!(
        "{} {} never matches this operation: `{}` above matches it first",
        methods.join(" and "),
        read.operation.template,
        first.operation.template
    );
    let is_all = taken.len() == read.operation.route_settings.methods.len();
    let fix = if is_all {
        "put this operation before the other, or remove it"
    } else {
        "put this operation before the other, or name only the methods that are left"
    };
    table.document.mistake(read.at.as_ref(), problem, fix);
}
