"""Text from outside -> text that cannot steer: neither the model's template nor a terminal.

A tokenizer that reads a rendered prompt takes the text of a special token for the token itself,
wherever it stands. `neutralise` puts a space after the first character of everything that is such a
tag for a known family of models, and of everything that has the usual shapes. It must be the last
change made to a text, and is applied to the whole text: two harmless pieces may join into a tag. Pure.
"""

import re
from functools import cache

FAMILIES: dict[str, tuple[str, ...]] = {
    "thinking": (
        "<think>",
        "</think>",
        "<thinking>",
        "</thinking>",
        "<reasoning>",
        "</reasoning>",
        "<response>",
        "</response>",
        "[THINK]",
        "[/THINK]",
        "<think_fast>",
        "<think_faster>",
        "[BEGIN FINAL RESPONSE]",
        "[END FINAL RESPONSE]",
        "<seed:think>",
        "</seed:think>",
    ),
    "tool calls": (
        "<tools>",
        "</tools>",
        "<tool_call>",
        "</tool_call>",
        "<tool_calls>",
        "</tool_calls>",
        "<tool_response>",
        "</tool_response>",
        "<tool_result>",
        "</tool_result>",
        "<toolcall>",
        "</toolcall>",
        "<TOOLCALL>",
        "</TOOLCALL>",
        "<TOOL_RESPONSE>",
        "</TOOL_RESPONSE>",
        "<AVAILABLE_TOOLS>",
        "</AVAILABLE_TOOLS>",
        "<available_tools>",
        "</available_tools>",
        "<function_call>",
        "</function_call>",
        "<function_calls>",
        "</function_calls>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<function_results>",
        "</function_results>",
        "<function=",
        "</function>",
        "<parameter=",
        "<parameter name=",
        "</parameter>",
        "<invoke name=",
        "</invoke>",
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        "<seed:tool_call>",
        "</seed:tool_call>",
        "[TOOL_REQUEST]",
        "[END_TOOL_REQUEST]",
    ),
    "Llama 2, Mistral, Mixtral": (
        "<s>",
        "</s>",
        "<unk>",
        "<pad>",
        "<mask>",
        "<<SYS>>",
        "<</SYS>>",
        "[INST]",
        "[/INST]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_CALLS]",
        "[/TOOL_CALLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CONTENT]",
        "[ARGS]",
        "[CALL_ID]",
        "[PREFIX]",
        "[MIDDLE]",
        "[SUFFIX]",
        "[IMG]",
        "[IMG_BREAK]",
        "[IMG_END]",
        "[AUDIO]",
        "[BEGIN_AUDIO]",
        "[TRANSCRIBE]",
        "[MODEL_SETTINGS]",
        "[/MODEL_SETTINGS]",
    ),
    "Gemma": (
        "<bos>",
        "<eos>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<start_of_image>",
        "<end_of_image>",
        "<image_soft_token>",
        "<start_of_audio>",
        "<end_of_audio>",
        "<audio_soft_token>",
        "<start_function_declaration>",
        "<end_function_declaration>",
        "<start_function_call>",
        "<end_function_call>",
        "<start_function_response>",
        "<end_function_response>",
        "<escape>",
        "[multimodal]",
    ),
    "SmolLM, StarCoder, Granite code": (
        "<repo_name>",
        "<reponame>",
        "<file_sep>",
        "<filename>",
        "<gh_stars>",
        "<issue_start>",
        "<issue_comment>",
        "<issue_closed>",
        "<jupyter_start>",
        "<jupyter_text>",
        "<jupyter_code>",
        "<jupyter_output>",
        "<jupyter_script>",
        "<empty_output>",
        "<commit_before>",
        "<commit_msg>",
        "<commit_after>",
        "<pr>",
        "<pr_status>",
        "<pr_is_merged>",
        "<pr_base>",
        "<pr_file>",
        "<pr_base_code>",
        "<pr_diff>",
        "<pr_diff_hunk>",
        "<pr_comment>",
        "<pr_event_id>",
        "<pr_review>",
        "<pr_review_state>",
        "<pr_review_comment>",
        "<pr_in_reply_to_review_id>",
        "<pr_in_reply_to_comment_id>",
        "<pr_diff_hunk_comment_line>",
        "<fim_prefix>",
        "<fim_middle>",
        "<fim_suffix>",
        "<fim_pad>",
        "<fim-prefix>",
        "<fim-middle>",
        "<fim-suffix>",
        "<fim-pad>",
    ),
    "GLM, ChatGLM": ("[gMASK]", "[sMASK]", "[MASK]", "<sop>", "<eop>", "<eot>"),
    "Command R": (
        "<BOS_TOKEN>",
        "<EOS_TOKEN>",
        "<EOP_TOKEN>",
        "<PAD>",
        "<UNK>",
        "<CLS>",
        "<SEP>",
        "<MASK_TOKEN>",
    ),
    "Kimi, BERT, InternLM": ("[BOS]", "[EOS]", "[EOT]", "[UNK]", "[PAD]", "[CLS]", "[SEP]"),
    "ERNIE": ("<cls>", "<sep>", "<end_of_sentence>", "<begin_of_sentence>"),
    "Seed": ("<seed:bos>", "<seed:eos>", "<seed:pad>", "<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
    "MiniMax": ("]~b]", "]~!b[", "[e~[", "]!p~[", "]!d~["),
    "Falcon": (
        ">>TITLE<<",
        ">>ABSTRACT<<",
        ">>INTRODUCTION<<",
        ">>SUMMARY<<",
        ">>COMMENT<<",
        ">>ANSWER<<",
        ">>QUESTION<<",
    ),
    "pictures and sound": (
        "<image>",
        "</image>",
        "<__media__>",
        "<__image__>",
        "<start_of_img>",
        "<end_of_img>",
        "<img>",
        "</img>",
        "<audio>",
        "</audio>",
        "<video>",
        "</video>",
    ),
}
"""Tags by the family of models that has them; those of the usual shapes need no entry."""

SHAPES: dict[str, tuple[str, str]] = {
    # name: (expression, sample). None of them matches white space or its own opening character
    # inside: that keeps the scan linear, and makes neutralising a second time change nothing.
    "<|name|>, <|name>, <|name|...": (r"</?[|｜][^\s<>|｜]+[|｜>]", "<|im_start|>"),
    "<name|>": (r"</?[^\s<>|｜]+[|｜]>", "<tool_call|>"),
    "<[name]>": (r"<\[[^\s<>\[\]]+\]>", "<[begin▁of▁sentence]>"),
    "[|name|]": (r"\[\|[^\s\[\]|]+\|\]", "[|assistant|]"),
    "<name_number>": (
        r"<(?:unused|reserved|extra_id|special|SPECIAL|dummy|mask|image|img|bot)[_:]?[0-9]+>",
        "<unused7>",
    ),
    "[NAME_number]": (r"\[(?:UNUSED_TOKEN|unused|control|reference)_?[0-9]+\]", "[control_8]"),
}
"""Forms that tags have in many families, each with a sample."""

_MORE_SAMPLES = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|begin_of_text|>",
    "<|system|>",
    "<|channel|>",
    "<|turn>",
    "<turn|>",
    "<｜Assistant｜>",
    "<｜tool▁calls▁begin｜>",
    "</｜DSML｜invoke>",
    "<SPECIAL_12>",
    "<extra_id_0>",
    "<reserved_106>",
    "<mask:1>",
)

_TEMPLATE_MARKERS = re.compile(
    r"<[^\s<>'\"{}]{1,80}>"  # <|im_start|>, <tool_call>, </think>
    r"|</?[A-Za-z_:]{1,40}(?:=| [a-z]{1,20}=)"  # <function=, <invoke name=, followed by a value
    r"|\[/?[A-Z][A-Z_ ]{1,40}\]"  # [INST], and not messages[0]
    r"|\[[a-z]?[A-Z]{3,20}\]"  # [gMASK]
    r"|\[\|[^\s\[\]|]{1,40}\|\]"  # [|assistant|]
    r"|\][~!a-z]{1,4}[\[\]]"  # ]~b]
)


def neutralise(text: str, extra: tuple[str, ...] = ()) -> str:
    """Return `text` with a space after the first character of each tag; everything else stays as it is.

    `extra` holds further tags, such as those of the served model's own template. Doing it again
    changes nothing.
    """
    return _tags(extra).sub(r"\g<0> ", text)


def tags_in_template(template: str) -> tuple[str, ...]:
    """Return the markers that stand literally in a chat template, sorted, for use as `extra`."""
    return tuple(sorted(set(_TEMPLATE_MARKERS.findall(template))))


def samples() -> tuple[str, ...]:
    """Return every known tag and at least one of each shape: what the self-test shows the tokenizer."""
    named = (tag for family in FAMILIES.values() for tag in family)
    shaped = (sample for _, sample in SHAPES.values())
    return tuple(dict.fromkeys((*named, *shaped, *_MORE_SAMPLES)))


def escape_terminal(text: str, *, keep_newlines: bool) -> str:
    r"""Return `text` with every invisible or steering character written out, as in \u{202E}.

    That is: control, format, private-use and surrogate characters, line and paragraph separators,
    and the other characters that show nothing by themselves. Newline and tab stay where
    `keep_newlines` asks for it; variation selectors for emoji stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return (_HIDDEN_BUT_NEWLINES if keep_newlines else _HIDDEN).sub(_spelled, text)


@cache
def _tags(extra: tuple[str, ...]) -> re.Pattern[str]:
    named = [tag for family in FAMILIES.values() for tag in family]
    forms = [expression for expression, _ in SHAPES.values()]
    forms += [re.escape(tag) for tag in sorted({*named, *extra})]
    # One character, then the rest as a look-ahead: tags that overlap are all found.
    first: dict[str, list[str]] = {}
    for form in forms:
        head = form[:2] if form[0] == "\\" else form[0]
        first.setdefault(head, []).append(form[len(head) :])
    return re.compile("|".join(f"{head}(?={'|'.join(rests)})" for head, rests in first.items()))


def _spelled(match: re.Match[str]) -> str:
    return f"\\u{{{ord(match.group()):04X}}}"


# Cf, and what Unicode lists as default-ignorable but for the emoji variation selectors. Written out,
# because asking unicodedata about every character costs 0.1 s at start; a test compares the two.
_FORMAT = (
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_OTHER = "\u007f-\u009f\u2028\u2029\ud800-\uf8ff\U000f0000-\U0010ffff"
_HIDDEN = re.compile(f"[\x00-\x1f{_FORMAT}{_OTHER}]")
_HIDDEN_BUT_NEWLINES = re.compile(f"[\x00-\x08\x0b-\x1f{_FORMAT}{_OTHER}]")
