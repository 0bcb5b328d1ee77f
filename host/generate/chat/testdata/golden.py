"""Renders the templates of this folder as transformers does, into golden.json. Needs jinja2 3.1.

The environment is that of transformers.utils.chat_template_utils: trim_blocks, lstrip_blocks, loop controls, tojson
without escapes for HTML, raise_exception, strftime_now.
"""

import json
import pathlib
import sys

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

here = pathlib.Path(__file__).parent


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception

user = {"role": "user", "content": "  How are you?\nSay it in <one> word & no \"more\". "}
answer = {"role": "assistant", "content": "Fine, thanks. \u00fc \U0001f600"}
system = {"role": "system", "content": "You are brief."}
tool = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "maximum": 9007199254740993}},
            "required": ["place"],
            "additionalProperties": False,
            "x-share": 0.5,
            "x-more": [[], {}, None, [1e-7, 1e16, 2.0], "\u2028\t<&>\x01"],
        },
    },
}
call = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {"place": "Z\u00fcrich", "days": 3, "a": None}}}
    ],
}
result = {"role": "tool", "content": "{\"sun\": true}", "name": "weather"}

conversations = {
    "one turn": {"messages": [user]},
    "system": {"messages": [system, user]},
    "three turns": {"messages": [system, user, answer, {"role": "user", "content": "And you?"}]},
    "no prompt": {"messages": [user, answer], "add_generation_prompt": False},
    "two of one role": {"messages": [user, user]},
    "tools": {"messages": [system, user], "tools": [tool]},
    "a call of a tool": {"messages": [user, call, result], "tools": [tool]},
    "a variable": {"messages": [user], "variables": {"enable_thinking": False}},
}
tokens = {"bos_token": "<s>", "eos_token": "</s>"}

golden = []
for path in sorted(here.glob("*.jinja")):
    template = environment.from_string(path.read_text())
    for name, c in conversations.items():
        more = c.get("variables", {})
        prompt = c.get("add_generation_prompt", True)
        case = {"template": path.name, "name": name, "messages": c["messages"], "add_generation_prompt": prompt}
        if "tools" in c:
            case["tools"] = c["tools"]
        if more:
            case["variables"] = more
        try:
            case["text"] = template.render(
                messages=c["messages"], tools=c.get("tools"), documents=None, add_generation_prompt=prompt, **tokens, **more
            )
        except jinja2.exceptions.TemplateError as e:
            case["error"] = str(e)
        golden.append(case)
json.dump(golden, sys.stdout, ensure_ascii=False, indent=1)
print()
