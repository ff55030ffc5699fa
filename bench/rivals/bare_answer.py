"""The least that can answer: `PORT FILE`, a Starlette route that returns a file."""

import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route


def build(body):
    async def answer(_):
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route("/", answer)])


if __name__ == "__main__":
    port, file = sys.argv[1:]
    app = build(Path(file).read_bytes())
    uvicorn.run(app, port=int(port), log_level="warning", access_log=False)
