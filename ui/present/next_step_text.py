"""Next steps of the engine with the command, option or setting that takes them."""

from __future__ import annotations

from engine.errors import NextStep, Problem

_TEXTS: dict[str, str] = {
    NextStep.CHOOSE_DEVICE: "Set WORKBENCH_DEVICE to auto, cpu or a device that this machine has.",
    NextStep.CHOOSE_DEVICE_OR_ONE_PROCESS: "Set WORKBENCH_DEVICE to auto, cpu or cuda, or WORKBENCH_PROCESSES to 1.",
    NextStep.LISTEN_ELSEWHERE: "Set WORKBENCH_NODE_ADDRESS to an address that it has itself.",
    NextStep.REACHABLE_ADDRESS: (
        "Set WORKBENCH_NODE_ADDRESS to an address of the worker that the nodes reach, and open its ports."
    ),
    NextStep.EVALUATE_AGAIN: "Evaluate the mixture again: `workbench evaluate run`.",
    NextStep.CHOOSE_SPLIT: "To read it, choose its split, or all (`--dataset-split all`).",
    NextStep.IMPORT_AS_CHAT: "Import it as conversations (`--format chat`).",
    NextStep.IMPORT_PROMPTS_AS_TEXT: (
        "Remove the record; prompts without answers are texts (`--format text --text-field prompt`)."
    ),
    NextStep.LEAVE_FIELDS_OUT: "Fix or remove the record, or leave the field out (`--leave-out NAME`).",
    NextStep.NAME_TEXT_FIELD: "Say which field holds the text (`--text-field`).",
    NextStep.NAME_DOMAIN_FIELD: "Say which field holds the domain (`--domain-field`).",
    NextStep.NAME_GROUP_FIELD: "Say which field holds the group (`--group-field`).",
    NextStep.FEWER_SHOTS: "Add examples, or choose fewer demonstrations (`--shots`).",
    NextStep.FEWER_VALIDATION_EXAMPLES: "Add examples, or choose fewer validation examples (`--validation`).",
}


def next_step_text(next_step: str) -> str:
    """What to do next, as a sentence for a person at this front end."""
    return _TEXTS.get(next_step, next_step)


def with_options(text: str) -> str:
    """The same text, where it ends with a next step of the engine with that of this front end."""
    step = next((step for step in _TEXTS if text.endswith(step)), None)
    return text if step is None else text.removesuffix(step) + _TEXTS[step]


def problem_text(problem: Problem) -> str:
    """What is wrong and what to do next, in one line."""
    return f"{with_options(problem.cause)} {next_step_text(problem.next_step)}".strip()
