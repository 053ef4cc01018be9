"""
The service: it knows the account's key and who is who, and gives tokens. Notes do not pass through it.
"""

import datetime as dt
import hmac
from collections.abc import Mapping

from aiohttp import web

from examples.notes.models import Note
from tableorm import Database

LIFETIME = dt.timedelta(minutes=15)

DATABASE = web.AppKey("database", Database)
TABLES = web.AppKey("tables", str)
PASSWORDS = web.AppKey("passwords", Mapping[str, str])


def make_app(db: Database, tables: str, passwords: Mapping[str, str]) -> web.Application:
    """
    The application.

    Args:
        db: The database, opened with the account's key.
        tables: The URL that users open with their tokens.
        passwords: Of each user. A real service asks whoever signs its users in.
    """
    app = web.Application()
    app[DATABASE], app[TABLES], app[PASSWORDS] = db, tables, passwords
    app.router.add_post("/token", give_token)
    return app


async def give_token(request: web.Request) -> web.Response:
    """A token for the partition of whoever asks; the same one again until shortly before it expires."""
    user = user_of(request)
    mine = request.app[DATABASE].scope(user=user)
    token = await mine.grant(Note, "raud", LIFETIME)
    return web.json_response({"user": user, "tables": request.app[TABLES], "token": token})


def user_of(request: web.Request) -> str:
    """Who asks."""
    kind, _, password = request.headers.get("Authorization", "").partition(" ")
    found = [
        user for user, known in request.app[PASSWORDS].items() if hmac.compare_digest(known.encode(), password.encode())
    ]
    if kind != "Bearer" or not found:
        raise web.HTTPUnauthorized(text="who are you? Send Authorization: Bearer PASSWORD")
    return found[0]
