"""Django in one file, for WSGI and for ASGI."""

import os
import time

import django
import probescope
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import include, path, re_path

settings.configure(SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)


def order(request, number):
    if number % 11 == 0:
        raise RuntimeError("no such order")
    return HttpResponse(status=404) if number % 7 == 0 else HttpResponse(str(number))


def orders(request):
    if request.method == "POST":
        return HttpResponse(status=503)

    def rows():
        for i in range(3):
            time.sleep(0.002)
            yield f"row {i}\n"

    return StreamingHttpResponse(rows())


def nap(request, ms):
    time.sleep(int(ms) / 1000)
    return HttpResponse("ok")


def thing(request, name):
    return HttpResponse(name)


def issue(request, pk, **more):
    return HttpResponse(pk)


def page(request, year, number=None):
    return HttpResponse(str(year))


# URL patterns as in Django REST framework, and each kind nested in the other.
issues = [
    re_path(r"^issues/(?P<pk>[^/.]+)/$", issue),
    re_path(r"^issues/(?P<pk>[^/.]+)\.(?P<format>[a-z0-9]+)/?$", issue),
]
urlpatterns = [
    re_path(r"^api/v(?P<version>[12])/", include(issues)),
    path("archive/<int:year>/", include([re_path(r"^([0-9]+)/$", page)])),
    path("orders/<int:number>", order),
    path("orders", orders),
    re_path(r"^naps/(?P<ms>\d+)$", nap),
    path("desk/", include([path("things/<slug:name>", thing)])),
]
django.setup()
if os.environ.get("ASGI"):
    application = probescope.asgi(get_asgi_application())
else:
    application = probescope.wsgi(get_wsgi_application())
