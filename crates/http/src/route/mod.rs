//! Routes: which requests belong to one, and what it requires and promises.
//!
//! Everything here follows from the configuration and from the head of a request. Nothing is read, stored or answered.

mod authorize;
mod callers;
mod compiled_route;
mod deadlines;
mod found_response;
mod key_source;
mod method;
mod pattern;
mod reconciler;
mod routes;
mod settings;
pub(crate) mod shadow_operation;
mod target;
pub(crate) mod template;

pub use authorize::Authorize;
pub(crate) use callers::TenantOf;
pub use callers::{Callers, NotIdentified};
pub(crate) use compiled_route::CompiledRoute;
pub use deadlines::Deadlines;
pub use key_source::KeySource;
pub(crate) use method::folded;
pub use method::{check_method, is_registered_method};
pub use pattern::{RoutePattern, RoutePatternError};
pub use reconciler::Reconciler;
pub use routes::Routes;
pub use settings::{KeyRule, MismatchStatus, Mode, RouteSettings, RouteSettingsError, StoreDown};
pub use shadow_operation::is_shadow;
pub(crate) use target::Target;
