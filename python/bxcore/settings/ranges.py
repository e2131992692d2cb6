"""Checks of numbers that more than one role's settings need."""

import attrs


def whole(low: int, high: int) -> "attrs._ValidatorType[int]":
    """Return a validator that refuses what lies outside of `low` to `high`, both of which are allowed."""

    def check(_: object, attribute: "attrs.Attribute[int]", value: int) -> None:
        if not low <= value <= high:
            raise ValueError(f"{attribute.name}: expected {low} to {high}")

    return check
