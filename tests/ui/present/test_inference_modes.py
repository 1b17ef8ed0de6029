"""The table of inference modes has a column for each mode that has a number, and says why another has none."""

from __future__ import annotations

from ui.present.text.inference_modes import describe_missing_modes, legend, shown_modes
from workbench.questions.inference_modes import InferenceModeAverages, InferenceModeComparison, InferenceModeDomain


def domain(name: str, label: float | None, cached: float | None) -> InferenceModeDomain:
    numbers = dict.fromkeys(("naive", "average", "uniform", "updating", "mixture", "oracle"), 3.0)
    given = {"role": "train", "is_trained": True, "num_tokens": 9, "label": label, "cached": cached}
    return InferenceModeDomain.model_validate({"domain": name, **given, **numbers})


def comparison(*domains: InferenceModeDomain) -> InferenceModeComparison:
    averages = InferenceModeAverages(train={}, novel={})
    return InferenceModeComparison(experts=["a"], domains=list(domains), averages=averages)


def test_a_mode_without_any_number_has_no_column_and_a_reason() -> None:
    answer = comparison(domain("law", 2.0, None), domain("sea", None, None))
    assert "cached" not in shown_modes(answer)
    assert "label" in shown_modes(answer)
    assert describe_missing_modes(answer, 100) == (
        "A dash under label: there is no expert of the domain's own. "
        "Not shown: cached, since on every domain fewer than 100 dev blocks are scored."
    )
    assert not any(line.startswith("Cached") for line in legend(shown_modes(answer)))


def test_a_mode_with_a_number_somewhere_keeps_its_column() -> None:
    answer = comparison(domain("law", 2.0, 1.0), domain("sea", 2.0, None))
    assert {"label", "cached"} <= set(shown_modes(answer))
    assert describe_missing_modes(answer, 9) == "A dash under cached: fewer than 9 dev blocks are scored."
    assert describe_missing_modes(comparison(domain("law", 2.0, 1.0)), 9) == ""
