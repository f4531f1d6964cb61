//! Which terms a request comes under.
//!
//! What lives here: templates of paths, and the terms of each. What must never: decoding or normalising a path; only the
//! application knows which spellings mean the same.

use crate::terms::{Terms, TermsError};
use http::Method;
use semel::core::policy::Policy;
use semel::core::scope::Operation;
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
    fn new(terms: Terms, template: &str) -> Result<Arc<Self>, TermsError> {
        terms.check()?;
        let policy = Arc::new(terms.policy.clone());
        let label = terms.name.clone().unwrap_or_else(|| template.to_owned());
        let name = terms.name.as_deref().map(Arc::from);
        Ok(Arc::new(Self { label, name, terms, policy }))
    }

    /// What a request is asking for.
    pub(crate) fn operation(&self, method: &Method, path: &str) -> Operation {
        match &self.name {
            Some(name) => Operation::named(Arc::clone(name)),
            None => Operation::route(method.as_str(), path),
        }
    }
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
/// Paths are compared as they were sent. A request whose spelling an application understands and a template does not
/// (`/charges/`, `/%63harges`) comes under the default: choose one that is no weaker than it has to be.
#[derive(Debug, Clone)]
pub struct Routes {
    default: Arc<Ready>,
    by_template: Vec<(Template, Arc<Ready>)>,
}

impl Routes {
    /// Every request comes under `default`.
    pub fn new(default: Terms) -> Result<Self, TermsError> {
        if let Some(name) = default.name.as_ref().filter(|name| route_of(name).is_some()) {
            return Err(TermsError::Name(name.clone()));
        }
        Ok(Self { default: Ready::new(default, "other")?, by_template: Vec::new() })
    }

    /// Requests whose path fits `template` come under `terms`, as far as these name their method.
    pub fn with(mut self, template: &str, terms: Terms) -> Result<Self, TermsError> {
        let parsed = Template::parse(template).ok_or_else(|| TermsError::Template(template.to_owned()))?;
        if let Some(name) = &terms.name
            && self.all().any(|(_, other)| other.name == terms.name && !is_one_rule(other, &terms))
        {
            return Err(TermsError::Callers(name.clone()));
        }
        if let Some(name) = terms.name.as_ref().filter(|name| self.is_anothers(name, &parsed, &terms)) {
            return Err(TermsError::Name(name.clone()));
        }
        self.by_template.push((parsed, Ready::new(terms, template)?));
        Ok(self)
    }

    /// Whether the records of requests that do not come under these terms may be called so.
    fn is_anothers(&self, name: &str, template: &Template, terms: &Terms) -> bool {
        let Some((method, path)) = route_of(name) else { return false };
        let is_its_own = terms.methods.contains(&method) && template.is_fixed() && template.text == path;
        let is_taken = |(earlier, ready): &(Template, Arc<Ready>)| {
            earlier.fits(path) && ready.terms.methods.contains(&method) && ready.name.as_deref() != Some(name)
        };
        !is_its_own || self.by_template.iter().any(is_taken)
    }

    /// Every route's template, where it has one, and its terms; the default last.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Option<&str>, &Terms)> {
        let routes =
            self.by_template.iter().map(|(template, ready)| (Some(template.text.as_str()), &ready.terms));
        routes.chain([(None, &self.default.terms)])
    }

    /// Whether any of them has somebody asked before a replay.
    pub(crate) fn ask(&self) -> bool {
        self.all().any(|(_, terms)| terms.authorize.is_some())
    }

    /// The first route, by its label, whose outcomes must be sealed.
    pub(crate) fn sealed_route(&self) -> Option<&str> {
        let mut routes = self.by_template.iter().map(|(_, ready)| ready).chain([&self.default]);
        let route = routes.find(|ready| ready.terms.seal == Seal::Required);
        route.map(|ready| ready.label.as_str())
    }

    /// Whether outcomes of a record's operation [must](Seal::Required) be sealed, by the terms that its requests come under
    /// today.
    pub fn must_seal(&self, operation: &str) -> bool {
        self.of_record(operation).is_some_and(|ready| ready.terms.seal == Seal::Required)
    }

    /// Operations as the records of a route have them, one for each method where it has no name. Those of the default stand at a path
    /// that fits no template, unless that has an open end.
    pub(crate) fn operations_like(&self, route: Option<&str>, terms: &Terms) -> Vec<Operation> {
        if let Some(name) = &terms.name {
            return vec![Operation::named(name.as_str())];
        }
        let longest = self.by_template.iter().map(|(template, _)| template.segments.len()).max();
        let other = || "/(other)".repeat(longest.unwrap_or_default() + 1);
        let path = route.map_or_else(other, str::to_owned);
        terms.methods.iter().map(|method| Operation::route(method.as_str(), path.as_str())).collect()
    }

    /// The first route with a reconciler that whoever asks does not know of.
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
        self.by_template
            .iter()
            .map(|(_, ready)| ready)
            .chain([&self.default])
            .map(|ready| ready.label.as_str())
    }

    /// What a record's operation is called where labels have to be few: the name of its route, else its template, else
    /// what stands for every other.
    pub fn label(&self, operation: &str) -> &str {
        self.of_record(operation).unwrap_or(&self.default).label.as_str()
    }

    /// The terms that a record of this name was claimed under, by today's routes.
    pub(crate) fn of_record(&self, operation: &str) -> Option<&Arc<Ready>> {
        let mut named = self.by_template.iter().map(|(_, ready)| ready).chain([&self.default]);
        if let Some(ready) = named.find(|ready| ready.terms.name.as_deref() == Some(operation)) {
            return Some(ready);
        }
        let (method, path) = operation.split_once(' ')?;
        self.of(&method.parse().ok()?, path)
    }

    /// The terms for a request, unless none are about its method.
    pub(crate) fn of(&self, method: &Method, path: &str) -> Option<&Arc<Ready>> {
        let routes =
            self.by_template.iter().filter(|(template, _)| template.fits(path)).map(|(_, ready)| ready);
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

/// Whether callers are told apart by the same rule under both.
fn is_one_rule(one: &Terms, other: &Terms) -> bool {
    match (&one.callers, &other.callers) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_same(other),
        _ => false,
    }
}

/// A path with places for any segment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Template {
    text: String,
    segments: Vec<Option<String>>,
    open: bool,
}

impl Template {
    fn parse(template: &str) -> Option<Self> {
        let mut segments = Vec::new();
        let mut open = false;
        for segment in template.strip_prefix('/')?.split('/') {
            if open {
                return None;
            }
            match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(name) if name.starts_with('*') => open = true,
                Some(name) if !name.is_empty() => segments.push(None),
                Some(_) => return None,
                None if segment.contains(['{', '}']) => return None,
                None => segments.push(Some(segment.to_owned())),
            }
        }
        Some(Self { text: template.to_owned(), segments, open })
    }

    /// Whether one path alone fits.
    fn is_fixed(&self) -> bool {
        !self.open && self.segments.iter().all(Option::is_some)
    }

    fn fits(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut given = path.split('/');
        let fit = self.segments.iter().all(|segment| {
            given
                .next()
                .is_some_and(|given| segment.as_ref().map_or(!given.is_empty(), |segment| segment == given))
        });
        fit && (self.open == given.next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::{Callers, NotIdentified};
    use crate::source::KeySource;
    use semel::core::policy::Class;

    #[test]
    fn templates_fit_whole_segments_and_nothing_else() {
        let fits = |template: &str, path: &str| Template::parse(template).expect("a template").fits(path);
        assert!(fits("/charges", "/charges"));
        assert!(fits("/a/{id}/b", "/a/7/b"));
        assert!(fits("/a/{*rest}", "/a/7/b"));
        assert!(fits("/", "/"));
        for (template, path) in [
            ("/charges", "/charges/"),
            ("/charges", "/%63harges"),
            ("/charges", "/Charges"),
            ("/a/{id}", "/a/"),
            ("/a/{id}", "/a/7/b"),
            ("/a/{*rest}", "/a"),
            ("/charges", "*"),
        ] {
            assert!(!fits(template, path), "{template} {path}");
        }
        for bad in ["", "charges", "/{}", "/a{b}", "/{*all}/b", "/{a"] {
            assert_eq!(Template::parse(bad), None, "{bad}");
        }
    }

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
    fn terms_that_cannot_be_kept_are_refused() {
        let local = Terms { policy: Policy::new(Class::Local), ..Terms::default() };
        let refused = Routes::new(local).unwrap_err();
        assert_eq!(refused, TermsError::Local);
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
        assert_eq!(bad.unwrap_err(), TermsError::Template("x".into()));
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
