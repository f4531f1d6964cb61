//! `[quotas]` and `[sealing]`: how many records there may be, and who can read them.

use super::table::Table;
use crate::invalid_value::InvalidValue;
use semel::quota::{Quotas, QuotasError, Rate, Rates};
use semel::sealing::{KeyError, KeyRing, SealingKey};
use semel_text::duration;

pub(super) fn quotas(table: &Table<'_, '_>) -> Quotas {
    let usual = Quotas::default();
    let quotas = Quotas {
        new_per_caller: table.rate("new_per_caller"),
        new_per_address: table.rate("new_per_address"),
        new_in_total: table.rate("new_in_total"),
        records_per_caller: table.count("records_per_caller", 1),
        records_per_address: table.count("records_per_address", 1),
        records_in_total: table.count("records_in_total", 1),
        address_window: table.duration("address_window").unwrap_or(usual.address_window),
        tracked_max: table.count("tracked_max", 1).unwrap_or(usual.tracked_max),
        ..usual
    };
    if let Err(error) = quotas.check() {
        let key = match error {
            QuotasError::RateInNoTime(key)
            | QuotasError::NothingAllowed(key)
            | QuotasError::NotCounted(key) => key,
            QuotasError::NobodyTracked => "tracked_max",
            QuotasError::WindowTooShort => "address_window",
        };
        table.document.mistake(table.span_of(key).as_ref(), error.to_string(), format!("change {key}"));
    }
    quotas
}

/// An operation's own limits.
pub(super) fn rates(table: &Table<'_, '_>) -> Rates {
    let rates = Rates {
        new_per_caller: table.rate("new_per_caller"),
        new_per_address: table.rate("new_per_address"),
        new_in_total: table.rate("new_in_total"),
    };
    if let Err(error @ QuotasError::RateInNoTime(key)) = rates.check() {
        table.document.mistake(table.span_of(key).as_ref(), error.to_string(), format!("change {key}"));
    }
    rates
}

/// `100/1m`: a number per duration.
pub(super) fn rate(text: &str) -> Result<Rate, InvalidValue> {
    let malformed = || {
        let fix = "write a number and a duration, such as \"100/1m\"";
        InvalidValue::new(format!("`{text}` is not a rate"), fix)
    };
    let (count, per) = text.split_once('/').ok_or_else(malformed)?;
    let count = count.parse().map_err(|_| malformed())?;
    Ok(Rate { count, per: duration::parse(per).map_err(|_| malformed())? })
}

/// The sealing keys, and what is sealed.
pub(super) struct Sealing {
    /// The keys, if there are any: the first one seals.
    pub(super) ring: Option<KeyRing>,
    /// Whether there are keys, even invalid ones.
    pub(super) has_keys: bool,
    /// Whether only chosen responses are sealed.
    pub(super) is_by_choice: bool,
}

pub(super) fn sealing(table: &Table<'_, '_>) -> Sealing {
    let is_by_choice = table.choice("seals", &[("all", false), ("chosen", true)]).unwrap_or(false);
    let (ring, has_keys) = (ring(table), table.has("key"));
    if is_by_choice && !has_keys {
        let problem = "nothing can be sealed: [sealing] has no key";
        table.document.mistake(
            table.span_of("seals").as_ref(),
            problem,
            "write a [[sealing.key]], or remove seals",
        );
    }
    Sealing { ring, has_keys, is_by_choice }
}

fn ring(table: &Table<'_, '_>) -> Option<KeyRing> {
    let mut ring: Option<KeyRing> = None;
    for table in table.tables("key", "[[sealing.key]]") {
        if let Some((name, bytes)) = key(&table) {
            let added = SealingKey::new(name, &bytes).and_then(|key| match ring.take() {
                None => Ok(KeyRing::new(key)),
                Some(ring) => ring.and(key),
            });
            match added {
                Ok(added) => ring = Some(added),
                Err(error) => {
                    let at = if matches!(error, KeyError::Length(_)) { "secret" } else { "name" };
                    let fix = match error {
                        KeyError::Length(_) => "make one with openssl rand -hex 32",
                        KeyError::Name => "write a name such as \"2026-11\"",
                        KeyError::NameTaken(_) => "give each key its own name, and never change it",
                    };
                    table.document.mistake(table.span_of(at).as_ref(), error.to_string(), fix);
                }
            }
        }
        table.end();
    }
    ring
}

fn key<'p>(table: &Table<'p, '_>) -> Option<(&'p str, Vec<u8>)> {
    let (name, secret) = (table.text("name"), table.secret("secret"));
    for key in ["name", "secret"] {
        if !table.has(key) {
            let fix = format!("write `{key}`");
            table.document.mistake(table.span().as_ref(), format!("a sealing key has no {key}"), fix);
        }
    }
    let bytes = secret.and_then(|secret| {
        let bytes = hex::decode(secret.trim_ascii()).ok();
        if bytes.is_none() {
            let problem = "the sealing key is not in hexadecimal digits";
            table.document.mistake(
                table.span_of("secret").as_ref(),
                problem,
                "make one with openssl rand -hex 32",
            );
        }
        bytes
    });
    Some((name?.0, bytes?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_span() {
        let read = rate("100/1m").expect("a rate");
        assert_eq!((read.count.get(), read.per.as_secs()), (100, 60));
        for bad in ["", "100", "100/", "/1m", "0/1m", "100/60", "-1/1m", "1/1m/1m"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
