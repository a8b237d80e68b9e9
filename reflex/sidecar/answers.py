"""The schemas of answers, JSON Schema as OpenAPI 3.1 has it. Read by openapi and held against real answers by the tests."""

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
MAYBE_TEXT, MAYBE_WHOLE = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
TIMINGS = {
    "type": "object",
    "additionalProperties": NUMBER,
    "description": "Milliseconds: waited for the worker's turn, first_token, total.",
}
SHARES = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}}


def record(optional=(), **fields):
    """An object of these fields and no others; all but `optional` are there."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def listed(item, **more):
    return {"type": "array", "items": item, **more}


def either(*schemas):
    return {"anyOf": list(schemas)}


NOTHING = {"type": "null"}
REASON = {"enum": ["stop", "length"]}
USAGE = record(prompt_tokens=WHOLE, completion_tokens=WHOLE, total_tokens=WHOLE)
LIKELY = record(token=TEXT, logprob=NUMBER, bytes=listed(WHOLE))
CHAT_LOGPROBS = record(
    content=listed(record(**LIKELY["properties"], top_logprobs=listed(LIKELY))),
    refusal=NOTHING,
)
TEXT_LOGPROBS = record(
    tokens=listed(TEXT),
    token_logprobs=listed(NUMBER),
    top_logprobs=listed({"type": "object", "additionalProperties": NUMBER}),
    text_offset=listed(WHOLE),
)
HEAD = {"id": TEXT, "created": WHOLE, "model": TEXT}
CHAT = record(
    **HEAD,
    object={"enum": ["chat.completion"]},
    choices=listed(
        record(
            index=WHOLE,
            message=record(role={"enum": ["assistant"]}, content=TEXT, refusal=NOTHING),
            logprobs=either(NOTHING, CHAT_LOGPROBS),
            finish_reason=REASON,
        )
    ),
    usage=USAGE,
    timings=TIMINGS,
)
COMPLETION = record(
    **HEAD,
    object={"enum": ["text_completion"]},
    choices=listed(record(index=WHOLE, text=TEXT, logprobs=either(NOTHING, TEXT_LOGPROBS), finish_reason=REASON)),
    usage=USAGE,
    timings=TIMINGS,
)
LABEL = record(
    label=TEXT,
    probability={"type": "number", "minimum": 0, "maximum": 1},
    logprob={"type": ["number", "null"], "description": "Sum over the label's tokens."},
    mean_logprob={"type": ["number", "null"], "description": "Per token."},
    logprob_per_byte={"type": ["number", "null"]},
    tokens=WHOLE,
    token_ids=listed(WHOLE),
)
CLASSIFY = record(
    **HEAD,
    object={"enum": ["classification"]},
    label={"type": "string", "description": "The most likely one; the first of equals."},
    label_index=WHOLE,
    labels=listed(LABEL, description="In the order of the request."),
    rule=TEXT,
    entropy_bits=NUMBER,
    margin={"type": "number", "description": "The best probability less the second best."},
    warnings=listed(TEXT),
    usage=USAGE,
    timings=TIMINGS,
)
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
ANSWERS = {
    "choice": record(type={"enum": ["choice"]}, choice=TEXT, probabilities=SHARES, confidence=SHARE),
    "score": record(type={"enum": ["score"]}, score=NUMBER, legend={"type": "object"}, probabilities=SHARES, confidence=SHARE),
    "noul": record(type={"enum": ["noul"]}, noul={**SHARE, "description": "The probability of yes."}),
}
SYSTEMONE = record(
    model=TEXT,
    answers={"type": "object", "additionalProperties": either(*ANSWERS.values())},
    usage=record(input_tokens=WHOLE, output_tokens=WHOLE),
)
FACTS = {"context_length": MAYBE_WHOLE, "backend": MAYBE_TEXT}
MODEL = record(id=TEXT, object={"enum": ["model"]}, created=WHOLE, owned_by=TEXT, **FACTS)
MODELS = record(object={"enum": ["list"]}, data=listed(MODEL))
HEALTH = record(status={"enum": ["ok"]}, model=TEXT, **FACTS)
ERROR = record(
    error=record(
        message={"type": "string", "description": "One line: what was expected, what was found, where, what to do."},
        type={"type": "string", "description": "OpenAI's kind of error."},
        param={"type": ["string", "null"], "description": "The field it is about."},
        code=TEXT,
        category={"type": "string", "description": "Reflex's kind of error: docs/errors.md."},
        expected=MAYBE_TEXT,
        found=MAYBE_TEXT,
        where=MAYBE_TEXT,
        remedy=MAYBE_TEXT,
    )
)
SCHEMAS = {"ChatAnswer": CHAT, "CompletionAnswer": COMPLETION, "ClassifyAnswer": CLASSIFY, "SystemOneAnswer": SYSTEMONE}
SCHEMAS |= {"Models": MODELS, "Model": MODEL, "Health": HEALTH, "Error": ERROR}
