"""probescope: for the machine that the tracer is on. Nothing of this is loaded into an application."""
