"""The command `probescope`, for the tracing machine. Applications do not load this package."""
