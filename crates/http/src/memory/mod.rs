//! Memory that the requests of a layer share: for bodies that are read before they run, and for responses until their
//! clients have read them.
//!
//! Only sizes, owners and waiting live here; what the bytes mean does not.

mod body_budget;
mod budget;
mod response_budget;
mod unread_responses;
mod waiting_bytes;

pub(crate) use body_budget::{BodyBudget, BodyMemory, DecodePermit};
pub(crate) use budget::BudgetExhausted;
pub(crate) use response_budget::{FIRST_BYTES, ResponseBudget, ResponseMemory};
pub(crate) use waiting_bytes::WaitingBytes;
