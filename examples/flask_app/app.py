"""The front desk of a freight terminal: hauliers hand in what they bring and fetch labels for it.

    POST /manifests      text/plain as in manifest.py -> its contents, as JSON
    GET /labels/NUMBER   -> the label of a container, with its checksum

FIXED=parser, FIXED=checksum or FIXED=parser,checksum fixes the mistakes.
"""

import logging
import os

from checksum import Checksum, FastChecksum
from flask import Flask, jsonify, request
from manifest import CarefulSource, Invalid, Manifest, Source

# In your own application: these two lines, early, or PROBESCOPE=1 in its environment.
if not os.environ.get("WITHOUT_PROBESCOPE"):
    import probescope

    probescope.install()

PORTS = ("Antwerp", "Bilbao", "Cork", "Danzig", "Esbjerg", "Felixstowe", "Genoa", "Hamburg")

fixed = os.environ.get("FIXED", "").split(",")
source = CarefulSource if "parser" in fixed else Source
checksum = FastChecksum() if "checksum" in fixed else Checksum()
app = Flask(__name__)
if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
    import traces

    traces.instrument(app)
if not os.environ.get("WITHOUT_PROBESCOPE"):
    app.wsgi_app = probescope.wsgi(app.wsgi_app)
log = logging.getLogger("freight")
log.propagate = False
log.addHandler(logging.FileHandler(os.environ.get("LOG", os.devnull)))


@app.get("/")
def index():
    return f"freight desk, process {os.getpid()}: POST /manifests, GET /labels/NUMBER\n"


@app.post("/manifests")
def manifests():
    if request.mimetype != "text/plain":
        return "a manifest is text/plain\n", 415
    top = Manifest(source).parse(request.get_data(as_text=True))
    weigh = careful_weight if "parser" in fixed else weight
    return jsonify(kind=top.kind, name=top.name, kilograms=weigh(top), items=top.items(), levels=top.levels())


@app.get("/labels/<int:number>")
def labels(number):
    body = label(number)
    return jsonify(number=number, label=body, checksum=f"{checksum.of(body.encode()):08x}")


@app.errorhandler(Invalid)
def refuse(invalid):
    return jsonify(error=str(invalid)), 422


def weight(unit):
    """Returns None for goods without a weight. This is the second mistake: each traceback goes into the
    log, is as long as the manifest is deep, and nobody reads it."""
    try:
        return unit.weight()
    except ValueError:
        log.warning("manifest %s is still to be weighed", unit.name, exc_info=True)
        return None


def careful_weight(unit):
    """The same with a check first."""
    if unit.weighed():
        return unit.weight()
    log.warning("manifest %s is still to be weighed", unit.name)
    return None


def label(number):
    """Text of a label: the destination, and a line for each item."""
    lines = [f"SKU-{number}-{i} {(number * 31 + i * 17) % 900} kg\n" for i in range(300)]
    return f"{PORTS[number % len(PORTS)]}\n{''.join(lines)}"
