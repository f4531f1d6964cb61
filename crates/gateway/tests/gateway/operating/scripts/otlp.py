"""Reads batches of spans, one file each, as a collector would: by the protocol's own definition, and nothing that is not in it."""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def with_bytes(span):
    """OTLP writes ids in hexadecimal digits, where JSON otherwise has base64 for bytes."""
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in span:
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return span


total = 0
for path in sys.argv[1:]:
    with open(path) as file:
        batch = json.load(file)
    for resource in batch["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            scope["spans"] = [with_bytes(span) for span in scope["spans"]]
    request = json_format.ParseDict(batch, ExportTraceServiceRequest(), ignore_unknown_fields=False)
    for resource in request.resource_spans:
        names = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
        assert names["service.name"] == "payments", names
        for scope in resource.scope_spans:
            for span in scope.spans:
                total += 1
                assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
                assert len(span.parent_span_id) in (0, 8), span
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
                kind = {"request": Span.SPAN_KIND_SERVER, "upstream": Span.SPAN_KIND_CLIENT}
                assert span.kind == kind.get(span.name, Span.SPAN_KIND_INTERNAL), span
assert total >= 10, total
print("done")
