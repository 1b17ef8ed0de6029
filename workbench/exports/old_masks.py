"""Whether an expert was trained while the answers of conversations were masked by the first rule, which had a fault."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.registry.experts import domains_of, expert_row
from workbench.schema.tables import Domain, Expert
from workbench.store.storage import Storage

MASK_RULE = "mask_rule"  # in an expert's config: the rule of its training on conversations
OLD_MASKS = (
    "Its answers were masked by the first rule, which differs for this chat template: ends of answers were left out of "
    "the loss, or words of users were in it. Train it again to have it by the present rule."
)


def is_of_first_rule(session: Session, row: Expert) -> bool:
    """Whether it was trained on conversations before the rule was written down."""
    if MASK_RULE in row.config or "num_steps" not in row.config:
        return row.config.get(MASK_RULE) == 1
    formats = session.scalars(select(Domain.format).where(Domain.name.in_(domains_of(row))))
    return "chat" in set(formats)


def old_masks(session: Session, storage: Storage, name: str) -> str:
    """What an expert's card says where the first rule masked otherwise than the present one; else empty."""
    from engine.errors import EngineError
    from engine.text.chat.own_template import template_folder
    from engine.text.chat.template import load_chat_template
    from engine.text.tokenizer import load_tokenizer

    row = expert_row(session, name)
    if not is_of_first_rule(session, row):
        return ""
    try:
        base = storage.path(row.base_id)
        template = load_chat_template(template_folder(base, storage.path(row.artifact_id)))
        is_other = template is not None and template.masks_changed(load_tokenizer(base))
    except EngineError:  # of files that are gone nothing can be said
        return ""
    return OLD_MASKS if is_other else ""
