//! `probe`, `authorize` and `rebuild`, in `[defaults]` and in each `[[operation]]`: what the gateway itself asks the
//! service, and whether that fits the settings.

mod client_requests;
mod meaning;
mod probe;

#[cfg(test)]
mod tests;

use super::table::{Span, Table};
use crate::callbacks::{Authorize, Probe, Rebuild, ServiceCallbacks};
use semel::core::policy::Policy;
use semel_http::{KeyRule, Retain, RouteSettings};
use semel_text::duration;
use std::net::SocketAddr;
use toml::de::DeValue;

/// What a table says about one question.
#[derive(Debug, Clone)]
enum QuestionSetting<T> {
    Nothing,
    /// Switched off, whatever the defaults say.
    Off,
    Is(T, Spans),
}

/// The positions of its keys.
#[derive(Debug, Clone, Default)]
struct Spans {
    table: Option<Span>,
    quiet: Option<Span>,
    deadline: Option<Span>,
}

impl<T: Clone> QuestionSetting<T> {
    fn over(&self, under: &Self) -> Option<T> {
        match (self, under) {
            (Self::Is(question, _), _) | (Self::Nothing, Self::Is(question, _)) => Some(question.clone()),
            _ => None,
        }
    }

    fn at(&self) -> Option<&Spans> {
        match self {
            Self::Is(_, at) => Some(at),
            Self::Nothing | Self::Off => None,
        }
    }
}

/// What a table says about all callbacks.
#[derive(Debug, Clone)]
pub(super) struct CallbackSettings {
    probe: QuestionSetting<Probe>,
    authorize: QuestionSetting<Authorize>,
    rebuild: QuestionSetting<Rebuild>,
}

/// The questions in `[defaults]`. `listen` is the gateway's own address.
pub(super) fn of_defaults(table: &Table<'_, '_>, listen: SocketAddr) -> CallbackSettings {
    read(table, ["[defaults.probe]", "[defaults.authorize]", "[defaults.rebuild]"], listen)
}

/// The questions in an `[[operation]]`.
pub(super) fn of_operation(table: &Table<'_, '_>, listen: SocketAddr) -> CallbackSettings {
    read(table, ["[operation.probe]", "[operation.authorize]", "[operation.rebuild]"], listen)
}

fn read(table: &Table<'_, '_>, labels: [&'static str; 3], listen: SocketAddr) -> CallbackSettings {
    CallbackSettings {
        probe: read_question(table, "probe", labels[0], |table| probe::read(table, listen)),
        authorize: read_question(table, "authorize", labels[1], client_requests::authorize),
        rebuild: read_question(table, "rebuild", labels[2], client_requests::rebuild),
    }
}

fn read_question<T>(
    table: &Table<'_, '_>,
    key: &'static str,
    label: &'static str,
    read: impl FnOnce(&Table<'_, '_>) -> Option<T>,
) -> QuestionSetting<T> {
    let Some(value) = table.value(key) else { return QuestionSetting::Nothing };
    match value.get_ref() {
        DeValue::String(text) if text == "off" => return QuestionSetting::Off,
        DeValue::Table(_) => {}
        _ => {
            table.wrong(key, value, &format!("a table, {label}, or \"off\""));
            return QuestionSetting::Nothing;
        }
    }
    let below = table.table(key, label);
    let at = Spans {
        table: below.span(),
        quiet: below.span_of("quiet"),
        deadline: below.span_of("give_up_after"),
    };
    let read = read(&below);
    below.end();
    read.map_or(QuestionSetting::Nothing, |read| QuestionSetting::Is(read, at))
}

impl CallbackSettings {
    /// The questions about an operation's requests: its own, and for the rest those of `defaults`. Reports those that
    /// do not fit its settings.
    pub(super) fn of_one(
        &self,
        defaults: &Self,
        table: &Table<'_, '_>,
        route_settings: &RouteSettings,
    ) -> ServiceCallbacks {
        self.check_use(table, route_settings);
        let probe = self.probe.over(&defaults.probe);
        if let Some(probe) = &probe
            && route_settings.key != KeyRule::Off
        {
            // A mistake in an inherited question is reported where it was written, unless the operation's lease causes
            // it.
            let lease = table.span_of("lease");
            let own_spans = Spans { table: lease.clone(), quiet: lease.clone(), deadline: lease };
            let at = self.probe.at().unwrap_or(&own_spans);
            if at.table.is_some() {
                check_spans(table, probe, &route_settings.policy, at);
            }
        }
        let (authorize, rebuild) =
            (self.authorize.over(&defaults.authorize), self.rebuild.over(&defaults.rebuild));
        ServiceCallbacks { probe, authorize, rebuild }.fit_for(route_settings)
    }

    /// The questions about requests of no operation.
    pub(super) fn of_others(
        &self,
        table: &Table<'_, '_>,
        route_settings: &RouteSettings,
    ) -> ServiceCallbacks {
        let none = Self {
            probe: QuestionSetting::Nothing,
            authorize: QuestionSetting::Nothing,
            rebuild: QuestionSetting::Nothing,
        };
        let probe = self.probe.over(&none.probe);
        if let (Some(probe), Some(at)) = (&probe, self.probe.at()) {
            check_spans(table, probe, &route_settings.policy, at);
        }
        let (authorize, rebuild) = (self.authorize.over(&none.authorize), self.rebuild.over(&none.rebuild));
        ServiceCallbacks { probe, authorize, rebuild }.fit_for(route_settings)
    }

    /// Reports questions in `[defaults]` that are never asked.
    pub(super) fn check_inherited<'q>(
        &self,
        table: &Table<'_, '_>,
        in_use: impl Iterator<Item = &'q ServiceCallbacks>,
    ) {
        let (mut by_probe, mut by_authorize, mut by_rebuild) = (false, false, false);
        for ServiceCallbacks { probe, authorize, rebuild } in in_use {
            by_probe |= probe.is_some();
            by_authorize |= authorize.is_some();
            by_rebuild |= rebuild.is_some();
        }
        let report_unused = |at: Option<&Spans>, name: &str, why: &str, fix: &str| {
            if let Some(Spans { table: at, .. }) = at {
                let problem = format!("this {name} is never used: {why}");
                table.document.mistake(at.as_ref(), problem, fix);
            }
        };
        if !by_probe {
            report_unused(self.probe.at(), "probe", "nothing is protected", "remove it, or set key");
        }
        if !by_authorize {
            report_unused(self.authorize.at(), "authorize", "nothing is protected", "remove it, or set key");
        }
        if !by_rebuild {
            let why = "every response is stored in full";
            report_unused(self.rebuild.at(), "rebuild", why, "remove it, or write kept = \"minimal\"");
        }
    }

    /// Reports an operation's own questions that can never be asked under its settings.
    fn check_use(&self, table: &Table<'_, '_>, route_settings: &RouteSettings) {
        let ats =
            [("probe", self.probe.at()), ("authorize", self.authorize.at()), ("rebuild", self.rebuild.at())];
        for (name, at) in ats {
            let Some(Spans { table: at, .. }) = at else { continue };
            if route_settings.key == KeyRule::Off {
                let problem = format!(
                    "nothing of this operation is protected (key = \"off\"), so {name} has no effect"
                );
                table.document.mistake(at.as_ref(), problem, format!("remove {name}, or set key"));
            } else if name == "rebuild" && !matches!(route_settings.retain, Retain::Minimal(_)) {
                let problem = "every response is stored in full, so none is ever rebuilt";
                table.document.mistake(at.as_ref(), problem, "remove it, or write kept = \"minimal\"");
            }
        }
    }
}

/// "It is not there" counts only when nobody can still send the request, and before the probe ends.
fn check_spans(table: &Table<'_, '_>, probe: &Probe, policy: &Policy, at: &Spans) {
    let (quiet, least) = (probe.pace.quiet, policy.quiet());
    if !quiet.is_zero() && quiet <= least {
        let problem = format!(
            "a quiet period of {} is too short: a request may still be running {} after the last write of \
                its owner (lease, connect_timeout, response_timeout, 1s and [clock] skew together)",
            duration::text(quiet),
            duration::text(least),
        );
        let fix = format!("write a quiet that is longer than {}, or leave it out", duration::text(least));
        table.document.mistake(at.quiet.as_ref().or(at.table.as_ref()), problem, fix);
        return;
    }
    let quiet = quiet.max(least);
    if probe.pace.give_up_after <= quiet {
        let problem = format!(
            "the probe ends after {}, before \"it is not there\" counts ({} after the last write of the \
                request's owner)",
            duration::text(probe.pace.give_up_after),
            duration::text(quiet),
        );
        let fix = format!("write a give_up_after that is longer than {}", duration::text(quiet));
        table.document.mistake(at.deadline.as_ref().or(at.table.as_ref()), problem, fix);
    }
}
