"""A chat template that shows tools as Hermes models know them, over the turns of ChatML."""

from __future__ import annotations

HERMES = """\
{%- if tools -%}
<|im_start|>system
You answer with calls of functions. These are known:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
A call is a JSON object with a function's name and its arguments, in these marks:
<tool_call>
{"name": <function's name>, "arguments": <object>}
</tool_call><|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.role == 'tool' -%}
<tool_response>
{{ message.content }}
</tool_response>
{%- else -%}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
{%- endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
