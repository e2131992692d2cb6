"""What the launcher cannot do, in words for the person who typed the command."""


class Refusal(Exception):
    """Nothing was started, or what was started is stopped again. The text says what to do."""
