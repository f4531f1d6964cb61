//! Receipts, in the service's own form and in Stripe's. Two receipts of one charge are equal.

use super::ledger::Charge;
use super::order::Misread;
use serde_json::{Value, json};

/// The service's own form.
pub(super) fn of(charge: &Charge) -> Value {
    let Charge { id, amount, currency, customer, operation_id } = charge;
    json!({
        "id": id,
        "amount": amount,
        "currency": currency,
        "customer": customer,
        "operation_id": operation_id,
        "status": "succeeded",
    })
}

/// What was wrong with an order.
pub(super) fn misread(misread: &Misread) -> Value {
    json!({ "error": format!("{} {}", misread.member, misread.why) })
}

/// The members of Stripe's `Charge` that people read.
pub(super) fn stripe_charge(charge: &Charge) -> Value {
    let Charge { id, amount, currency, customer, .. } = charge;
    json!({
        "id": id,
        "object": "charge",
        "amount": amount,
        "amount_captured": amount,
        "amount_refunded": 0,
        "captured": true,
        "currency": currency,
        "customer": customer,
        "livemode": false,
        "metadata": {},
        "paid": true,
        "refunded": false,
        "status": "succeeded",
    })
}

/// The members of Stripe's `PaymentIntent` that people read. Here an intent is charged as soon as it is made.
pub(super) fn stripe_intent(charge: &Charge) -> Value {
    let Charge { id, amount, currency, customer, .. } = charge;
    let intent = intent_id(id);
    json!({
        "id": intent,
        "object": "payment_intent",
        "amount": amount,
        "amount_received": amount,
        "client_secret": format!("{intent}_secret_demo"),
        "currency": currency,
        "customer": customer,
        "latest_charge": id,
        "livemode": false,
        "metadata": {},
        "payment_method_types": ["card"],
        "status": "succeeded",
    })
}

/// The id of the intent that led to a charge.
pub(super) fn intent_id(charge_id: &str) -> String {
    charge_id.replacen("ch_", "pi_", 1)
}

/// What was wrong with an order, in Stripe's form.
pub(super) fn stripe_misread(misread: &Misread) -> Value {
    let message = format!("{} {}", misread.member, misread.why);
    json!({ "error": { "type": "invalid_request_error", "param": misread.member, "message": message } })
}
