"""Packages that run an application which is not their own.

Generated from providers/tracing.yml by `rake generate`. Do not edit.
"""

from __future__ import annotations

RUNNERS = {
    "bundler",
    "celery",
    "daphne",
    "django",
    "falcon",
    "flask",
    "gunicorn",
    "hypercorn",
    "passenger",
    "pip",
    "puma",
    "pytest",
    "rack",
    "rackup",
    "railties",
    "rails",
    "rake",
    "resque",
    "rspec",
    "sidekiq",
    "spring",
    "thin",
    "unicorn",
    "uvicorn",
    "uwsgi",
    "waitress",
}
