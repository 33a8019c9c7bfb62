"""The description of the interface, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

ROW = {
    "type": "object",
    "required": ["t"],
    "properties": {
        "t": {"description": "Time of the row, later than the last one.", "example": 3.5},
        "values": {"type": "object", "description": "What was observed.", "example": {"pulse": 81}},
        "static": {"type": "object", "description": "Static features, with the first row of a stream."},
    },
}
SERIES = {
    "type": "object",
    "required": ["rows"],
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "t"],
                "properties": {"id": {"type": "string"}, "t": {}, "values": {"type": "object"}},
            },
        },
        "static": {"type": "object", "description": "Static features by id."},
        "at": {"type": "array", "items": {}, "description": "Times to predict at; without it, at the last rows."},
    },
}

PREDICTION = {"id": "bed-7", "t": 3.5, "prediction": "ill", "p_ill": 0.62, "p_well": 0.38}
REFUSALS = {
    400: "the body is not JSON",
    401: "the token is missing or wrong",
    403: "a browser sent the request for a page of another site",
    404: "there is no such stream",
    408: "the body did not arrive in time",
    409: "the time is not later than the last row, and the row is not the last one again",
    413: "the body is too large, or has too many rows",
    422: "the request does not fit the model",
    429: "there are too many streams",
    503: "the log cannot be written, or too many requests wait",
}


def secure(app: FastAPI, open_routes: tuple[str, ...] = ()) -> None:
    """Describe that all routes but these need a token."""
    describe = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = describe()
            found.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, methods in found["paths"].items():
                for route in methods.values():
                    route["security"] = [] if path in open_routes else [{"token": []}]
        return app.openapi_schema or {}

    app.openapi = described  # type: ignore[method-assign]


def body_of(schema: dict[str, Any]) -> dict[str, Any]:
    """A body in the description of a route."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def answers(example: dict[str, Any] | None, *refusals: int) -> dict[int | str, dict[str, Any]]:
    """The answers of a route, for its description."""
    detail = {"type": "object", "properties": {"detail": {"type": "string"}}}
    found: dict[int | str, dict[str, Any]] = {}
    if example is not None:
        found[200] = {"content": {"application/json": {"example": example}}}
    for status in refusals:
        found[status] = {"description": REFUSALS[status], "content": {"application/json": {"schema": detail}}}
    return found
