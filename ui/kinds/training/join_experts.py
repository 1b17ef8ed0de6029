"""The form of a joined model: which experts, and how many of their networks each token goes through."""

from __future__ import annotations

from ui.kinds.form import EXPERTS, JOIN, TrainForm

FORM = TrainForm(
    title=JOIN,
    about="One model made from several experts that differ only in their feed-forward networks: in each layer a "
    "router, solved from their texts without training, chooses the network for each token. It costs about what one "
    "of them does. Of anchored experts the rows of their training are the router.",
    label="Join them",
    needs=(EXPERTS,),
    tucked=("routers", "average_rest", "shrinkage", "temperature", "block_size"),
    position=71,
)
