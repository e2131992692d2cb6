"""The JSON schema of a tool's arguments, made from the class that reads them. Pure.

The model reads this text, so it is short: descriptions and limits come from the fields, and what
no schema can say in few words is left to the reader (docs/tools.md).
"""

import attrs

from bxcore.strictjson import JsonValue


def of(kind: type) -> dict[str, JsonValue]:
    """Return the schema of the arguments class `kind`: a closed object, its properties in the order of the class."""
    fields = attrs.fields(kind)
    required: list[JsonValue] = [field.name for field in fields if field.default is attrs.NOTHING]
    return {
        "type": "object",
        "properties": {field.name: _property(field) for field in fields},
        "required": required,
        "additionalProperties": False,
    }


def _property(field: "attrs.Attribute[object]") -> dict[str, JsonValue]:
    made: dict[str, JsonValue] = {**field.metadata["rule"].schema, "description": field.metadata["description"]}
    if field.metadata["default"] is not None:
        made["default"] = field.metadata["default"]
    return made
