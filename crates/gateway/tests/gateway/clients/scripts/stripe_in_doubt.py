"""A service that charges and then drops the line: the package retries, and is told that nobody knows."""

import sys

import stripe

gateway, customer = sys.argv[1:]
client = stripe.StripeClient("sk_demo", base_addresses={"api": gateway}, max_network_retries=2)
try:
    client.v1.payment_intents.create(
        {"amount": 2500, "currency": "eur", "customer": customer, "payment_method": "pm_hang-up"}
    )
    sys.exit("it was told of a success that nobody can prove")
except stripe.StripeError as error:
    assert error.http_status == 409, error
    assert error.json_body["code"] == "IDEMPOTENCY_OUTCOME_UNKNOWN", error.json_body
print("done")
