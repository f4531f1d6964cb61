//! Which settings apply to a request.
//!
//! No spelling of a method or a path bypasses the settings.

use super::compiled_route::CompiledRoute;
use super::method::{folded, is_registered_method};
use super::pattern::RoutePattern;
use super::settings::{RouteSettings, RouteSettingsError};
use super::shadow_operation::shadowed;
use crate::stored::Retain;
use http::Method;
use semel::core::scope::{Operation, normal_path};
use semel::sealing::Seal;
use std::sync::Arc;

/// Which settings apply to a request: those of the first route that matches its path and method, otherwise the default.
///
/// ```
/// use semel_http::{KeyRule, Routes, RouteSettings};
///
/// let charge = RouteSettings { name: Some("charge".into()), key: KeyRule::Required, ..RouteSettings::default() };
/// let routes = Routes::new(RouteSettings::default())?.with("/accounts/{account}/charges", charge)?;
/// # Ok::<(), semel_http::RouteSettingsError>(())
/// ```
///
/// Methods are compared without regard to letter case, and paths in their [normal
/// form](semel::core::scope::normal_path): `post //%63harges` gets the settings of `POST /charges`, shares its keys,
/// and is passed on unchanged. Services differ about `/Charges`, `/charges/`, `/charges;v=1` and, with an escaped
/// slash, `/v1%2Fcharges`: these get the default settings unless a route matches. If your service treats them as the
/// same, reject all but one, or give each a route with the same [name](RouteSettings::name).
#[derive(Debug, Clone)]
pub struct Routes {
    default: Arc<CompiledRoute>,
    by_pattern: Vec<(RoutePattern, Arc<CompiledRoute>)>,
}

impl Routes {
    /// Uses `default` for every request.
    pub fn new(default: RouteSettings) -> Result<Self, RouteSettingsError> {
        if let Some(name) = default.name.as_ref().filter(|name| route_of(name).is_some()) {
            return Err(RouteSettingsError::Name(name.clone()));
        }
        Ok(Self { default: CompiledRoute::new(default, "other")?, by_pattern: Vec::new() })
    }

    /// Adds `settings` for requests whose path matches `pattern`, a [`RoutePattern`], and whose method is in the
    /// settings.
    pub fn with(mut self, pattern: &str, settings: RouteSettings) -> Result<Self, RouteSettingsError> {
        let parsed = RoutePattern::parse(pattern).map_err(RouteSettingsError::Pattern)?;
        if let Some(name) = &settings.name
            && self.all().any(|(_, other)| other.name == settings.name && !is_one_rule(other, &settings))
        {
            return Err(RouteSettingsError::Callers(name.clone()));
        }
        if let Some(name) =
            settings.name.as_ref().filter(|name| self.belongs_to_another_route(name, &parsed, &settings))
        {
            return Err(RouteSettingsError::Name(name.clone()));
        }
        self.by_pattern.push((parsed, CompiledRoute::new(settings, pattern)?));
        Ok(self)
    }

    /// Whether records of requests with other settings may have this name.
    fn belongs_to_another_route(&self, name: &str, pattern: &RoutePattern, settings: &RouteSettings) -> bool {
        let Some((method, path)) = route_of(name) else { return false };
        // Names of records are normal forms, so another spelling cannot collide.
        let is_named = settings.methods.iter().any(|own| folded(own) == method);
        let is_its_own = is_named && pattern.is_fixed() && pattern.normal() == path;
        let is_taken = |(earlier, route): &(RoutePattern, Arc<CompiledRoute>)| {
            earlier.fits(path)
                && route.settings.methods.contains(&method)
                && route.name.as_deref() != Some(name)
        };
        !is_its_own || self.by_pattern.iter().any(is_taken)
    }

    /// All routes with pattern and settings; the default, without a pattern, last.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Option<&str>, &RouteSettings)> {
        let routes = self.by_pattern.iter().map(|(pattern, route)| (Some(pattern.as_str()), &route.settings));
        routes.chain([(None, &self.default.settings)])
    }

    /// Protected methods that are not in IANA's registry, without duplicates: perhaps misspelled.
    pub fn unregistered_methods(&self) -> Vec<&Method> {
        let methods = self.all().flat_map(|(_, settings)| &settings.methods);
        let mut found: Vec<_> = methods.filter(|method| !is_registered_method(method)).collect();
        found.sort_by_key(|method| method.as_str());
        found.dedup();
        found
    }

    /// Whether any route requires authorization before a replay.
    pub(crate) fn requires_authorization(&self) -> bool {
        self.all().any(|(_, settings)| settings.authorize.is_some())
    }

    /// The first route, by its label, whose outcomes must be sealed.
    pub(crate) fn sealed_route(&self) -> Option<&str> {
        let mut routes = self.by_pattern.iter().map(|(_, route)| route).chain([&self.default]);
        let route = routes.find(|route| route.settings.seal == Seal::Required);
        route.map(|route| route.label.as_str())
    }

    /// Whether outcomes of a record's operation [must](Seal::Required) be sealed, by the current settings.
    pub fn must_seal(&self, operation: &str) -> bool {
        self.of_record(operation).is_some_and(|route| route.settings.seal == Seal::Required)
    }

    /// The longest body that is stored of responses of a record's operation, by the current settings.
    pub fn response_bytes_max(&self, operation: &str) -> usize {
        self.of_record(operation).unwrap_or(&self.default).settings.response_bytes_max
    }

    /// Whether only the minimal form is stored of responses of a record's operation, by the current settings.
    pub fn stores_minimal(&self, operation: &str) -> bool {
        let settings = &self.of_record(operation).unwrap_or(&self.default).settings;
        matches!(settings.retain, Retain::Minimal(_))
    }

    /// Sample operations of a route, one per method if it has no name. Those of the default have a path that matches
    /// no pattern, unless a pattern matches everything.
    pub(crate) fn operations_like(&self, route: Option<&str>, settings: &RouteSettings) -> Vec<Operation> {
        if let Some(name) = &settings.name {
            return vec![Operation::named(name.as_str())];
        }
        let longest = self.by_pattern.iter().map(|(pattern, _)| pattern.segment_count()).max();
        let other = || "/(other)".repeat(longest.unwrap_or_default() + 1);
        let path = route.map_or_else(other, str::to_owned);
        settings.methods.iter().map(|method| Operation::route(method.as_str(), path.as_str())).collect()
    }

    /// The first route with a reconciler that the engine does not know.
    pub(crate) fn route_with_unknown_reconciler(&self, knows: impl Fn(&str) -> bool) -> Option<String> {
        let is_unasked = |operation: &Operation| {
            let operation = operation.as_str();
            self.reconciler_of(operation).is_some() && !knows(operation)
        };
        let mut routes = self.all().filter(|(_, settings)| settings.reconciler.is_some());
        let found =
            routes.find(|(route, settings)| self.operations_like(*route, settings).iter().any(is_unasked));
        found.map(|(route, settings)| settings.name.as_deref().or(route).unwrap_or("other").to_owned())
    }

    /// All labels that [`label`](Self::label) can return; at most one per route.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.by_pattern
            .iter()
            .map(|(_, route)| route)
            .chain([&self.default])
            .map(|route| route.label.as_str())
    }

    /// The label of a record's operation in metrics: the name of its route, otherwise its pattern, otherwise `other`. A
    /// record of shadow mode has the label of the operation that it observes.
    pub fn label(&self, operation: &str) -> &str {
        self.of_record(shadowed(operation)).unwrap_or(&self.default).label.as_str()
    }

    /// The settings for a record of this operation, by the current routes.
    pub(crate) fn of_record(&self, operation: &str) -> Option<&Arc<CompiledRoute>> {
        let mut named = self.by_pattern.iter().map(|(_, route)| route).chain([&self.default]);
        if let Some(route) = named.find(|route| route.settings.name.as_deref() == Some(operation)) {
            return Some(route);
        }
        let (method, path) = operation.split_once(' ')?;
        // A record of an earlier version may have another spelling.
        self.of(&folded(&method.parse().ok()?), &normal_path(path))
    }

    /// The settings for a request, if its method is protected; method and path are in normal form.
    pub(crate) fn of(&self, method: &Method, path: &str) -> Option<&Arc<CompiledRoute>> {
        let routes = self.by_pattern.iter().filter(|(pattern, _)| pattern.fits(path)).map(|(_, route)| route);
        routes.chain([&self.default]).find(|route| route.settings.methods.contains(method))
    }
}

/// The method and path of an operation without a configured name.
fn route_of(name: &str) -> Option<(Method, &str)> {
    let (method, path) = name.split_once(' ')?;
    let is_path = path.is_empty() || path == "*" || path.starts_with('/');
    let method = method.parse().ok()?;
    (is_path && !path.contains(' ')).then_some((method, path))
}

/// Whether both identify callers by the same rule.
fn is_one_rule(one: &RouteSettings, other: &RouteSettings) -> bool {
    match (&one.callers, &other.callers) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_same(other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::callers::{Callers, NotIdentified};
    use super::super::key_source::KeySource;
    use super::*;
    use semel::core::policy::{Class, Policy};

    #[test]
    fn a_route_applies_to_the_methods_it_names() {
        let delete = RouteSettings {
            methods: vec![Method::DELETE],
            name: Some("delete".into()),
            ..RouteSettings::default()
        };
        let routes = Routes::new(RouteSettings::default()).and_then(|r| r.with("/x", delete)).expect("valid");
        let name = |method, path| routes.of(&method, path).map(|route| route.settings.name.clone());
        assert_eq!(name(Method::DELETE, "/x"), Some(Some("delete".into())));
        assert_eq!(name(Method::POST, "/x"), Some(None));
        assert_eq!(name(Method::DELETE, "/y"), None);
    }

    #[test]
    fn methods_are_protected_in_any_letter_case_and_mistyped_ones_refused() {
        let method = |text: &str| text.parse::<Method>().expect("a token");
        let under = |methods: &[&str]| {
            let methods = methods.iter().map(|text| method(text)).collect();
            Routes::new(RouteSettings { methods, ..RouteSettings::default() })
        };
        let routes = under(&["post", "POST", "Delete"]).expect("valid");
        assert_eq!(routes.default.settings.methods, [Method::POST, Method::DELETE]);
        let error = RouteSettingsError::Method { found: "POTS".into(), meant: "POST" };
        assert_eq!(under(&["DELETE", "pots"]).unwrap_err(), error);
        assert!(error.to_string().contains("`POTS`") && error.to_string().contains("`POST`"));
        let routes = under(&["purge", "post", "FROB", "PURGE"]).expect("they may be a service's own");
        assert_eq!(routes.unregistered_methods(), [&method("FROB"), &method("PURGE")]);
    }

    #[test]
    fn a_record_finds_its_route_however_spelled() {
        let charge = RouteSettings { seal: Seal::Required, ..RouteSettings::default() };
        let routes = Routes::new(RouteSettings::default()).and_then(|routes| routes.with("/charges", charge));
        let routes = routes.expect("valid");
        for operation in ["POST /charges", "post /charges", "POST //charges", "PATCH /%63harges"] {
            assert!(routes.must_seal(operation), "{operation}");
        }
        for operation in ["POST /charges/", "DELETE /charges", "(shadow) POST /charges"] {
            assert!(!routes.must_seal(operation), "{operation}");
        }
    }

    #[test]
    fn impossible_settings_are_refused() {
        let local = || RouteSettings { policy: Policy::new(Class::Local), ..RouteSettings::default() };
        assert!(Routes::new(local()).is_ok());
        let refused = Routes::new(RouteSettings { store_down: crate::StoreDown::PassUnprotected, ..local() })
            .unwrap_err();
        assert_eq!(refused, RouteSettingsError::Local("store_down"));
        assert!(
            ["transaction", "external", "downstream"].iter().all(|word| refused.to_string().contains(word))
        );
        let circular = RouteSettings::default().keyed_by(crate::names::OPERATION_ID);
        assert_eq!(Routes::new(circular).unwrap_err(), RouteSettingsError::KeyHeader);
        let one = KeySource::Composite(vec![KeySource::Fingerprint]);
        let nested = KeySource::Composite(vec![KeySource::Fingerprint, one.clone()]);
        let circular = KeySource::Header(crate::names::OPERATION_ID);
        let circular = KeySource::Composite(vec![KeySource::Fingerprint, circular]);
        for (source, error) in [
            (one, RouteSettingsError::Composite),
            (nested, RouteSettingsError::Composite),
            (circular, RouteSettingsError::KeyHeader),
        ] {
            let settings = RouteSettings { key_source: source, ..RouteSettings::default() };
            assert_eq!(Routes::new(settings).unwrap_err(), error);
        }
        let bad = Routes::new(RouteSettings::default())
            .and_then(|routes| routes.with("x", RouteSettings::default()));
        assert!(matches!(bad.unwrap_err(), RouteSettingsError::Pattern(_)));
    }

    #[test]
    fn no_name_matches_the_records_of_another_route() {
        let named = |name: &str| RouteSettings { name: Some(name.into()), ..RouteSettings::default() };
        let at = |template: &str, name: &str| {
            Routes::new(RouteSettings::default()).and_then(|routes| routes.with(template, named(name)))
        };
        for (template, name) in [
            ("/refunds", "POST /charges"),
            ("/charges", "DELETE /charges"),
            ("/charges", "post /charges"),
            ("/charges", "POST //charges"),
            ("/charges", "POST /%63harges"),
            ("/charges", "POST /charges/"),
            ("/charges/{id}", "POST /charges/{id}"),
            ("/charges/{id}", "POST /charges/7"),
            ("/{*all}", "POST /charges"),
            ("/x", "OPTIONS *"),
            ("/x", "CONNECT "),
        ] {
            assert_eq!(at(template, name).unwrap_err(), RouteSettingsError::Name(name.into()), "{template}");
        }
        for (template, name) in [
            ("/charges", "POST /charges"),
            ("/charges", "PATCH /charges"),
            ("/%63harges", "POST /charges"),
            ("/x", "POST charges"),
            ("/x", "charge customers"),
            ("/x", "POST /charges, once"),
            ("/x", "/charges"),
        ] {
            assert!(at(template, name).is_ok(), "{template} {name}");
        }
        let routes = Routes::new(named("POST /charges"));
        assert_eq!(
            routes.unwrap_err(),
            RouteSettingsError::Name("POST /charges".into()),
            "the default is many routes"
        );
        let behind =
            at("/{*all}", "everything").and_then(|routes| routes.with("/charges", named("POST /charges")));
        assert_eq!(
            behind.unwrap_err(),
            RouteSettingsError::Name("POST /charges".into()),
            "no request gets there"
        );
    }

    #[test]
    fn routes_that_share_their_keys_share_the_rule_for_their_callers() {
        let named = |callers: Option<&Callers>| RouteSettings {
            name: Some("charge".into()),
            callers: callers.cloned(),
            ..RouteSettings::default()
        };
        let both = |one: Option<&Callers>, other: Option<&Callers>| {
            let routes =
                Routes::new(RouteSettings::default()).and_then(|routes| routes.with("/a", named(one)));
            routes.and_then(|routes| routes.with("/b", named(other)))
        };
        let rule = || Callers::by(|_| Err(NotIdentified::ByRule));
        let (one, other, anonymous) = (rule(), rule(), Callers::all_anonymous());
        for (one, other) in [(None, None), (Some(&one), Some(&one)), (Some(&anonymous), Some(&anonymous))] {
            assert!(both(one, other).is_ok(), "{one:?} {other:?}");
        }
        for (one, other) in [
            (None, Some(&one)),
            (Some(&one), None),
            (Some(&one), Some(&other)),
            (Some(&one), Some(&anonymous)),
        ] {
            assert_eq!(both(one, other).unwrap_err(), RouteSettingsError::Callers("charge".into()));
        }
    }
}
