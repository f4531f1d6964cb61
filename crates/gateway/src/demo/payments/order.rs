//! Reads orders, as JSON and as the form that Stripe's libraries send. An order that is not understood is not charged.

use super::ledger::Order;
use super::trouble::Trouble;
use serde_json::Value;

/// Why an order was not understood: the member, and what is wrong with it.
pub(super) struct Misread {
    pub(super) member: &'static str,
    pub(super) why: &'static str,
}

const AMOUNT: Misread = Misread { member: "amount", why: "must be a positive whole number of cents" };

/// An order as JSON: `{"amount": 2500, "currency": "eur", "customer": "ada"}`.
pub(super) fn from_json(body: &[u8]) -> Result<Order, Misread> {
    let misread = Misread { member: "body", why: "must be a JSON object" };
    let Ok(Value::Object(order)) = serde_json::from_slice(body) else { return Err(misread) };
    let amount = order.get("amount").and_then(Value::as_u64).filter(|amount| *amount > 0).ok_or(AMOUNT)?;
    let text = |name| order.get(name).and_then(Value::as_str);
    checked(amount, text("currency"), text("customer"))
}

/// An order as a form, and the trouble that its payment method asks for.
pub(super) fn from_form(body: &[u8]) -> Result<(Order, Option<Trouble>), Misread> {
    let pairs = pairs(body);
    let value = |name: &str| pairs.iter().rfind(|(given, _)| given == name).map(|(_, value)| value.as_str());
    let amount = value("amount").and_then(|amount| amount.parse().ok()).filter(|amount| *amount > 0);
    let trouble = ["source", "payment_method"].iter().find_map(|name| Trouble::of_method(value(name)?));
    Ok((checked(amount.ok_or(AMOUNT)?, value("currency"), value("customer"))?, trouble))
}

fn checked(amount: u64, currency: Option<&str>, customer: Option<&str>) -> Result<Order, Misread> {
    let is_currency = |text: &&str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    let misread = Misread { member: "currency", why: "must be three letters, such as eur" };
    let currency = currency.filter(is_currency).ok_or(misread)?.to_ascii_lowercase();
    Ok(Order { amount, currency, customer: customer.unwrap_or("anonymous").to_owned() })
}

/// The pairs of a form, decoded.
fn pairs(body: &[u8]) -> Vec<(String, String)> {
    let pair = |pair: &[u8]| {
        let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        (decoded(&pair[..equals]), decoded(pair.get(equals + 1..).unwrap_or_default()))
    };
    body.split(|byte| *byte == b'&').map(pair).collect()
}

fn decoded(mut text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        let escaped = rest.split_at_checked(2).filter(|_| *first == b'%').and_then(|(digits, after)| {
            let digits = str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 16).ok()?, after))
        });
        let (byte, after) = escaped.unwrap_or((if *first == b'+' { b' ' } else { *first }, rest));
        bytes.push(byte);
        text = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_decoded_and_its_payment_method_may_mean_trouble() {
        let read = from_form(b"amount=2500&currency=EUR&customer=Ada+L%C3%B6v%&source=tok_slow&x[y]=1");
        let (order, trouble) = read.ok().expect("an order");
        assert_eq!((order.amount, &*order.currency, &*order.customer), (2500, "eur", "Ada Löv%"));
        assert_eq!(trouble, Some(Trouble::Slow));
    }

    #[test]
    fn an_order_that_is_not_understood_names_the_member_at_fault() {
        let member = |body: &str| from_json(body.as_bytes()).err().map(|misread| misread.member);
        assert_eq!(member(r#"{"amount": 1, "currency": "eur"}"#), None);
        assert_eq!(member("[]"), Some("body"));
        for amount in ["0", "-1", "1.5", "\"1\"", "null"] {
            assert_eq!(member(&format!(r#"{{"amount": {amount}, "currency": "eur"}}"#)), Some("amount"));
        }
        assert_eq!(member(r#"{"amount": 1, "currency": "euro"}"#), Some("currency"));
        assert_eq!(from_form(b"amount=").err().map(|misread| misread.member), Some("amount"));
    }
}
