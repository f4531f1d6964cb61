//! `probe`, `authorize` and `rebuild`, of `[defaults]` and of each `[[operation]]`: what the gateway asks of the service itself.
//!
//! What lives here: from these tables to questions, and whether they go together with the terms. What must never: a secret in
//! a message, or a question that cannot come up.

mod aside;
mod meaning;
mod probe;

#[cfg(test)]
mod tests;

use super::table::{Span, Table};
use crate::ask::{Authorize, Probe, Questions, Rebuild};
use crate::cli::span;
use semel::core::policy::Policy;
use semel_http::{KeyRule, Retain, Terms};
use std::net::SocketAddr;
use toml::de::DeValue;

/// What a table says about one question.
#[derive(Debug, Clone)]
enum Said<T> {
    Nothing,
    /// It is not asked, whatever the defaults say.
    Off,
    Is(T, At),
}

/// Where it says so.
#[derive(Debug, Clone, Default)]
struct At {
    table: Option<Span>,
    quiet: Option<Span>,
    deadline: Option<Span>,
}

impl<T: Clone> Said<T> {
    fn over(&self, under: &Self) -> Option<T> {
        match (self, under) {
            (Self::Is(own, _), _) | (Self::Nothing, Self::Is(own, _)) => Some(own.clone()),
            _ => None,
        }
    }

    fn at(&self) -> Option<&At> {
        match self {
            Self::Is(_, at) => Some(at),
            Self::Nothing | Self::Off => None,
        }
    }
}

/// What a table says about all of them.
#[derive(Debug, Clone)]
pub(super) struct Asks {
    probe: Said<Probe>,
    authorize: Said<Authorize>,
    rebuild: Said<Rebuild>,
}

/// What `[defaults]` says. `listen`: where the gateway itself is.
pub(super) fn of_defaults(table: &Table<'_, '_>, listen: SocketAddr) -> Asks {
    read(table, ["[defaults.probe]", "[defaults.authorize]", "[defaults.rebuild]"], listen)
}

/// What an `[[operation]]` says.
pub(super) fn of_operation(table: &Table<'_, '_>, listen: SocketAddr) -> Asks {
    read(table, ["[operation.probe]", "[operation.authorize]", "[operation.rebuild]"], listen)
}

fn read(table: &Table<'_, '_>, labels: [&'static str; 3], listen: SocketAddr) -> Asks {
    Asks {
        probe: said(table, "probe", labels[0], |table| probe::read(table, listen)),
        authorize: said(table, "authorize", labels[1], aside::authorize),
        rebuild: said(table, "rebuild", labels[2], aside::rebuild),
    }
}

fn said<T>(
    table: &Table<'_, '_>,
    key: &'static str,
    label: &'static str,
    read: impl FnOnce(&Table<'_, '_>) -> Option<T>,
) -> Said<T> {
    let Some(value) = table.value(key) else { return Said::Nothing };
    match value.get_ref() {
        DeValue::String(text) if text == "off" => return Said::Off,
        DeValue::Table(_) => {}
        _ => {
            table.wrong(key, value, &format!("a table, {label}, or \"off\""));
            return Said::Nothing;
        }
    }
    let below = table.table(key, label);
    let at =
        At { table: below.span(), quiet: below.span_of("quiet"), deadline: below.span_of("give_up_after") };
    let read = read(&below);
    below.end();
    read.map_or(Said::Nothing, |read| Said::Is(read, at))
}

impl Asks {
    /// What is asked about the requests of an operation that says this, where `defaults` is what others say. Tells what does not
    /// go together with its terms.
    pub(super) fn of_one(&self, defaults: &Self, table: &Table<'_, '_>, terms: &Terms) -> Questions {
        self.check_use(table, terms);
        let probe = self.probe.over(&defaults.probe);
        if let Some(probe) = &probe
            && terms.key != KeyRule::Off
        {
            // What was inherited is told where it was written, unless the lease is what does not go with it.
            let lease = table.span_of("lease");
            let here = At { table: lease.clone(), quiet: lease.clone(), deadline: lease };
            let at = self.probe.at().unwrap_or(&here);
            if at.table.is_some() {
                check_spans(table, probe, &terms.policy, at);
            }
        }
        let (authorize, rebuild) =
            (self.authorize.over(&defaults.authorize), self.rebuild.over(&defaults.rebuild));
        Questions { probe, authorize, rebuild }.fit_for(terms)
    }

    /// What is asked about requests that are no operation's.
    pub(super) fn of_others(&self, table: &Table<'_, '_>, terms: &Terms) -> Questions {
        let none = Self { probe: Said::Nothing, authorize: Said::Nothing, rebuild: Said::Nothing };
        let probe = self.probe.over(&none.probe);
        if let (Some(probe), Some(at)) = (&probe, self.probe.at()) {
            check_spans(table, probe, &terms.policy, at);
        }
        let (authorize, rebuild) = (self.authorize.over(&none.authorize), self.rebuild.over(&none.rebuild));
        Questions { probe, authorize, rebuild }.fit_for(terms)
    }

    /// Tells which of what `[defaults]` says is asked about no request at all.
    pub(super) fn check_inherited<'q>(
        &self,
        table: &Table<'_, '_>,
        asked: impl Iterator<Item = &'q Questions>,
    ) {
        let (mut by_probe, mut by_authorize, mut by_rebuild) = (false, false, false);
        for Questions { probe, authorize, rebuild } in asked {
            by_probe |= probe.is_some();
            by_authorize |= authorize.is_some();
            by_rebuild |= rebuild.is_some();
        }
        let nobody = |at: Option<&At>, name: &str, why: &str, mend: &str| {
            if let Some(At { table: at, .. }) = at {
                let what = format!("no request is ever asked about by this {name}: {why}");
                table.page.mistake(at.as_ref(), what, mend);
            }
        };
        if !by_probe {
            nobody(self.probe.at(), "probe", "nothing is protected", "take it out, or set key");
        }
        if !by_authorize {
            nobody(self.authorize.at(), "authorize", "nothing is protected", "take it out, or set key");
        }
        if !by_rebuild {
            let why = "every response is kept whole";
            nobody(self.rebuild.at(), "rebuild", why, "take it out, or write kept = \"minimal\"");
        }
    }

    /// Tells what an operation itself says that can never come up under its terms.
    fn check_use(&self, table: &Table<'_, '_>, terms: &Terms) {
        let ats =
            [("probe", self.probe.at()), ("authorize", self.authorize.at()), ("rebuild", self.rebuild.at())];
        for (name, at) in ats {
            let Some(At { table: at, .. }) = at else { continue };
            if terms.key == KeyRule::Off {
                let what = format!(
                    "nothing of this operation is protected (key = \"off\"), so that {name} has no use"
                );
                table.page.mistake(at.as_ref(), what, format!("take {name} out, or set key"));
            } else if name == "rebuild" && !matches!(terms.retain, Retain::Minimal(_)) {
                let what = "every response is kept whole, so that none is ever made anew";
                table.page.mistake(at.as_ref(), what, "take it out, or write kept = \"minimal\"");
            }
        }
    }
}

/// "It is not there" counts only when nobody can still send it, and before the question is given up.
fn check_spans(table: &Table<'_, '_>, probe: &Probe, policy: &Policy, at: &At) {
    let (quiet, least) = (probe.pace.quiet, policy.quiet());
    if !quiet.is_zero() && quiet <= least {
        let what = format!(
            "a quiet period of {} is too short: a request may still be under way {} after the last sign of its \
             sender (lease, connect_timeout, response_timeout, 1s and [clock] skew together)",
            span::text(quiet),
            span::text(least),
        );
        let mend = format!("write a quiet that is longer than {}, or leave it out", span::text(least));
        table.page.mistake(at.quiet.as_ref().or(at.table.as_ref()), what, mend);
        return;
    }
    let quiet = quiet.max(least);
    if probe.pace.give_up_after <= quiet {
        let what = format!(
            "the probe is given up after {}, before \"it is not there\" is believed at all ({} after the last sign of its \
             sender)",
            span::text(probe.pace.give_up_after),
            span::text(quiet),
        );
        let mend = format!("write a give_up_after that is longer than {}", span::text(quiet));
        table.page.mistake(at.deadline.as_ref().or(at.table.as_ref()), what, mend);
    }
}
