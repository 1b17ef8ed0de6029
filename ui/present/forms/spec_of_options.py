"""A spec from options by their names, as the command line and a notebook give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from ui.present.forms.option_names import groups_of, option_of, option_of_path
from workbench.errors import BadSpecError, Complaint
from workbench.kinds.parse_spec import parse_as, parse_spec
from workbench.specs.base import Sane


def spec_of_options(spec: type[Sane], values: Mapping[str, Any]) -> Any:
    """A spec with these values; the others keep their defaults. The knobs of its configs are options, too.

    Raises BadSpecError with every complaint, also about names that are no option. The complaints name options, not
    fields.
    """
    try:
        return _parse(spec, values)
    except BadSpecError as bad:
        raise BadSpecError([_in_options(spec, one) for one in bad.given], bad.next_step) from None


def _in_options(spec: type[Sane], complaint: str | Complaint) -> str | Complaint:
    if isinstance(complaint, str) or not complaint.field:
        return complaint
    return Complaint(complaint.reason, (option_of_path(spec, complaint.field),))


def _parse(spec: type[Sane], values: Mapping[str, Any]) -> Any:
    content = dict(values)
    for name, group in groups_of(spec):
        # The spec's default, not that of the config class: a new expert has a tenth of the usual learning rate.
        defaults = asdict(spec.model_fields[name].get_default(call_default_factory=True))
        options = {field.name: option_of(spec, name, field.name) for field in fields(group)}
        given = {knob: content.pop(option) for knob, option in options.items() if option in content}
        config = content.get(name, {})
        content[name] = defaults | dict(config) | given if isinstance(config, Mapping) else config
    if "kind" not in spec.model_fields:  # the spec of several jobs
        return parse_as(spec, content)
    return parse_spec({**content, "kind": spec.model_fields["kind"].default})
