//! `[[operation]]`: which requests come under which terms.
//!
//! What lives here: names, patterns, and whether each operation can be reached at all. What must never: two operations under
//! one name, whose keys would be the same.

use super::ask::{self, Asks};
use super::callers::Callers;
use super::patch::Patch;
use super::records::{self, Sealing};
use super::table::{Span, Table};
use super::terms::{self, Blame};
use crate::serve::Operation;
use http::Method;
use semel_http::{KeyRule, RoutePattern, Routes, Terms, TermsError};
use std::net::SocketAddr;
use std::time::Duration;

/// What operations have in common.
pub(super) struct Inherited<'d> {
    /// Terms, where they have none of their own.
    pub(super) terms: &'d Patch,
    /// Questions, where they have none of their own.
    pub(super) asks: &'d Asks,
    /// What there is to seal with.
    pub(super) sealing: &'d Sealing,
    /// How long an attempt may take.
    pub(super) deadline: Duration,
    /// By how much clocks may differ.
    pub(super) skew: Duration,
    /// Where the gateway itself is.
    pub(super) listen: SocketAddr,
}

/// Every operation, under its own terms and for the rest under those that it inherits.
pub(super) fn read(
    tables: Vec<Table<'_, '_>>,
    inherited: &Inherited<'_>,
    callers: &mut Callers,
) -> Vec<Operation> {
    let mut read: Vec<Read> = Vec::new();
    for table in tables {
        if let Some(operation) = one(&table, inherited, callers, &read) {
            read.push(operation);
        }
        table.end();
    }
    read.into_iter().map(|read| read.operation).collect()
}

struct Read {
    operation: Operation,
    pattern: RoutePattern,
    at: Option<Span>,
}

fn one(
    table: &Table<'_, '_>,
    inherited: &Inherited<'_>,
    callers: &mut Callers,
    before: &[Read],
) -> Option<Read> {
    let identity = callers.of_operation(table);
    let name = name(table, before);
    let template = table.text("path");
    if template.is_none() && !table.has("path") {
        let at = table.span();
        table.page.mistake(at.as_ref(), "an operation has no path", "write path = \"/charges\" or the like");
    }
    let rates_table = table.table("quotas", "[operation.quotas]");
    let (rates, rates_at) = (records::rates(&rates_table), rates_table.span());
    rates_table.end();
    let (own, asks) = (terms::patch(table), ask::of_operation(table, inherited.listen));
    let patch = own.over(inherited.terms);
    let terms = Blame { table, flags: None, sealing: inherited.sealing, skew: inherited.skew }.terms(
        &patch,
        name,
        inherited.deadline,
    )?;
    let questions = asks.of_one(inherited.asks, table, &terms);
    check_callers(table, &terms);
    if terms.key == KeyRule::Off && !rates.are_off() {
        let what = "nothing of this operation is protected (key = \"off\"), so that quotas have no use";
        table.page.mistake(rates_at.as_ref(), what, "take quotas out, or set key");
    }
    let (template, at) = template?;
    let pattern = RoutePattern::parse(template);
    let pattern =
        pattern.map_err(|error| table.page.mistake(Some(&at), error.problem(), error.remedy())).ok()?;
    check_name(table, template, &terms);
    let operation = Operation { template: template.to_owned(), terms, questions, identity, rates };
    let read = Read { operation, pattern, at: Some(at) };
    reach(table, &read, before);
    Some(read)
}

/// Tells where callers are told apart of whom nothing is kept.
fn check_callers(table: &Table<'_, '_>, terms: &Terms) {
    for key in ["callers", "tenant"] {
        if terms.key == KeyRule::Off && table.has(key) {
            let what =
                format!("nothing of this operation is protected (key = \"off\"), so that {key} has no use");
            table.page.mistake(table.span_of(key).as_ref(), what, format!("take {key} out, or set key"));
        }
    }
}

/// Tells where a name is what the records of another route are called.
fn check_name(table: &Table<'_, '_>, template: &str, terms: &Terms) {
    let named = Terms { name: terms.name.clone(), methods: terms.methods.clone(), ..Terms::default() };
    let routes = Routes::new(Terms::default()).and_then(|routes| routes.with(template, named));
    if let Err(TermsError::Name(name)) = routes {
        let what = format!(
            "`{name}` is what the records of that route are called: they would be taken for this operation's, and its probe would be \
             asked about them"
        );
        let mend = "give it a name that is not a method and a path, or leave the line out";
        table.page.mistake(table.span_of("name").as_ref(), what, mend);
    }
}

fn name(table: &Table<'_, '_>, before: &[Read]) -> Option<String> {
    let (name, at) = table.text("name")?;
    if name.is_empty() {
        table.page.mistake(Some(&at), "the name is empty", "write a name, or leave the line out");
        return None;
    }
    if semel_http::is_shadow(name) {
        table.page.mistake(
            Some(&at),
            format!("`{name}` begins as the records of shadow mode do, of which no alarm is raised"),
            "give it another name",
        );
        return None;
    }
    if before.iter().any(|read| read.operation.terms.name.as_deref() == Some(name)) {
        table.page.mistake(
            Some(&at),
            format!("another operation is called `{name}` already: a key used for one would be taken for the other's"),
            "give each operation a name of its own",
        );
    }
    if name.starts_with("(claim)") {
        let what =
            format!("`{name}` begins as the records of claims do, which no probe of a route is asked about");
        table.page.mistake(Some(&at), what, "give it another name");
    }
    Some(name.to_owned())
}

/// Tells which requests of an operation never come to it, because earlier ones take them.
fn reach(table: &Table<'_, '_>, read: &Read, before: &[Read]) {
    let takes = |earlier: &&Read, method: &Method| {
        earlier.operation.terms.methods.contains(method) && earlier.pattern.covers(&read.pattern)
    };
    let taken: Vec<_> = read
        .operation
        .terms
        .methods
        .iter()
        .filter_map(|method| Some((method, before.iter().find(|earlier| takes(earlier, method))?)))
        .collect();
    let Some((_, first)) = taken.first() else { return };
    let methods: Vec<_> = taken.iter().map(|(method, _)| method.as_str()).collect();
    let what = format!(
        "{} {} never comes here: `{}` above takes it",
        methods.join(" and "),
        read.operation.template,
        first.operation.template
    );
    let is_all = taken.len() == read.operation.terms.methods.len();
    let mend = if is_all {
        "put this operation before the other, or take it out"
    } else {
        "put this operation before the other, or name only the methods that are left for it"
    };
    table.page.mistake(read.at.as_ref(), what, mend);
}
