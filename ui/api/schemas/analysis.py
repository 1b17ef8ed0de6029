"""Requests for what is computed from a text or from stored scores."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from engine.mixing.evidence import AnyEvidence
from engine.mixing.papers import PAPER_BLOCKS, PAPER_NEWEST_WEIGHT
from engine.text.split_names import HeldOutSplit
from ui.api.schemas.mixed import Mixed
from ui.present.forms.option_help import OPTION_HELP
from ui.serving.security import MAX_BODY_BYTES
from workbench.mixture_request import MixtureRequest
from workbench.requests.body import MAX_NAMED, FieldError, Names, RequestBody
from workbench.requests.gate_changes import AnyGateChange


class PosteriorRequest(Mixed):
    """POST /v1/workbench/posterior."""

    model: str = Field(description="Name of a mixture or an expert.")
    text: str = Field(min_length=1, max_length=MAX_BODY_BYTES, description="The text to read.")


class MixRequest(RequestBody):
    """POST /v1/workbench/mix."""

    mixture: str = Field(description="Name of a mixture.")
    active: Names | None = Field(None, description="Experts that take part.")
    weights: dict[str, float] | None = Field(
        None,
        max_length=MAX_NAMED,
        description="Weights instead of the mixture's own; experts that are not listed get weight 0.",
    )
    gate: AnyGateChange | None = Field(None, description="Another gate, or changes to the mixture's own.")
    prior: str | None = Field(None, description="Name of a stored prior, instead of weights.")
    split: HeldOutSplit = Field("test", description="Which held-out part.")

    @model_validator(mode="after")
    def _one_weighing(self) -> MixRequest:
        if self.weights is not None and self.prior is not None:
            raise FieldError("prior", "give weights or a prior, not both")
        return self

    def to_request(self) -> MixtureRequest:
        """The request for the services."""
        gate = Mixed(gate=self.gate).to_request(self.mixture).gate
        return MixtureRequest(self.mixture, self.active, self.weights, gate, self.prior)


class RemovalRequest(RequestBody):
    """POST /v1/workbench/removal."""

    mixture: str = Field(description="Name of a mixture.")
    retrained: dict[str, str] = Field(
        default_factory=dict, description="By domain, the mixture that was trained without it (the paper's –Domain)."
    )
    evidence: AnyEvidence = Field("prefix", description=OPTION_HELP["evidence"])
    num_blocks: int = Field(
        PAPER_BLOCKS, ge=1, description="Dev blocks behind each cached prior, exactly (paper: 100)."
    )
    split: HeldOutSplit = Field("test", description="Which held-out part; priors are always of dev.")


class ForgettingRequest(RequestBody):
    """POST /v1/workbench/forgetting."""

    before: str = Field(description="A mixture (or an expert) as it was.")
    after: str = Field(description="The mixture (or expert) that it became.")
    split: HeldOutSplit = Field("test", description="Which held-out part.")


class NearestRequest(RequestBody):
    """POST /v1/workbench/nearest."""

    mixture: str = Field(description="Name of a mixture: its experts are the possible parents.")
    domain: str = Field(description="Domain that a new expert is to learn.")
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Maximum number of scored blocks (paper: 100).")
    split: HeldOutSplit = Field("dev", description="Which held-out part.")


class ClusterGridRequest(RequestBody):
    """POST /v1/workbench/cluster-grid."""

    mixture: str = Field(description="Name of a mixture with a cluster gate.")
    temperatures: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=list, max_length=50, description="Temperatures to compare; empty takes a usual choice."
    )
    split: HeldOutSplit = Field("test", description="Which held-out part.")


class CalibrationRequest(RequestBody):
    """POST /v1/workbench/calibration."""

    mixture: str = Field(description="Name of a mixture with a posterior.")


class PosteriorMapRequest(RequestBody):
    """POST /v1/workbench/posteriors."""

    mixture: str = Field(description="Name of a mixture.")
    evidence: AnyEvidence = Field("prefix", description=OPTION_HELP["evidence"])
    newest_weight: float = Field(PAPER_NEWEST_WEIGHT, ge=0, le=1, description=OPTION_HELP["newest_weight"])
    estimate: Literal["updating", "mean"] = Field(
        "updating", description="updating: the learnt prior (paper, figure 4); mean: the mean of the blocks."
    )
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Maximum number of blocks of each domain (paper: 100).")
    split: HeldOutSplit = Field("dev", description="Which held-out part.")


class PriorRequest(RequestBody):
    """POST /v1/workbench/priors."""

    name: str = Field(description="Name of the new prior.")
    mixture: str = Field(description="Name of a mixture.")
    domain: str = Field(description="Domain whose scored held-out text it is estimated on.")
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Exactly so many blocks (paper: 100).")
    evidence: AnyEvidence = Field("prefix", description=OPTION_HELP["evidence"])
    split: HeldOutSplit = Field("dev", description="Which held-out part.")


class ContrastRequest(RequestBody):
    """POST /v1/workbench/contrast."""

    domain: str = Field(description="Name of a domain.")
    expert: str = Field(description="Name of an expert.")
    rival: str = Field(description="Name of the expert to compare it with, such as the domain's own.")
    num_passages: int = Field(3, ge=1, le=50, description="Passages at each end.")
    max_tokens: int = Field(200, ge=1, le=2000, description="Tokens shown of each.")
    split: HeldOutSplit = Field("test", description="Which held-out part.")


class InferenceModesRequest(RequestBody):
    """POST /v1/workbench/inference-modes."""

    mixture: str = Field(description="Name of a mixture.")
    evidence: AnyEvidence = Field("prefix", description=OPTION_HELP["evidence"])
    newest_weight: float = Field(PAPER_NEWEST_WEIGHT, ge=0, le=1, description=OPTION_HELP["newest_weight"])
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Held-out blocks behind a cached prior (paper: 100).")
    split: HeldOutSplit = Field("test", description="Which held-out part.")
