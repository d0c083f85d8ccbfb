"""Django's routes as templates.

spec/frameworks_spec.rb checks with a real Django that its routes look like these.
"""

import pytest
from probescope._django_routes import template

TEMPLATES = {
    # path(): unchanged
    "orders/<int:number>": "/orders/<int:number>",
    "": "/",
    # re_path()
    r"^issues/(?P<pk>[0-9]+)/$": "/issues/<pk>/",
    r"^$": "/",
    r"^articles/([0-9]{4})/(\d\d)/$": "/articles/<var>/<var>/",
    r"^media/(?P<path>.*)$": "/media/<path>",
    r"^robots.txt$": "/robots.txt",
    r"^q\?x\.y\-z\Z": "/q?x.y-z",
    # include() of both kinds, nested
    r"api/v(?P<version>(1|2))/issues/<int:pk>/": "/api/v<version>/issues/<int:pk>/",
    r"shop/<slug:name>/(?P<pk>[0-9]+)/$": "/shop/<slug:name>/<pk>/",
    # Django REST framework
    r"^issues/(?P<pk>[^/.]+)\.(?P<format>[a-z0-9]+)/?$": "/issues/<pk>.<format>",
    # groups that match no part of the path, that do not capture, and that are optional or
    # alternatives
    r"^(?i:shop)/(?!internal)(?P<slug>[\w-]+)/(?#a comment)$": "/shop/<slug>/",
    r"^comments/(?:page-(?P<n>\d+)/)?$": "/comments/page-<n>/",
    r"^(?:en|de)/(?P<a>x)-(?P=a)$": "/*/<a>-<a>",
    # patterns without a name
    r"^files/[^/]+/[]a]/\d+/.*?$": "/files/*/*/*/*",
    r"^colou?r/x{2,3}/+$": "/color/x/",
    # literal parentheses
    r"^a/(?P<p>(a|b(c)?)[)(]\))/z$": "/a/<p>/z",
}


@pytest.mark.parametrize("route", TEMPLATES)
def test_a_route_is_a_template_that_people_read(route):
    assert template(route) == TEMPLATES[route]


@pytest.mark.parametrize(
    "route", ["((((", "^(?P<a>x", "x\\", "[", "^[^", "(?", "(?P<", "(?P=", ")(", "<", "\\", "{", "^(?:"]
)
def test_no_route_is_too_odd(route):
    assert template(route).startswith("/")
