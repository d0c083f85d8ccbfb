"""Starlette, with what is mounted below a path."""

import asyncio

import probescope
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route


async def order(request):
    number = request.path_params["number"]
    if number % 11 == 0:
        raise RuntimeError("no such order")
    return Response(status_code=404) if number % 7 == 0 else PlainTextResponse(str(number))


async def orders(request):
    async def rows():
        for i in range(3):
            await asyncio.sleep(0.002)
            yield f"row {i}\n"

    return StreamingResponse(rows())


async def create(request):
    return Response(status_code=503)


async def nap(request):
    await asyncio.sleep(int(request.path_params["ms"]) / 1000)
    return PlainTextResponse("ok")


def thing(request):
    return PlainTextResponse(request.path_params["name"])


shop = Starlette(
    routes=[
        Route("/orders/{number:int}", order),
        Route("/orders", orders),
        Route("/orders", create, methods=["POST"]),
        Route("/naps/{ms}", nap),
        Mount("/desk", routes=[Route("/things/{name}", thing)]),
    ]
)
application = probescope.asgi(shop)
