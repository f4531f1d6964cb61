//! Which terms a request comes under.
//!
//! Contents: patterns of paths, and the terms of each. Never here: a spelling of a method or a path by which a
//! request gets around the terms that it comes under.

use crate::method::{check_method, folded, is_registered_method};
use crate::pattern::RoutePattern;
use crate::target::Target;
use crate::terms::{Terms, TermsError};
use http::Method;
use semel::core::policy::Policy;
use semel::core::scope::{Operation, normal_path};
use semel::sealing::Seal;
use std::sync::Arc;

/// Terms that were checked, ready to be shared by requests.
#[derive(Debug)]
pub(crate) struct Ready {
    /// What the operation is called where labels have to be few.
    pub(crate) label: String,
    name: Option<Arc<str>>,
    pub(crate) terms: Terms,
    pub(crate) policy: Arc<Policy>,
}

impl Ready {
    fn new(mut terms: Terms, pattern: &str) -> Result<Arc<Self>, TermsError> {
        terms.check()?;
        terms.methods = compared(&terms.methods)?;
        let policy = Arc::new(terms.policy.clone());
        let label = terms.name.clone().unwrap_or_else(|| pattern.to_owned());
        let name = terms.name.as_deref().map(Arc::from);
        Ok(Arc::new(Self { label, name, terms, policy }))
    }

    /// What a request is asking for.
    pub(crate) fn operation(&self, target: &Target) -> Operation {
        match &self.name {
            Some(name) => Operation::named(Arc::clone(name)),
            None => Operation::route(target.method().as_str(), target.path()),
        }
    }
}

/// Methods as they are compared, each once.
fn compared(methods: &[Method]) -> Result<Vec<Method>, TermsError> {
    let mut found = Vec::with_capacity(methods.len());
    for method in methods {
        let method = check_method(method)?;
        if !found.contains(&method) {
            found.push(method);
        }
    }
    Ok(found)
}

/// Which terms a request comes under: those of the first route that has its path and method, else the default.
///
/// ```
/// use semel_http::{KeyRule, Routes, Terms};
///
/// let charge = Terms { name: Some("charge".into()), key: KeyRule::Required, ..Terms::default() };
/// let routes = Routes::new(Terms::default())?.with("/accounts/{account}/charges", charge)?;
/// # Ok::<(), semel_http::TermsError>(())
/// ```
///
/// Methods are compared without regard to letter case, and paths in their [normal
/// form](semel::core::scope::normal_path): `post //%63harges` comes under the terms of `POST /charges`, shares its
/// keys, and is handed on as it was sent. What services disagree about is left to you: a request to `/Charges`,
/// `/charges/`, `/charges;v=1` or, with an escaped slash, `/v1%2Fcharges` comes under the default where no route is
/// about it. If your service takes these for one, reject all but one, or give each a route with the same
/// [name](Terms::name).
#[derive(Debug, Clone)]
pub struct Routes {
    default: Arc<Ready>,
    by_pattern: Vec<(RoutePattern, Arc<Ready>)>,
}

impl Routes {
    /// Every request comes under `default`.
    pub fn new(default: Terms) -> Result<Self, TermsError> {
        if let Some(name) = default.name.as_ref().filter(|name| route_of(name).is_some()) {
            return Err(TermsError::Name(name.clone()));
        }
        Ok(Self { default: Ready::new(default, "other")?, by_pattern: Vec::new() })
    }

    /// Requests whose path fits `pattern`, a [`RoutePattern`], come under `terms`, as far as these name their method.
    pub fn with(mut self, pattern: &str, terms: Terms) -> Result<Self, TermsError> {
        let parsed = RoutePattern::parse(pattern).map_err(TermsError::Pattern)?;
        if let Some(name) = &terms.name
            && self.all().any(|(_, other)| other.name == terms.name && !is_one_rule(other, &terms))
        {
            return Err(TermsError::Callers(name.clone()));
        }
        if let Some(name) = terms.name.as_ref().filter(|name| self.is_anothers(name, &parsed, &terms)) {
            return Err(TermsError::Name(name.clone()));
        }
        self.by_pattern.push((parsed, Ready::new(terms, pattern)?));
        Ok(self)
    }

    /// Whether the records of requests that do not come under these terms may be called so.
    fn is_anothers(&self, name: &str, pattern: &RoutePattern, terms: &Terms) -> bool {
        let Some((method, path)) = route_of(name) else { return false };
        // Records are called by normal forms: another spelling is nobody's own.
        let is_named = terms.methods.iter().any(|own| folded(own) == method);
        let is_its_own = is_named && pattern.is_fixed() && pattern.normal() == path;
        let is_taken = |(earlier, ready): &(RoutePattern, Arc<Ready>)| {
            earlier.fits(path) && ready.terms.methods.contains(&method) && ready.name.as_deref() != Some(name)
        };
        !is_its_own || self.by_pattern.iter().any(is_taken)
    }

    /// Every route's pattern, where it has one, and its terms; the default last.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Option<&str>, &Terms)> {
        let routes = self.by_pattern.iter().map(|(pattern, ready)| (Some(pattern.as_str()), &ready.terms));
        routes.chain([(None, &self.default.terms)])
    }

    /// Methods that these routes protect and that IANA's registry does not have, each once: perhaps mistyped.
    pub fn unregistered_methods(&self) -> Vec<&Method> {
        let methods = self.all().flat_map(|(_, terms)| &terms.methods);
        let mut found: Vec<_> = methods.filter(|method| !is_registered_method(method)).collect();
        found.sort_by_key(|method| method.as_str());
        found.dedup();
        found
    }

    /// Whether any of them has somebody asked before a replay.
    pub(crate) fn ask(&self) -> bool {
        self.all().any(|(_, terms)| terms.authorize.is_some())
    }

    /// The first route, by its label, whose outcomes must be sealed.
    pub(crate) fn sealed_route(&self) -> Option<&str> {
        let mut routes = self.by_pattern.iter().map(|(_, ready)| ready).chain([&self.default]);
        let route = routes.find(|ready| ready.terms.seal == Seal::Required);
        route.map(|ready| ready.label.as_str())
    }

    /// Whether outcomes of a record's operation [must](Seal::Required) be sealed, by the terms that its requests come
    /// under today.
    pub fn must_seal(&self, operation: &str) -> bool {
        self.of_record(operation).is_some_and(|ready| ready.terms.seal == Seal::Required)
    }

    /// Operations as the records of a route have them, one for each method where it has no name. Those of the default
    /// stand at a path that fits no pattern, unless that has an open end.
    pub(crate) fn operations_like(&self, route: Option<&str>, terms: &Terms) -> Vec<Operation> {
        if let Some(name) = &terms.name {
            return vec![Operation::named(name.as_str())];
        }
        let longest = self.by_pattern.iter().map(|(pattern, _)| pattern.segment_count()).max();
        let other = || "/(other)".repeat(longest.unwrap_or_default() + 1);
        let path = route.map_or_else(other, str::to_owned);
        terms.methods.iter().map(|method| Operation::route(method.as_str(), path.as_str())).collect()
    }

    /// The first route with a reconciler that anyone who asks does not know of.
    pub(crate) fn unasked_route(&self, knows: impl Fn(&str) -> bool) -> Option<String> {
        let is_unasked = |operation: &Operation| {
            let operation = operation.as_str();
            self.reconciler_of(operation).is_some() && !knows(operation)
        };
        let mut routes = self.all().filter(|(_, terms)| terms.reconciler.is_some());
        let found = routes.find(|(route, terms)| self.operations_like(*route, terms).iter().any(is_unasked));
        found.map(|(route, terms)| terms.name.as_deref().or(route).unwrap_or("other").to_owned())
    }

    /// Every label that [`label`](Self::label) gives: there are no more of them than routes.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.by_pattern
            .iter()
            .map(|(_, ready)| ready)
            .chain([&self.default])
            .map(|ready| ready.label.as_str())
    }

    /// What a record's operation is called where labels have to be few: the name of its route, else its pattern, else
    /// what stands for every other.
    pub fn label(&self, operation: &str) -> &str {
        self.of_record(operation).unwrap_or(&self.default).label.as_str()
    }

    /// The terms that a record of this name was claimed under, by today's routes.
    pub(crate) fn of_record(&self, operation: &str) -> Option<&Arc<Ready>> {
        let mut named = self.by_pattern.iter().map(|(_, ready)| ready).chain([&self.default]);
        if let Some(ready) = named.find(|ready| ready.terms.name.as_deref() == Some(operation)) {
            return Some(ready);
        }
        let (method, path) = operation.split_once(' ')?;
        // A record of an earlier version may be called by another spelling.
        self.of(&folded(&method.parse().ok()?), &normal_path(path))
    }

    /// The terms for a request, unless none are about its method; both are in the form in which they are compared.
    pub(crate) fn of(&self, method: &Method, path: &str) -> Option<&Arc<Ready>> {
        let routes = self.by_pattern.iter().filter(|(pattern, _)| pattern.fits(path)).map(|(_, ready)| ready);
        routes.chain([&self.default]).find(|ready| ready.terms.methods.contains(method))
    }
}

/// The method and the path of requests whose records are called so without anybody's having named them.
fn route_of(name: &str) -> Option<(Method, &str)> {
    let (method, path) = name.split_once(' ')?;
    let is_path = path.is_empty() || path == "*" || path.starts_with('/');
    let method = method.parse().ok()?;
    (is_path && !path.contains(' ')).then_some((method, path))
}

/// Whether callers are distinguished by the same rule under both.
fn is_one_rule(one: &Terms, other: &Terms) -> bool {
    match (&one.callers, &other.callers) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_same(other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::{Callers, NotIdentified};
    use crate::source::KeySource;
    use semel::core::policy::Class;

    #[test]
    fn a_route_is_about_the_methods_that_it_names() {
        let delete = Terms { methods: vec![Method::DELETE], name: Some("delete".into()), ..Terms::default() };
        let routes = Routes::new(Terms::default()).and_then(|r| r.with("/x", delete)).expect("fit for use");
        let name = |method, path| routes.of(&method, path).map(|ready| ready.terms.name.clone());
        assert_eq!(name(Method::DELETE, "/x"), Some(Some("delete".into())));
        assert_eq!(name(Method::POST, "/x"), Some(None));
        assert_eq!(name(Method::DELETE, "/y"), None);
    }

    #[test]
    fn methods_are_protected_in_any_letter_case_and_mistyped_ones_refused() {
        let method = |text: &str| text.parse::<Method>().expect("a token");
        let under = |methods: &[&str]| {
            let methods = methods.iter().map(|text| method(text)).collect();
            Routes::new(Terms { methods, ..Terms::default() })
        };
        let routes = under(&["post", "POST", "Delete"]).expect("fit for use");
        assert_eq!(routes.default.terms.methods, [Method::POST, Method::DELETE]);
        let error = TermsError::Method { found: "POTS".into(), meant: "POST" };
        assert_eq!(under(&["DELETE", "pots"]).unwrap_err(), error);
        assert!(error.to_string().contains("`POTS`") && error.to_string().contains("`POST`"));
        let routes = under(&["purge", "post", "FROB", "PURGE"]).expect("they may be a service's own");
        assert_eq!(routes.unregistered_methods(), [&method("FROB"), &method("PURGE")]);
    }

    #[test]
    fn a_record_is_known_by_its_route_however_its_operation_is_spelt() {
        let charge = Terms { seal: Seal::Required, ..Terms::default() };
        let routes = Routes::new(Terms::default()).and_then(|routes| routes.with("/charges", charge));
        let routes = routes.expect("fit for use");
        for operation in ["POST /charges", "post /charges", "POST //charges", "PATCH /%63harges"] {
            assert!(routes.must_seal(operation), "{operation}");
        }
        for operation in ["POST /charges/", "DELETE /charges", "(shadow) POST /charges"] {
            assert!(!routes.must_seal(operation), "{operation}");
        }
    }

    #[test]
    fn terms_that_cannot_be_kept_are_refused() {
        let local = || Terms { policy: Policy::new(Class::Local), ..Terms::default() };
        assert!(Routes::new(local()).is_ok());
        let refused =
            Routes::new(Terms { store_down: crate::StoreDown::PassUnprotected, ..local() }).unwrap_err();
        assert_eq!(refused, TermsError::Local("store_down"));
        assert!(
            ["transaction", "external", "downstream"].iter().all(|word| refused.to_string().contains(word))
        );
        let circular = Terms::default().keyed_by(crate::names::OPERATION_ID);
        assert_eq!(Routes::new(circular).unwrap_err(), TermsError::KeyHeader);
        let one = KeySource::Composite(vec![KeySource::Fingerprint]);
        let nested = KeySource::Composite(vec![KeySource::Fingerprint, one.clone()]);
        let circular = KeySource::Header(crate::names::OPERATION_ID);
        let circular = KeySource::Composite(vec![KeySource::Fingerprint, circular]);
        for (source, error) in
            [(one, TermsError::Composite), (nested, TermsError::Composite), (circular, TermsError::KeyHeader)]
        {
            let terms = Terms { key_source: source, ..Terms::default() };
            assert_eq!(Routes::new(terms).unwrap_err(), error);
        }
        let bad = Routes::new(Terms::default()).and_then(|routes| routes.with("x", Terms::default()));
        assert!(matches!(bad.unwrap_err(), TermsError::Pattern(_)));
    }

    #[test]
    fn no_name_takes_over_the_records_of_another_route() {
        let named = |name: &str| Terms { name: Some(name.into()), ..Terms::default() };
        let at = |template: &str, name: &str| {
            Routes::new(Terms::default()).and_then(|routes| routes.with(template, named(name)))
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
            assert_eq!(at(template, name).unwrap_err(), TermsError::Name(name.into()), "{template}");
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
            TermsError::Name("POST /charges".into()),
            "the default is many routes"
        );
        let behind =
            at("/{*all}", "everything").and_then(|routes| routes.with("/charges", named("POST /charges")));
        assert_eq!(behind.unwrap_err(), TermsError::Name("POST /charges".into()), "it never comes there");
    }

    #[test]
    fn routes_that_share_their_keys_share_the_rule_for_their_callers() {
        let named = |callers: Option<&Callers>| Terms {
            name: Some("charge".into()),
            callers: callers.cloned(),
            ..Terms::default()
        };
        let both = |one: Option<&Callers>, other: Option<&Callers>| {
            let routes = Routes::new(Terms::default()).and_then(|routes| routes.with("/a", named(one)));
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
            assert_eq!(both(one, other).unwrap_err(), TermsError::Callers("charge".into()));
        }
    }
}
