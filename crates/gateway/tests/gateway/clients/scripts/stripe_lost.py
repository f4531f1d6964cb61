"""A lost answer, as Stripe's package meets it: it draws a key, and sends the request again by itself."""

import sys

import stripe

lossy, customer = sys.argv[1:]
client = stripe.StripeClient("sk_demo", base_addresses={"api": lossy}, max_network_retries=4)
charge = client.v1.charges.create(
    {"amount": 2500, "currency": "eur", "customer": customer, "source": "tok_visa", "metadata": {"order": "7"}}
)
assert (charge.status, charge.amount, charge.customer) == ("succeeded", 2500, customer), charge
assert charge.last_response.headers["Idempotency-Replayed"] == "true", charge.last_response.headers
assert client.v1.charges.retrieve(charge.id).amount == 2500
print("done")
