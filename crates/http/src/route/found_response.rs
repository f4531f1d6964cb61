//! What is stored of a response that a probe found, under the settings of its route.

use super::settings::RouteSettings;
use crate::stored::{Retain, rebuild};
use bytes::Bytes;
use semel::core::outcome::{Outcome, Status};

impl RouteSettings {
    /// The outcome to store, under these settings, for a response that a probe found. It is not the original response;
    /// replays of it are marked `Idempotency-Replayed: rebuilt`.
    ///
    /// Without a body, or with one that is too long, only the fact that it happened is stored.
    pub fn found(&self, head: &http::response::Parts, body: Option<Bytes>) -> Outcome {
        let status = Status::Http(head.status.as_u16());
        if let Retain::Minimal(_) = self.retain {
            return rebuild::minimal(status, &head.headers, None);
        }
        let Some(body) = body.filter(|body| body.len() <= self.response_bytes_max) else {
            return Outcome::not_retained(status);
        };
        let headers = self.stored_headers.of(&head.headers, body.len(), false);
        rebuild::found(status, headers, body)
    }
}
