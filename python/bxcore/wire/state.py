"""What brokerd knows of one session, asked by memoryd on `state.sock` and by bxctl on `admin.sock`.

Read-only: nothing here can change a label.
"""

import attrs

from bxcore.ids import SessionId
from bxcore.wire.tools import DataClass


@attrs.frozen(kw_only=True)
class SessionStateAsk:
    """kind `session_state_ask`: answered by `session_state_report`."""

    session: SessionId


@attrs.frozen(kw_only=True)
class SessionStateReport:
    """kind `session_state_report`, final. A state that cannot be read counts as secret and untrusted."""

    session: SessionId
    taint: DataClass
    untrusted: bool
    readable: bool
