"""Make a domain of each cluster: the same documents in the same splits, so that held-out text stays held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters.documents import ClusteredDocuments, load_documents
from engine.errors import CorpusError, EngineError
from engine.events import Progress
from engine.text.split import MAX_DOMAINS
from jobs.attempt.work import Run, Work
from jobs.kinds.shared.clustered_text import NONE, store_chosen
from workbench.formatting.number_format import pluralize
from workbench.kinds.clusters.make_cluster_domains import MakeClusterDomains
from workbench.registry.clusters.cluster_domains import corpus_name, domain_names, set_domains
from workbench.registry.clusters.clusterings import ClusteringFiles, clustering_files, clustering_row, require_unedited
from workbench.registry.corpora import domain_row


def run(work: Work, spec: MakeClusterDomains) -> Run:
    """Makes one corpus with a domain for each cluster that needs one."""
    with work.reading() as session:
        row = clustering_row(session, spec.clustering)
        files = clustering_files(session, work.storage, spec.clustering)
        corpus, domains = corpus_name(session, row), domain_names(session, row)
    yield Progress(0, None, "documents", "listing documents")
    names = list(domains.values())
    if spec.domains and spec.domains != names:
        raise EngineError(
            f"The clusters of “{spec.clustering}” have changed since this job was created.",
            "Submit the plan again.",
        )
    result = {"clustering": files.name, "domains": names}
    if not domains:
        return {**result, "sentence": "Every cluster has its domain already."}
    files.kept.check()
    documents = load_documents(files.kept.folder)
    _require_possible(files, list(domains), documents)
    numbers_N = np.where(np.isin(documents.labels_N, list(domains)), documents.labels_N, NONE)
    chosen = yield from store_chosen(work, files, documents, numbers_N, domains)
    numbers, sources = {name: number for number, name in domains.items()}, [source.name for source in files.sources]

    def register(session: Session) -> dict[str, Any]:
        row = require_unedited(session, files.id, files.artifact_id)
        source = f"clusters of {', '.join(sources)}"
        card = chosen.register(session, work, name=corpus, source=source, of_clusters=True)
        set_domains(session, row, {numbers[name]: domain_row(session, name).id for name in card.domains})
        return {**result, "sentence": f"{pluralize(len(card.domains), 'domain')} in the corpus {card.name}."}

    return register


def _require_possible(files: ClusteringFiles, clusters: Sequence[int], documents: ClusteredDocuments) -> None:
    sizes = documents.sizes(len(files.numbers))
    empty = [str(number) for number in clusters if not sizes[number]]
    if empty:
        problem = f"A domain needs documents. Of the {len(sizes)} clusters these are empty: {', '.join(empty)}."
        raise CorpusError(problem, "Merge them with another cluster, or find fewer clusters.")
    if len(clusters) > MAX_DOMAINS:
        problem = f"There are {len(clusters)} clusters; at most {MAX_DOMAINS} can become domains together."
        raise CorpusError(problem, "Find fewer clusters.")
