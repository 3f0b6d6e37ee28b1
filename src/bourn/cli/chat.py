"""`bourn chat`: a conversation."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from bourn.cli import options
from bourn.cli.show import exit_codes
from bourn.cli.thinking import Reasoning

Model = Annotated[str | None, Argument(help="As for run -m.", show_default=False)]
GoOn = Annotated[bool, Option("-c", "--continue", help="Go on with the last conversation.")]
Conversation = Annotated[
    str | None, Option(metavar="ID", help="Go on with this one.", show_default=False)
]
List = Annotated[bool, Option("--list", help="Show the conversations there are.")]
First = Annotated[
    str | None, Option("--first", metavar="TEXT", help="Ask this before anything is typed.")
]
Plain = Annotated[bool, Option("--plain", help="No Markdown.")]
Thoughts = Annotated[Reasoning, Option(help="A model's thoughts: dim, a line, or not at all.")]
FoldSystem = Annotated[
    bool, Option("--fold-system", help="For templates that refuse a system message.")
]
Quiet = Annotated[bool, Option("--quiet", help="No numbers after an answer.")]
Keep = Annotated[
    bool,
    Option(
        "--keep/--no-keep",
        envvar="BOURN_KEEP",
        help="Keep conversations, and what is typed, on disk.",
    ),
]


def chat(
    model: Model = None,
    system: options.System = None,
    go_on: GoOn = False,
    conversation: Conversation = None,
    list_: List = False,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    chat_template: options.ChatTemplate = None,
    window: options.Window = None,
    threads: options.Threads = None,
    cpu_only: options.CpuOnly = None,
    llama_server: options.LlamaServer = None,
    keep_alive: options.KeepAlive = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    quantization: options.Quantization = None,
    trust_remote_code: options.TrustRemoteCode = None,
    compile: options.Compile = None,  # noqa: A002 (as the flag is called)
    first: First = None,
    fold_system: FoldSystem = False,
    plain: Plain = False,
    reasoning: Thoughts = "show",
    quiet: Quiet = False,
    keep: Keep = True,
) -> None:
    """Talk with a model."""
    flags = options.flags(locals())
    with exit_codes():
        from bourn.cli import start  # what other commands have no use for
        from bourn.cli.talk import Looks

        if list_:
            start.list_conversations()
            return
        session = start.session(
            flags, conversation, go_on=go_on, keep=keep, fold_system=fold_system
        )
        looks = Looks(plain=plain, quiet=quiet, reasoning=reasoning)
        status = start.talk(session, looks, first, keep=keep)
    raise SystemExit(status)
