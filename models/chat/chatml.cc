// SPDX-License-Identifier: Apache-2.0
//
// The template for files that have none.
//
// Owns its text. Tool calls and results are written in the Hermes form, which most models that
// speak ChatML were trained on.
#include "models/chat/prompt.h"

namespace pn::chat {

std::string_view chatml_template() {
  return R"({%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{% endif %}
{{- 'You may call these functions to answer:\n<tools>' }}
{%- for tool in tools %}{{- '\n' + tool | tojson }}{% endfor %}
{{- '\n</tools>\nWrite each call as <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>' }}
{{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if not (loop.first and tools and message.role == 'system') %}
{%- set role = 'user' if message.role == 'tool' else message.role %}
{{- '<|im_start|>' + role + '\n' }}
{%- if message.role == 'tool' %}
{{- '<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- elif message.content %}
{{- message.content }}
{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '\n' if message.content or not loop.first else '' }}
{{- '<tool_call>\n{"name": ' + call.function.name | tojson + ', "arguments": ' }}
{{- call.function.arguments | tojson + '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
)";
}

}  // namespace pn::chat
