"""Message kind -> type: the whole vocabulary of the framed sockets on one screen.

A kind that is not here is `bad_message`. tests/fixtures/wire/<kind>.json pins the bytes of each.
"""

from collections.abc import Mapping

from bxcore.wire import admin, approvals, channel, control, gateway, state, tools

KINDS: Mapping[str, type] = {
    "error": control.WireFault,
    # loop.sock, to loopd
    "user_message": channel.UserMessage,
    "turn_follow": channel.TurnFollow,
    "turn_cancel": channel.TurnCancel,
    "session_list": channel.SessionList,
    "session_show": channel.SessionShow,
    "cache_report": channel.CacheReport,
    "self_test": channel.SelfTest,
    "loop_status": channel.LoopStatus,
    # loop.sock, from loopd
    "message_accepted": channel.MessageAccepted,
    "turn_started": channel.TurnStarted,
    "turn_waiting": channel.TurnWaiting,
    "prompt_progress": channel.PromptProgress,
    "reasoning_delta": channel.ReasoningDelta,
    "text_delta": channel.TextDelta,
    "tool_called": channel.ToolCalled,
    "approval_pending": channel.ApprovalPending,
    "tool_returned": channel.ToolReturned,
    "turn_notice": channel.TurnNotice,
    "step_usage": channel.StepUsage,
    "answer_part": channel.AnswerPart,
    "turn_ended": channel.TurnEnded,
    "turn_snapshot": channel.TurnSnapshot,
    "turn_cancel_noted": channel.TurnCancelNoted,
    "session_summary": channel.SessionSummary,
    "session_list_end": channel.SessionListEnd,
    "session_record": channel.SessionRecord,
    "session_show_end": channel.SessionShowEnd,
    "cache_row": channel.CacheRow,
    "cache_report_end": channel.CacheReportEnd,
    "check_result": channel.CheckResult,
    "self_test_end": channel.SelfTestEnd,
    "loop_status_report": channel.LoopStatusReport,
    # broker.sock
    "tool_request": tools.ToolRequest,
    "tool_pending": tools.ToolPending,
    "tool_result": tools.ToolResult,
    "tool_failed": tools.ToolFailed,
    "tool_denied": tools.ToolDenied,
    # admin.sock, to brokerd
    "approval_list": admin.ApprovalList,
    "approval_show": admin.ApprovalShow,
    "approval_answer": admin.ApprovalAnswer,
    "grants_check": admin.GrantsCheck,
    "grants_test": admin.GrantsTest,
    "grants_explain": admin.GrantsExplain,
    "grants_suggest": admin.GrantsSuggest,
    "session_rebuild": admin.SessionRebuild,
    "broker_status": admin.BrokerStatus,
    # admin.sock, from brokerd
    "approval_summary": admin.ApprovalSummary,
    "approval_list_end": admin.ApprovalListEnd,
    "approval_text": admin.ApprovalText,
    "approval_shown": admin.ApprovalShown,
    "approval_outcome": admin.ApprovalOutcome,
    "grant_finding": admin.GrantFinding,
    "grants_check_end": admin.GrantsCheckEnd,
    "grant_reason": admin.GrantReason,
    "grants_verdict": admin.GrantsVerdict,
    "grant_suggestion": admin.GrantSuggestion,
    "broker_status_report": admin.BrokerStatusReport,
    # gateway.sock, to gatewayd and back
    "approval_open": approvals.ApprovalOpen,
    "approval_posted": approvals.ApprovalPosted,
    "approval_reply": approvals.ApprovalReply,
    "approval_closed": approvals.ApprovalClosed,
    "approval_noted": approvals.ApprovalNoted,
    # the owner's socket of gatewayd
    "gateway_status": gateway.GatewayStatus,
    "gateway_whoami": gateway.GatewayWhoami,
    "gateway_post": gateway.GatewayPost,
    "gateway_status_report": gateway.GatewayStatusReport,
    "gateway_account": gateway.GatewayAccount,
    "gateway_post_made": gateway.GatewayPostMade,
    # state.sock and admin.sock
    "session_state_ask": state.SessionStateAsk,
    "session_state_report": state.SessionStateReport,
}

KIND_OF: Mapping[type, str] = {message: kind for kind, message in KINDS.items()}
