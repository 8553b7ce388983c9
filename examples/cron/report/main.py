"""Sums up orders in words for people, and signs the report."""

import hashlib
import hmac
import os

import humanize


def handler(event, context):
    orders = event["orders"]
    text = f"{humanize.apnumber(len(orders))} orders, {humanize.intcomma(sum(orders))} EUR"
    key = os.environ["SIGNING_KEY"].encode()
    print(text)  # in the log of this call
    return {"report": text, "signature": hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}
