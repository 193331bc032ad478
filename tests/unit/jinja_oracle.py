# SPDX-License-Identifier: Apache-2.0
#
# Renders templates with Python's Jinja2, set up as Hugging Face transformers does, for the tests of
# models/chat to compare with. Reads a JSON file with a list of cases {template, context, mutable?},
# writes a list of {"text": ...} or {"error": ...} in the same order. Exits 77 without Jinja2.
import json
import sys

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment
except ImportError:
    sys.exit(77)


class Generation(jinja2.ext.Extension):
    """{% generation %}: prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return body


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment(base):
    env = base(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
    )
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: __import__("time").strftime(f, (2024, 7, 26, 9, 5, 3, 4, 208, 0))
    return env


def render(env, case, known={}):
    try:
        key = (env, case["template"])
        if key not in known:
            known[key] = env.from_string(case["template"])
        return {"text": known[key].render(**case["context"])}
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"error": "syntax: %s" % e}
    except Exception as e:  # whatever a template can provoke is an answer
        return {"error": str(e)}


def main():
    immutable = environment(ImmutableSandboxedEnvironment)
    mutable = environment(SandboxedEnvironment)
    with open(sys.argv[1], encoding="utf-8") as f:
        cases = json.load(f)
    answers = [render(mutable if c.get("mutable") else immutable, c) for c in cases]
    with open(sys.argv[2], "w", encoding="utf-8", errors="backslashreplace") as f:
        json.dump(answers, f, ensure_ascii=True)


main()
