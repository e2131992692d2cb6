"""What went wrong with the server keeps its name on the way to bxctl."""

from bxcore.errors import UpstreamError
from bxcore.wire.control import ErrorCode
from gatewayd import faults


def test_every_fault_of_the_server_is_an_error_that_the_wire_knows() -> None:
    codes = {kind.code for kind in vars(faults).values() if isinstance(kind, type) and issubclass(kind, UpstreamError)}
    assert codes - {UpstreamError.code} == {code.value for code in ErrorCode if "mattermost" in code.value} | {
        ErrorCode.TOKEN_REFUSED.value
    }
