"""Outputs in JSON against the schemas that `marline schema` prints."""

import json
import subprocess

import jsonschema

import lab as labs


def schema(output):
    words = [str(labs.MARLINE), "schema", output]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def strict(part):
    """A schema that allows no members beside those that it names."""
    if isinstance(part, list):
        return [strict(one) for one in part]
    if not isinstance(part, dict):
        return part
    part = {name: strict(one) for name, one in part.items()}
    if part.get("type") == "object" and "properties" in part:
        part.setdefault("additionalProperties", False)
    return part


def assert_conforms(output, text):
    """The text has every member of the schema, of the right type, and no other."""
    value = json.loads(text)
    jsonschema.Draft202012Validator(strict(schema(output))).validate(value)
    return value
