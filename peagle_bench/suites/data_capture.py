"""Lines of SageMaker Data Capture: the request's body out of its envelope.

Files are `<prefix>/<endpoint>/<variant>/yyyy/mm/dd/hh/<uuid>.jsonl`, a line for each invocation:
https://docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture.html
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from peagle_bench.core.suite import Prompt
from peagle_bench.suites.loaded import Unusable
from peagle_bench.suites.rows import of_body


def is_capture(row: Any) -> bool:
    return isinstance(row, Mapping) and isinstance(row.get("captureData"), Mapping)


def prompts_of_capture(row: Mapping[str, Any], name: str) -> list[Prompt]:
    """The prompts of one captured invocation, named by its event id. Raises Unusable."""
    name = str(_event(row).get("eventId") or name)
    given = row["captureData"].get("endpointInput")
    if not isinstance(given, Mapping) or not isinstance(given.get("data"), str):
        raise Unusable("no captured input")
    body = _body(given["data"], str(given.get("encoding", "BASE64")).upper())
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, Mapping):
        raise Unusable("no LLM request")
    return of_body(body, name)


def time_of(row: Mapping[str, Any]) -> str:
    """`eventMetadata.inferenceTime` (ISO 8601, so it sorts); empty when it is not told."""
    return str(_event(row).get("inferenceTime") or "")


def _event(row: Mapping[str, Any]) -> Mapping[str, Any]:
    event = row.get("eventMetadata")
    return event if isinstance(event, Mapping) else {}


def _body(data: str, encoding: str) -> Any:
    if encoding == "CSV":
        raise Unusable("no LLM request")
    try:
        text = base64.b64decode(data, validate=True).decode() if encoding == "BASE64" else data
        return json.loads(text)
    except (binascii.Error, ValueError) as error:
        raise Unusable("a captured body that is no JSON") from error
