"""What a request on admin.sock can be refused with, beside the errors of the parts that it asks."""

from bxcore.errors import BoxmakerError


class NoApproval(BoxmakerError):
    """No question of that number is open."""

    code = "no_approval"


class NoRecord(BoxmakerError):
    """The audit log has no decision of that number."""

    code = "no_record"
