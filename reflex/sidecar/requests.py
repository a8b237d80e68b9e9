"""The schemas of requests, JSON Schema as OpenAPI 3.1 has it. Names of fields and their meaning are OpenAI's where it has them.

`x-refused`: what to do where a value asks for something that there is not (see shape). Read by app and openapi.
"""

LARGEST, SMALLEST = (1 << 63) - 1, -(1 << 63)
MOST_TEXTS, MOST_STOPS, MOST_MESSAGES, MOST_QUESTIONS = 1000, 64, 1000, 64
MOST_LIKELY = 20  # tokens beside each one, with their log-probabilities
RULES = ("sum", "mean", "byte", "pmi")
PLAIN = "ask without it"


def optional(kind, text, **more):
    """A field that may be null, which is as good as not given."""
    return {"type": [kind, "null"], "description": text, **more}


def refusing(remedy, *harmless):
    """A field of OpenAI's that may be there only with values which ask for nothing."""
    return {"enum": [*harmless, None], "description": f"Not supported: {remedy}.", "x-refused": remedy}


MODEL = optional("string", "Any name; the one model there is answers, and says its own.")
SAMPLING = {
    "temperature": optional("number", "1 by default; 0 takes the most likely token.", minimum=0, maximum=100),
    "top_p": optional("number", "Draw among the fewest tokens that reach this probability.", exclusiveMinimum=0, maximum=1),
    "top_k": optional("integer", "Draw among the k most likely tokens; 0 is off.", minimum=0, maximum=LARGEST),
    "min_p": optional("number", "Draw among tokens at least this likely relative to the first.", minimum=0, exclusiveMaximum=1),
    "repeat_penalty": optional("number", "Weakens tokens that were there already; 1 is off.", minimum=0.001, maximum=1000),
    "seed": optional("integer", "Same seed, same text.", minimum=SMALLEST, maximum=LARGEST),
    "stop": {
        "anyOf": [
            {"type": ["string", "null"], "minLength": 1},
            {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": MOST_STOPS},
        ],
        "description": "End before any of these texts.",
    },
    "stream": optional("boolean", "Send the text as it comes, as server-sent events."),
    "stream_options": optional(
        "object",
        "Only with stream.",
        properties={
            "include_usage": optional("boolean", "One more chunk with the numbers of tokens."),
            "include_obfuscation": optional("boolean", "Without effect."),
        },
        additionalProperties=False,
    ),
}
REFUSED = {
    "n": refusing("one answer per request; ask again for another", 1),
    "logit_bias": refusing(PLAIN, {}),
    "presence_penalty": refusing("use repeat_penalty", 0),
    "frequency_penalty": refusing("use repeat_penalty", 0),
    "user": optional("string", "Without effect."),
}
FORMAT = {
    "anyOf": [
        {
            "type": ["object", "null"],
            "properties": {"type": {"enum": ["text", "json_object"]}},
            "required": ["type"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "type": {"enum": ["json_schema"]},
                "json_schema": {
                    "type": "object",
                    "properties": {
                        "name": optional("string", "Without effect."),
                        "description": optional("string", "Without effect."),
                        "schema": {
                            "type": ["object", "boolean"],
                            "description": "The JSON schema that the text will satisfy: docs/constrain.md.",
                        },
                        "strict": optional("boolean", "Without effect: the text always satisfies the schema."),
                    },
                    "required": ["schema"],
                    "additionalProperties": False,
                },
            },
            "required": ["type", "json_schema"],
            "additionalProperties": False,
        },
    ],
    "description": "Hold the text to JSON: any object, or what a JSON schema says.",
}
MESSAGE = {
    "type": "object",
    "properties": {
        "role": {
            "type": "string",
            "minLength": 1,
            "description": "system, user, assistant, or what else the model's template knows.",
        },
        "content": {
            "anyOf": [
                {"type": ["string", "null"]},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "type": {"enum": ["text"], "x-refused": "send text only"},
                            "text": {"type": "string"},
                        },
                        "required": ["type", "text"],
                        "additionalProperties": True,
                    },
                },
            ]
        },
        "name": optional("string", "Handed to the template."),
        "refusal": optional("string", "Without effect."),
        "annotations": {"type": ["array", "null"], "description": "Without effect."},
        "audio": refusing("send text only"),
        "tool_calls": refusing("write what was said as text", []),
        "function_call": refusing("write what was said as text"),
        "tool_call_id": refusing("write what was said as text"),
    },
    "required": ["role", "content"],
    "additionalProperties": False,
}
MESSAGES = {"type": "array", "items": MESSAGE, "minItems": 1, "maxItems": MOST_MESSAGES, "description": "The conversation."}
VARIABLES = optional("object", "Further variables of the model's chat template, such as enable_thinking.")
LENGTH = {"minimum": 1, "maximum": LARGEST}
TOOLS = "describe what there is in a message, and hold the answer to a JSON schema (response_format)"
CHAT = {
    "type": "object",
    "properties": {
        "model": MODEL,
        "messages": MESSAGES,
        "max_completion_tokens": optional("integer", "Most tokens to make; by default 256 or what the context holds.", **LENGTH),
        "max_tokens": optional("integer", "The older name of max_completion_tokens.", **LENGTH),
        **SAMPLING,
        "logprobs": optional("boolean", "Each token's log-probability, before all sampling settings."),
        "top_logprobs": optional(
            "integer", "Only with logprobs: that many likely tokens beside each.", minimum=0, maximum=MOST_LIKELY
        ),
        "response_format": FORMAT,
        "chat_template_kwargs": VARIABLES,
        **REFUSED,
        "tools": refusing(TOOLS, []),
        "tool_choice": refusing(TOOLS, "none", "auto"),
        "functions": refusing(TOOLS, []),
        "function_call": refusing(TOOLS, "none", "auto"),
        "parallel_tool_calls": optional("boolean", "Without effect."),
        "modalities": refusing("text is all there is", ["text"]),
        "audio": refusing("text is all there is"),
        "prediction": refusing(PLAIN),
        "web_search_options": refusing(PLAIN),
        "store": refusing("nothing is stored", False),
        "metadata": optional("object", "Without effect."),
        "service_tier": refusing("there is one", "auto", "default"),
        "prompt_cache_key": optional("string", "Without effect."),
        "safety_identifier": optional("string", "Without effect."),
    },
    "required": ["messages"],
    "additionalProperties": False,
}
IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": LARGEST}, "minItems": 1}
TEXT_OR_IDS = {"anyOf": [{"type": "string", "minLength": 1}, IDS], "description": "A text, or its token ids."}
COMPLETION = {
    "type": "object",
    "properties": {
        "model": MODEL,
        "prompt": TEXT_OR_IDS,
        "max_tokens": optional("integer", "Most tokens to make, 16 by default.", **LENGTH),
        **SAMPLING,
        "logprobs": optional(
            "integer", "Log-probabilities: of each token, and of that many likely ones beside it.", minimum=0, maximum=MOST_LIKELY
        ),
        "response_format": FORMAT,
        **REFUSED,
        "best_of": refusing("one answer per request; ask again for another", 1),
        "echo": refusing(PLAIN, False),
        "suffix": refusing(PLAIN, ""),
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
SCORING = {
    "rule": {"enum": [*RULES, None], "description": "How labels of different lengths compare: docs/decisions.md. By default sum."},
    "temperature": optional(
        "number", "Divides the scores before they become probabilities; 1 by default.", exclusiveMinimum=0, maximum=LARGEST
    ),
}
CLASSIFY = {
    "type": "object",
    "properties": {
        "model": MODEL,
        "prompt": {**TEXT_OR_IDS, "description": "The text, or its token ids, that a label continues. Either this or messages."},
        "messages": {**MESSAGES, "description": "In place of prompt, a conversation that a label answers."},
        "labels": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": MOST_TEXTS,
            "description": "The texts to score, as they continue the prompt: usually beginning with a space.",
        },
        **SCORING,
        "terminator": optional("string", "A text that ends every label."),
        "prior": optional("string", "Stands for no prompt in pmi."),
        "chat_template_kwargs": VARIABLES,
    },
    "required": ["labels"],
    "additionalProperties": False,
}
SAID = {"type": ["string", "object", "array"], "description": "A text; anything else is read as JSON text."}
DESCRIPTION = {"type": ["string", "object", "array", "number", "boolean", "null"]}


def question(kind, criteria, required=("type", "instructions", "criteria")):
    """A type of question."""
    fields = {"type": {"enum": [kind]}, "instructions": SAID, "criteria": criteria}
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


NOUL = {
    "type": ["object", "null"],
    "properties": {"true": DESCRIPTION, "false": DESCRIPTION},
    "additionalProperties": False,
    "description": "What counts as true and as false.",
}
SYSTEMONE = {
    "type": "object",
    "properties": {
        "model": MODEL,
        "state": {**SAID, "description": "What the questions are about: a text; anything else is read as JSON text."},
        "questions": {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    question(
                        "choice",
                        {
                            "type": "object",
                            "additionalProperties": DESCRIPTION,
                            "propertyNames": {"minLength": 1},
                            "minProperties": 1,
                            "maxProperties": 255,
                            "description": "Each option and its description, or null.",
                        },
                    ),
                    question(
                        "score",
                        {
                            "type": "array",
                            "items": DESCRIPTION,
                            "minItems": 2,
                            "maxItems": 10,
                            "description": "The levels, lowest first.",
                        },
                    ),
                    question("noul", NOUL, ("type", "instructions")),
                ]
            },
            "minProperties": 1,
            "maxProperties": MOST_QUESTIONS,
            "description": "Questions under names of your own.",
        },
        **SCORING,
        "images": refusing("text is all there is", []),
        "files": refusing("text is all there is", []),
    },
    "required": ["state", "questions"],
    "additionalProperties": False,
}
SCHEMAS = {"ChatRequest": CHAT, "CompletionRequest": COMPLETION, "ClassifyRequest": CLASSIFY, "SystemOneRequest": SYSTEMONE}
