"""Write types.json: the fields of the served kinds, taken from the official Python client.

Run after an upgrade of the client: `python -m controlplane.sandbox.schema.generate`.
The client's models are generated from Kubernetes' OpenAPI document, so this is that document,
cut down to our kinds, without needing a server at hand.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

from kubernetes import client

ROOTS = (
    "V1Namespace", "V1Node", "V1Pod", "CoreV1Event", "V1Secret", "V1ConfigMap", "V1Deployment",
    "V1ReplicaSet", "V1Job", "V1Lease", "V1PriorityClass", "V1Scale", "V1Eviction", "V1Binding",
    "V1DeleteOptions",
)  # fmt: skip
SCALARS = {
    "str": "string",
    "bytes": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
}
# IntOrString fields have no type of their own in the client
INT_OR_STRING = {"port", "targetPort", "maxSurge", "maxUnavailable", "minAvailable"}


def short(model: str) -> str:
    """`V1PodSpec` -> `PodSpec`; `CoreV1Event` -> `Event`."""
    return re.sub(r"^(Core)?V1", "", model)


def reference(text: str, field: str) -> str:
    """The client's type text as ours: `[]T`, `{}T`, a scalar, or a type's name."""
    if found := re.fullmatch(r"(?:list|List)\[(.+)\]", text):
        return "[]" + reference(found[1], "")
    if found := re.fullmatch(r"(?:dict|Dict)[\[(]str, (.+)[\])]", text):
        return "{}" + reference(found[1], "")
    if text in SCALARS:
        return SCALARS[text]
    if text == "datetime":
        return "time"
    if text == "object":
        return "int-or-string" if field in INT_OR_STRING else "any"
    return short(text)


def describe(model: str) -> dict[str, object]:
    cls = getattr(client, model)
    source = inspect.getsource(cls)
    fields: dict[str, str] = {}
    required: list[str] = []
    for attribute, json_name in sorted(cls.attribute_map.items(), key=lambda item: item[1]):
        fields[json_name] = reference(cls.openapi_types[attribute], json_name)
        if f"Invalid value for `{attribute}`, must not be `None`" in source:
            required.append(json_name)
    return {"fields": fields, "required": required} if required else {"fields": fields}


def collect() -> dict[str, object]:
    types: dict[str, object] = {}
    waiting = list(ROOTS)
    while waiting:
        model = waiting.pop()
        if short(model) in types:
            continue
        types[short(model)] = describe(model)
        for text in getattr(client, model).openapi_types.values():
            for word in re.findall(r"\w+", text):
                if re.match(r"(Core)?V\d", word) and hasattr(client, word):
                    waiting.append(word)
    return dict(sorted(types.items()))


def main() -> None:
    path = Path(__file__).with_name("types.json")
    lines = [f"{json.dumps(name)}:{json.dumps(body)}" for name, body in collect().items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{path}: {len(lines)} types")


if __name__ == "__main__":
    main()
