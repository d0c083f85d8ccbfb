"""An application without OpenTelemetry for spec/otel/desks_spec.rb. desk.ru is the Ruby version."""

import time

import flask
import probescope

app = flask.Flask(__name__)
app.wsgi_app = probescope.wsgi(app.wsgi_app)


@app.get("/")
def index():
    return "ready"


@app.get("/orders/<id>")
def orders(id):
    look(id)
    return id


@app.post("/orders")
def refuse():
    raise KeyError("there is no such article")


def look(id):
    time.sleep(0.005)
    try:
        int(f"order {id}")
    except ValueError:
        pass
