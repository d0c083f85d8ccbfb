"""OpenTelemetry as in any application that sends traces: a span for each request, in its trace."""

import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.flask import FlaskInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def instrument(app):
    os.environ.setdefault("OTEL_SERVICE_NAME", "freight-desk-python")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    FlaskInstrumentor().instrument_app(app)
    if not os.environ.get("WITHOUT_PROBESCOPE"):
        # Publishes the service name for tools outside of this process, such as `probescope otel`.
        import probescope.otel

        probescope.otel.install()
